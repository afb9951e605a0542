"""Teams, people, data, hosts and use in a review: tables, reasons and verdict."""

import json
from copy import deepcopy
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from builders import CREATED, EKS, PROVIDED, Data, job, server, stack, team
from components_builders import tenancy
from page_reader import Page, well_formed
from rendered_stacks import stack_of_repository
from repository import ROOT
from review_pages import outlook_of, reviewed, small
from rich.console import Console

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.base.usd import Usd
from gpu_tenancy.explain.proposal import Effect
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook.data import rights_to_grant
from gpu_tenancy.model.source import Source
from gpu_tenancy.pages.tables import Table
from gpu_tenancy.review.build import as_data, read_used, review
from gpu_tenancy.review.changes import Change
from gpu_tenancy.review.changes import Effect as CloudEffect
from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.figures import DASH, differences
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.page import page
from gpu_tenancy.review.reasons import access
from gpu_tenancy.review.review import Review, Used, Verdict
from gpu_tenancy.review.text import promises, show_hosts

INSTEAD = "; to keep what runs, first deploy a change that only adds the new, let people move, then remove the old"
ENDS = ": its namespace is deleted with its workloads, and its metrics end under this name"
MEMBERS = {"researchers": ["group:vision"]}
RUNNING = Effect(claims={"vision": {"ck": 2**40, "mine": 2**39}})
CLAIMS = {"ck": {"size": "1Ti", "storageClass": "fs"}, "home": {"size": "512Gi", "storageClass": "fs"}}


def base(**of_vision: object) -> Data:
    sections = small()
    sections["teams"]["vision"] |= {"owner": "ada", "members": MEMBERS, **of_vision}
    return sections


def after(removed: list[str], **added: Data) -> Data:
    """The base with teams removed and others added, as copies of the first removed one with changes."""
    sections = base()
    for name, changes in added.items():
        sections["teams"][name] = {**deepcopy(sections["teams"][removed[0]]), **changes}
    for name in removed:
        del sections["teams"][name]
    return sections


def judged(now: Data, before: Data, effect: Effect | None = None) -> Verdict:
    return reviewed(outlook_of(now), before=outlook_of(before), effect=effect).verdict


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (after(["vision"], sight={}),
         f"Team vision is removed, likely renamed to sight (same owner, cost center, members, GPUs){ENDS}{INSTEAD}"),
        (after(["vision"], sight={"owner": "bob", "costCenter": "other"}),
         f"Team vision is removed, likely renamed to sight (same members, GPUs){ENDS}{INSTEAD}"),
        (after(["vision"], **{name: {"gpus": {"h100": {"guaranteed": 2, "limit": 4}}} for name in ("left", "right")}),
         f"Team vision is removed, likely split into left, right (same owner, cost center, members){ENDS}{INSTEAD}"),
        (after(["vision"], other={"owner": "x", "members": {}, "costCenter": "x"}), f"Team vision is removed{ENDS}"),
        (after(["vision"]), f"Team vision is removed{ENDS}"),
    ],
)  # fmt: skip
def test_a_removed_team_is_named_with_its_likely_successor(now: Data, says: str) -> None:
    verdict = judged(now, base())
    assert verdict.title == "Review needed"
    assert [one for one in verdict.sentences if "is removed" in one and "(had" not in one] == [says]


def test_two_removed_teams_with_one_successor_are_merged() -> None:
    before = base()
    cost_center = before["teams"]["vision"]["costCenter"]
    before["teams"]["speech"] |= {"owner": "ada", "members": MEMBERS, "costCenter": cost_center}
    now = deepcopy(before)
    now["teams"]["both"] = {**now["teams"].pop("vision"), "gpus": {"h100": {"guaranteed": 4, "limit": 6}}}
    del now["teams"]["speech"]
    merged = [one for one in judged(now, before).sentences if "likely" in one]
    assert [one.partition(" (")[0] for one in merged] == [
        f"Team {name} is removed, likely merged into both" for name in ("speech", "vision")
    ]


def test_moved_team_keeps_its_namespace_and_needs_review() -> None:
    verdict = judged(base(cohort="org"), base())
    assert verdict.title == "Review needed"
    (says,) = (one for one in verdict.sentences if "moves" in one)
    assert says.startswith("Team vision moves from cohort lab to org: namespace, claims and metrics stay")


def covering(gpus: int, cpu: int, memory: int, **rest: Any) -> Data:
    """A team with guaranteed GPUs, CPUs and Gi, and a team that shares its queue."""
    share = {"guaranteed": gpus, "limit": 16, "cpu": {"guaranteed": cpu}, "memory": {"guaranteed": f"{memory}Gi"}}
    borrower = team(gpus={"h100": {"guaranteed": 0, "limit": 8}})
    return stack(teams={"guest": team(queue="ml"), "ml": team(quota={"h100": share}, **rest), "other": borrower})


BEYOND, SURE = "is no longer covered", "guaranteed"


@pytest.mark.parametrize(
    ("now", "lines"),
    [
        ((8, 10, 128), [f"A job of 8 h100 GPUs and 32 CPUs of ml {BEYOND}: 10 CPUs {SURE}"]),
        ((4, 8, 32), [f"A job of 4 h100 GPUs, 16 CPUs and 64Gi memory of ml {BEYOND}: 8 CPUs and 32Gi memory {SURE}"]),
        ((16, 32, 128), []),
        ((4, 16, 64), []),
        ((8, 64, 256), []),
    ],
)  # fmt: skip
def test_jobs_no_longer_covered_come_first(now: tuple[int, int, int], lines: list[str]) -> None:
    verdict = judged(covering(*now), covering(8, 32, 128))
    assert [one for one in verdict.sentences if BEYOND in one] == lines
    assert (verdict.title, verdict.sentences[: len(lines)]) == ("Review needed" if lines else "OK", tuple(lines))


def test_new_job_that_uses_the_cpu_of_other_gpus_is_named() -> None:
    greedy = {"trainer": job(gpus=1, cpu=30, memory="8Gi", deadline="2h")}
    done = reviewed(outlook_of(covering(8, 32, 128, training=greedy)), before=outlook_of(covering(8, 32, 128)))
    line = "teams.ml.training.trainer: uses 30 CPUs of the 32 CPUs that ml is guaranteed with 8 h100 GPUs"
    assert done.verdict.title == "Review needed"
    assert done.verdict.sentences[0].startswith(line)
    assert f"- {line}" in comment(done)
    same = covering(8, 32, 128, training=greedy)
    assert judged(same, same).title == "OK"


def test_teams_that_share_a_queue_are_shown_once() -> None:
    now, own = covering(8, 32, 128), covering(8, 32, 128)
    own["teams"]["guest"] = team(gpus={"h100": {"guaranteed": 2}})
    printed = StringIO()
    Console(file=printed, width=200).print(promises(outlook_of(now)))
    shown = printed.getvalue()
    assert "guest  queue of ml" in shown
    assert shown.count("32 CPUs and 128Gi") == 1
    done = reviewed(outlook_of(now), before=outlook_of(own))
    assert "Team guest: its own queue before, queue of ml now" in done.verdict.sentences
    lines = comment(done).splitlines()
    assert f"| **guest** | queue of ml |{f' {DASH} |' * 6}" in lines
    assert sum(holding["guaranteed"] for one in as_data(done)["now"]["teams"] for holding in one["holdings"]) == 8


@pytest.mark.parametrize(
    ("before", "effect", "lost"),
    [
        (base(storage=CLAIMS), None, "2 claims (1536Gi: ck, home)"),
        (base(), Effect(claims={"vision": {"mine": 2**30}}), "1 claim (1Gi: mine)"),
        (base(storage=CLAIMS), RUNNING, "3 claims (2Ti: ck, home, mine)"),
    ],
)
def test_a_namespace_with_claims_is_not_removed(before: Data, effect: Effect | None, lost: str) -> None:
    verdict = judged(after(["vision"], sight={}), before, effect)
    assert verdict.title == "Blocked"
    (says,) = (one for one in verdict.sentences if one.startswith("Removing team vision"))
    assert says == (
        f"Removing team vision deletes its namespace with {lost}; copy the data, delete the claims (`storage` of the"
        " team in a change of its own), then remove the team"
    )


def test_a_team_whose_claims_were_removed_first_can_be_removed() -> None:
    assert judged(base(), base(storage=CLAIMS)).title == "OK"
    assert judged(after(["vision"]), base(), Effect()).title == "Review needed"


def test_claims_that_may_not_be_listed_are_named_as_unknown() -> None:
    sentences = judged(after(["vision"]), base(), Effect(claims_unread=True)).sentences
    assert "Claims in namespaces that are deleted are unknown: you may not list PersistentVolumeClaims" in sentences


def test_what_pulumi_refuses_of_a_namespace_names_the_way() -> None:
    gone = Change("delete", "team vision", "Namespace", "vision", "urn", effect=CloudEffect(protected=True))
    verdict = reviewed(outlook_of(base()), before=outlook_of(base()), changed=(gone,)).verdict
    refused = "Pulumi refuses to delete Namespace vision: it is protected (until its team has no `storage`)"
    assert refused in verdict.sentences


@pytest.mark.parametrize(("environment", "protected"), [("prod", {"a"}), ("dev", set[str]())])
def test_namespaces_with_claims_are_protected_in_production(environment: str, protected: set[str]) -> None:
    gpus = {"h100": {"guaranteed": 8}}
    teams = {"a": team(gpus=gpus, storage={"ck": {"size": "1Gi", "storageClass": "fs"}}), "b": team(gpus=gpus)}
    made = tenancy(stack(teams=teams, environment=environment))
    namespaces = [one for one in made.rendered.registrations if one.type.endswith(":Namespace")]
    assert {one.name.partition("-")[0] for one in namespaces if one.protect} == protected


# A review shows who has which role, and its verdict begins with what people gain and lose.


def with_members(people: Data | None = None, **members: Any) -> Data:
    sections = small()
    sections["teams"]["vision"]["members"] = members
    return {**sections, "people": people or {}}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"viewers": ["group:a"]}, "1 group gains read access in vision (group:a)"),
        ({"researchers": ["user:a", "user:b"]}, "2 users gain exec in vision (user:a, user:b)"),
        ({"leads": ["group:a"]}, "1 group gains Secrets and exec in vision (group:a)"),
        (
            {"researchers": ["group:a", "user:b", "serviceaccount:ci/robot"]},
            "3 people gain exec in vision (group:a, serviceaccount:ci/robot, user:b)",
        ),
    ],
)
def test_gained_access_comes_first_and_needs_review(members: Data, reason: str) -> None:
    review = reviewed(outlook_of(with_members(**members)), before=outlook_of(small()))
    assert review.verdict.title == "Review needed"
    assert review.verdict.sentences[0] == reason
    assert next(line for line in comment(review).splitlines() if line.startswith("- ")).startswith(f"- {reason[:12]}")


def test_lost_access_comes_first() -> None:
    before = outlook_of(with_members(leads=["group:a"], researchers=["user:rosa"]))
    verdict = reviewed(outlook_of(with_members(researchers=["group:a"])), before=before).verdict
    assert verdict.title == "OK"
    assert verdict.sentences[:2] == (
        "1 group loses Secrets in vision (group:a)",
        "1 user loses all access in vision (user:rosa)",
    )


def test_administrators_and_auditors_have_rights_in_the_cluster() -> None:
    now = outlook_of(with_members({"admins": ["group:a"], "auditors": ["group:b"]}))
    assert tuple(access(outlook_of(small()), now, "gain")) == (
        "1 group gains cluster-admin, Secrets and exec in the cluster (group:a)",
        "1 group gains read access in the cluster (group:b)",
    )


def test_cohort_members_gain_access_to_all_its_teams() -> None:
    sections = small()
    sections["cohorts"]["org"] = {"members": {"researchers": ["group:a"]}}
    [reason] = access(outlook_of(small()), outlook_of(sections), "gain")
    assert reason == f"1 group gains exec in {', '.join(sorted(sections['teams']))} (group:a)"


def test_renamed_people_change_no_access() -> None:
    before = outlook_of(with_members(researchers=["group:a"]))
    now = outlook_of(with_members({"names": {"scientists": "group:a"}}, researchers=["scientists"]))
    assert [*access(before, now, "gain"), *access(now, before, "lose")] == []


def test_people_are_listed_by_team_and_role() -> None:
    sections = with_members({"admins": ["group:platform"]}, leads=["user:rosa"], viewers=["group:a", "group:b"])
    review = reviewed(outlook_of(sections))
    rows = [tuple(cell.text for cell in row.cells) for row in tables(review)["people"].rows]
    assert rows == [
        ("whole cluster", "admin", "group:platform"),
        ("vision", "lead", "user:rosa"),
        ("vision", "viewer", "group:a, group:b"),
    ]
    assert "| **vision** | lead | user:rosa |" in comment(review)
    assert "People" not in comment(reviewed(outlook_of(small())))


def test_another_subject_is_another_robot() -> None:
    def with_subject(branch: str) -> Data:
        sections = small()
        robot = {"role": "researcher", "subject": f"repo:example/vision:ref:refs/heads/{branch}"}
        sections["teams"]["vision"]["serviceAccounts"] = {"ci": robot}
        provider = "arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com"
        return {**sections, "cluster": {**EKS, **PROVIDED, "identityProvider": provider}}

    before, now = outlook_of(with_subject("main")), outlook_of(with_subject("dev"))
    gained, lost = tuple(access(before, now, "gain")), tuple(access(now, before, "lose"))
    assert gained == (
        "1 service account gains exec in vision (serviceaccount:vision/ci (repo:example/vision:ref:refs/heads/dev))",
    )
    robot = "serviceaccount:vision/ci (repo:example/vision:ref:refs/heads/main)"
    assert lost == (f"1 service account loses all access in vision ({robot})",)


# A review lists the data of teams, and its verdict says what teams gain, lose and must end.


def with_data(bucket: str = "s3://ml-corpus/v3", **dataset: Any) -> Data:
    """The smallest stack, with a dataset that a job mounts."""
    sections = small()
    cluster = {**sections.get("cluster", {"cloud": "existing"})}
    cluster["provides"] = [*cluster.get("provides", []), "s3Volumes", "gcsVolumes", "blobVolumes"]
    return {**sections, "cluster": cluster, "datasets": {"corpus": {"bucket": bucket, "teams": ["vision"], **dataset}}}


def without_datasets() -> Data:
    return {**with_data(), "datasets": {}}


def mounted(sections: Data) -> Data:
    sections["teams"]["vision"]["training"] = {"train": job(datasets={"corpus": "/data"})}
    return sections


def cached(bucket: str = "s3://ml-corpus/v3") -> Data:
    """The same stack, with a cache of the dataset on the nodes of its GPU pool."""
    sections = mounted(with_data(bucket))
    sections["datasets"]["corpus"]["accelerate"] = {"cache": "40Gi", "flavor": "h100", "secret": "keys", "warm": True}
    return sections


def renamed() -> Data:
    sections = with_data()
    return {**sections, "datasets": {"text": sections["datasets"]["corpus"]}}


def scratch(*teams: str) -> Data:
    sections = small()
    for name in teams:
        sections["teams"][name]["storage"] = {"scratch": {"size": "1Ti"}}
    return sections


CORPUS = "corpus (s3://ml-corpus/v3)"
OTHER_PLACE = ("Team vision gains read of corpus (s3://ml-corpus/v4)", f"Team vision loses read of {CORPUS}")
MOVES = "Dataset corpus moves from s3://ml-corpus/v3 to s3://ml-corpus/v4: first end the pods of vision/job train, then"


@pytest.mark.parametrize(
    ("before", "now", "title", "sentences"),
    [
        (without_datasets(), with_data(), "Review needed", [f"Team vision gains read of {CORPUS}"]),
        (with_data(), with_data(writable=True), "Review needed", [f"Team vision gains write of {CORPUS}"]),
        (with_data(), without_datasets(), "OK", [f"Team vision loses read of {CORPUS}",
         "Dataset corpus is removed; its data stays in s3://ml-corpus/v3"]),
        (with_data(), renamed(), "OK", ["Dataset corpus is removed; its data stays in s3://ml-corpus/v3"]),
        (scratch("speech", "vision"), scratch("vision"), "OK",
         ["Storage scratch of speech is removed; its volume stays unless its class deletes it"]),
        (mounted(with_data()), mounted(with_data("s3://ml-corpus/v4")), "Review needed",
         [*OTHER_PLACE,
          (f"{MOVES} the claims of vision are replaced; or add the new place as another dataset, and remove this one"
           " later")]),
        (cached(), cached("s3://ml-corpus/v4"), "Review needed",
         [*OTHER_PLACE,
          ("Dataset corpus moves from s3://ml-corpus/v3 to s3://ml-corpus/v4, but Fluid does not move a cache: add the"
           " new place as another dataset, and remove this one")]),
    ],
    ids=["a dataset is gained", "writing is gained", "a dataset is removed", "a dataset is renamed",
         "storage of one of two teams is lost", "a dataset moves", "a dataset with a cache moves"],
)  # fmt: skip
def test_the_verdict_names_data(before: Data, now: Data, title: str, sentences: list[str]) -> None:
    verdict = reviewed(outlook_of(now), before=outlook_of(before)).verdict
    assert verdict.title == title
    words = ("gains", "loses", "Storage", "Dataset")
    assert [one for one in verdict.sentences if any(word in one for word in words)] == sentences


def test_each_claim_has_a_row_and_the_comment_lists_grants() -> None:
    review = reviewed(outlook_of(mounted(with_data())))
    (row,) = tables(review)["data"].rows
    assert [cell.text for cell in row.cells] == ["vision", "corpus", "s3://ml-corpus/v3", "read", DASH, "job train"]
    assert "Rights on data" in comment(review)


def test_rights_on_google_folders_name_the_principals() -> None:
    (right,) = rights_to_grant(load(Source(with_data("gs://ml-corpus/v3"))))
    assert right == (
        "Grant the ServiceAccounts vision/default and vision/workload of the cluster: role"
        " roles/storage.objectViewer on the managed folder gs://ml-corpus/v3/"
    )


def test_keys_of_another_service_are_listed_with_its_endpoint() -> None:
    (right,) = rights_to_grant(load(Source(with_data(endpoint="https://minio.example.com:9000"))))
    place = "s3://ml-corpus/v3 at https://minio.example.com:9000"
    assert right == f"Give the CSI driver s3.csi.aws.com in the cluster keys that can read {place}"


def test_a_cache_replaces_claims_and_lists_its_resources() -> None:
    review = reviewed(outlook_of(cached()), before=outlook_of(mounted(with_data())))
    assert review.verdict.title == "Review needed"
    ends = "first end the pods of vision/job train, then the claims of vision are replaced"
    assert f"Dataset corpus gets a cache: {ends}" in review.verdict.sentences
    (row,) = tables(review)["caches"].rows
    (cache,) = review.now.caches
    texts = [cell.text for cell in row.cells]
    assert texts[:2] == ["corpus", "alluxio"]
    assert texts[4] == "40Gi memory, loaded once created"
    assert texts[6] == f"{format_bytes(cache.memory)} ({cache.of_memory:.0%})"
    assert "Caches of datasets" in comment(review)


def stored(price: float | None = 0.5, **storage: Data) -> Data:
    """The smallest stack, with storage of a class whose price the stack may have."""
    sections = without_datasets()
    sections["teams"]["vision"]["storage"] = storage
    return {**sections, "prices": {"disks": {"gibMonth": price}} if price else {}}


DISK: Data = {"size": "100Gi", "storageClass": "disks"}


def test_storage_costs_are_in_tables_and_verdict() -> None:
    review = reviewed(outlook_of(stored(ck=DISK)), before=outlook_of(without_datasets()))
    all_ = tables(review)
    assert [column.title for column in all_["cost-by-team"].columns][-1] == "storage"
    costs = {line.cells[0].text: line.cells[-1] for line in all_["cost-by-team"].rows}
    assert {name: (cell.text, cell.was) for name, cell in costs.items() if cell.was} == {
        "vision": ("$50", "$0"),
        "all teams": ("$50", "$0"),
    }
    assert "$50" in {line.cells[-1].text for line in all_["cost-by-centre"].rows}
    place = [column.title for column in all_["data"].columns].index("monthly cost")
    assert [line.cells[place].text for line in all_["data"].rows] == ["$50"]
    assert "Monthly cost: always billed +$50, guarantees +$50, limits +$50" in review.verdict.sentences


def test_storage_without_price_makes_its_sums_unknown() -> None:
    unpriced = stored(None, ck={"size": "1Gi"})
    known, unknown = (tables(reviewed(outlook_of(sections))) for sections in (stored(ck=DISK), unpriced))
    costs = {line.cells[0].text: line.cells[-1].text for line in unknown["cost-by-team"].rows}
    assert {name for name, text in costs.items() if text == "unknown"} == {"vision", "all teams"}
    assert [line.cells[2].text for line in unknown["cost-by-team"].rows] == [
        line.cells[2].text for line in known["cost-by-team"].rows
    ]


def test_without_storage_no_table_has_a_column_for_it() -> None:
    all_ = tables(reviewed(outlook_of(with_data())))
    assert "storage" not in {column.title for column in all_["cost-by-team"].columns}
    assert "monthly cost" not in {column.title for column in all_["data"].columns}


def test_report_shows_snapshot_schedules() -> None:
    sections = with_data()
    sections["cluster"]["provides"].append("volumeSnapshots")
    taken = {"schedule": "0 3 * * *", "keep": 3, "class": "csi"}
    sections["teams"]["vision"]["storage"] = {"ck": {"size": "1Gi", "snapshots": taken}, "tmp": {"size": "1Gi"}}
    rows = tables(reviewed(outlook_of(sections)))["data"].rows
    places = {row.cells[1].text: row.cells[2].text for row in rows}
    assert places["ck"] == "default StorageClass; snapshots 0 3 * * * UTC, 3 kept, cost unknown"
    assert places["tmp"] == "default StorageClass"


# Hosts by which clients outside of the cluster reach servers, in page, comment and terminal output.


HOST = "api.ml.example.com"


def exposed(**expose: object) -> Data:
    sections = small()
    network = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"], "reach": "public"}}
    api = server(gpus=2, expose={"host": HOST, "gateway": "infra/edge", **expose})
    sections["teams"]["vision"] |= {"network": network, "serving": {"api": api}}
    return sections


def shown(review: Review, width: int = 120) -> list[str]:
    console = Console(file=StringIO(), width=width, record=True)
    show_hosts(console, review.now)
    return console.export_text().splitlines()


def test_without_hosts_nothing_is_shown() -> None:
    review = reviewed(outlook_of(small()))
    assert "ways-in" not in tables(review)
    assert shown(review) == []
    assert "Reached from outside" not in page(review) + comment(review)


def test_host_is_shown_with_its_reach() -> None:
    review = reviewed(outlook_of(exposed(reach="public", anonymous=True)))
    assert well_formed(page(review))
    assert "Reached from outside of the cluster" in Page(page(review)).words
    assert f"| {HOST} | **public** |" in comment(review)
    assert any(line.split()[:3] == ["vision", HOST, "public"] for line in shown(review))
    assert all(len(line) <= 80 for line in shown(review, 80))
    assert any("public" in line and HOST in line for line in shown(review, 80))


def test_a_host_that_becomes_public_is_a_difference() -> None:
    review = reviewed(outlook_of(exposed(reach="public", anonymous=True)), before=outlook_of(exposed()))
    changed = {one.column: one for one in differences(tables(review).values()) if one.table.startswith("Reached")}
    reach = changed["reach"]
    assert (reach.was, reach.now) == ("internal", "public")


# What teams used in a month, beside what they are promised.


def line(team: str, used: object, price: float | None) -> dict[str, object]:
    return {"team": team, "flavor": "a100", "used": used, "usdPerGpuHour": price, "costCenter": None}


def month(folder: Path, *lines: object, stack: str = "prod-aws") -> Path:
    file = folder / "used.json"
    file.write_text(json.dumps({"stack": stack, "month": "2026-10", "teams": lines, "jobs": []}))
    return file


def column(table: Table) -> dict[str, str]:
    assert table.columns[-1].title == "used in 2026-10"
    return {line.cells[0].text: line.cells[-1].text for line in table.rows}


def test_each_team_and_cost_center_has_what_it_used(tmp_path: Path) -> None:
    file = month(tmp_path, line("ml-research", 100, 3.5), line("ml-research", 10, 2.0), line("ml-old", 1, 4.0))
    shown = tables(review(stack_of_repository("prod-aws"), ROOT, used=read_used(file, "prod-aws")))
    teams = column(shown["cost-by-team"])
    assert teams["ml-research"] == "$370"
    assert teams["ml-serving"] == "$0"
    assert teams["ml-old"] == "$4"
    assert teams["all teams"] == "$374"
    assert column(shown["cost-by-centre"])["rd-001"] == "$370"
    (gone,) = (one for one in shown["cost-by-team"].rows if one.cells[0].text == "ml-old")
    assert gone.cells[1].text == "not in the stack"


def test_unknown_price_makes_used_sums_lower_bounds(tmp_path: Path) -> None:
    file = month(tmp_path, line("ml-research", 100, None), line("ml-research", 10, 2.0), line("ml-serving", 0, None))
    found = read_used(file, "prod-aws")
    assert found == Used("2026-10", {"ml-research": Usd(20, ("ml-research",)), "ml-serving": Usd()})
    sums = {"$0": ["ml-serving", "ml-production"], "at least $20": ["ml-serving", "ml-research"]}
    assert {text: str(found.of(teams)) for text, teams in sums.items()} == {text: text for text in sums}


def test_a_review_without_a_month_has_no_column_of_it() -> None:
    shown = tables(review(stack_of_repository("prod-aws"), ROOT))
    assert shown["cost-by-team"].columns[-1].title == "at limit"


def test_another_file_is_refused_by_place_and_fix(tmp_path: Path) -> None:
    fix = "write it by `tenancy cost STACK --month YYYY-MM -o json`"
    wrong = month(tmp_path, line("ml-research", "many", None))
    with pytest.raises(ConsoleError, match=rf"used\.json: not a month's GPU-hours: teams.0.used: .* number.*; {fix}"):
        read_used(wrong, "prod-aws")
    with pytest.raises(ConsoleError, match=r"used\.json: of stack 'dev', not of 'prod-aws'"):
        read_used(month(tmp_path, stack="dev"), "prod-aws")
    with pytest.raises(ConsoleError, match=r"absent\.json: cannot read the file: No such file or directory"):
        read_used(tmp_path / "absent.json", "prod-aws")
    wrong.write_text("no JSON")
    with pytest.raises(ConsoleError, match=r"used\.json: not a month's GPU-hours: Invalid JSON"):
        read_used(wrong, "prod-aws")


@pytest.mark.parametrize(
    ("before", "now", "runs", "refused"),
    [
        ("1.35", "1.36", "", ""),
        ("1.35", "1.34", "",
         "Kubernetes 1.35 to 1.34 is a downgrade, which EKS refuses; set cluster.create.version: 1.35"),
        ("1.34", "1.36", "", "Kubernetes 1.34 to 1.36 skips 1.35, and EKS upgrades one minor version at a time; set"),
        ("1.34", "1.36", "v1.35.2-eks-1", ""),
        ("1.35", "1.35", "v1.36.1", "Kubernetes 1.36 to 1.35 of the running cluster is a downgrade, which EKS refuses"),
        (None, "1.36", "", ""),
    ],
)  # fmt: skip
def test_versions_go_up_one_minor_at_a_time(before: str | None, now: str, runs: str, refused: str) -> None:
    created = outlook_of(stack(cluster=CREATED))
    base = replace(created, kubernetes=before) if before else replace(created, cluster="")
    verdicts = reviewed(replace(created, kubernetes=now), before=base, runs=runs).verdict
    found = [sentence for sentence in verdicts.sentences if sentence.startswith("Kubernetes")]
    assert (verdicts.title == "Blocked", len(found)) == (bool(refused), int(bool(refused)))
    assert not refused or found[0].startswith(refused)


def test_the_end_of_support_comes_first() -> None:
    seen = reviewed(outlook_of(stack(cluster=CREATED)), support="Kubernetes 1.33: standard support ended").verdict
    assert (seen.title, seen.sentences[0]) == ("OK, with findings", "Kubernetes 1.33: standard support ended")
