"""A review recognises teams that are renamed, split, merged, moved or removed, and refuses to lose claims."""

from copy import deepcopy

import pytest
from builders import Data, stack, team
from components_builders import tenancy
from review_pages import outlook_of, reviewed, small

from gpu_tenancy.explain.proposal import Effect
from gpu_tenancy.review.changes import Change
from gpu_tenancy.review.changes import Effect as CloudEffect
from gpu_tenancy.review.review import Verdict

INSTEAD = "; to keep what runs, first deploy a change that only adds the new, let people move, then remove the old"
ENDS = ": its namespace is deleted with its workloads, and its metrics end under this name"
MEMBERS = {"researchers": ["group:vision"]}
CLAIMS = {"ck": {"size": "1Ti", "storageClass": "fs"}, "home": {"size": "512Gi", "storageClass": "fs"}}


def base(**of_vision: object) -> Data:
    sections = small()
    sections["teams"]["vision"] |= {"owner": "ada", "members": MEMBERS, **of_vision}
    return sections


def after(removed: list[str], **added: Data) -> Data:
    """The base with teams removed and others added, which are the first removed one but for their changes."""
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
        (
            after(["vision"], sight={}),
            f"Team vision is removed, likely renamed to sight (same owner, cost center, members, GPUs){ENDS}{INSTEAD}",
        ),
        (
            after(["vision"], sight={"owner": "bob", "costCenter": "other"}),
            f"Team vision is removed, likely renamed to sight (same members, GPUs){ENDS}{INSTEAD}",
        ),
        (
            after(
                ["vision"], **{name: {"gpus": {"h100": {"guaranteed": 2, "limit": 4}}} for name in ("left", "right")}
            ),
            f"Team vision is removed, likely split into left, right (same owner, cost center, members){ENDS}{INSTEAD}",
        ),
        (
            after(["vision"], other={"owner": "x", "members": {}, "costCenter": "x"}),
            f"Team vision is removed{ENDS}",
        ),
        (after(["vision"]), f"Team vision is removed{ENDS}"),
    ],
)
def test_a_removed_team_is_named_with_its_likely_successor(now: Data, says: str) -> None:
    verdict = judged(now, base())
    assert verdict.title == "Review needed"
    assert [one for one in verdict.sentences if "is removed" in one and "(had" not in one] == [says]


def test_two_removed_teams_with_one_successor_are_merged() -> None:
    before = base()
    before["teams"]["speech"] |= {
        "owner": "ada",
        "members": MEMBERS,
        "costCenter": before["teams"]["vision"]["costCenter"],
    }
    now = deepcopy(before)
    now["teams"]["both"] = {**now["teams"].pop("vision"), "gpus": {"h100": {"guaranteed": 4, "limit": 6}}}
    del now["teams"]["speech"]
    merged = [one for one in judged(now, before).sentences if "likely" in one]
    assert [one.partition(" (")[0] for one in merged] == [
        f"Team {name} is removed, likely merged into both" for name in ("speech", "vision")
    ]


def test_a_team_that_moves_in_the_tree_keeps_its_namespace_and_is_reviewed() -> None:
    now = base(cohort="org")
    verdict = judged(now, base())
    assert verdict.title == "Review needed"
    (says,) = (one for one in verdict.sentences if "moves" in one)
    assert says.startswith("Team vision moves from cohort lab to org: namespace, claims and metrics stay")


@pytest.mark.parametrize(
    ("before", "effect", "lost"),
    [
        (base(storage=CLAIMS), None, "2 claims (1536Gi: ck, home)"),
        (base(), Effect(claims={"vision": {"mine": 2**30}}), "1 claim (1Gi: mine)"),
        (
            base(storage=CLAIMS),
            Effect(claims={"vision": {"ck": 2**40, "mine": 2**39}}),
            "3 claims (2Ti: ck, home, mine)",
        ),
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
    effect = CloudEffect(protected=True)
    gone = Change("delete", "team vision", "Namespace", "vision", "urn", effect=effect)
    verdict = reviewed(outlook_of(base()), before=outlook_of(base()), changed=(gone,)).verdict
    assert (
        "Pulumi refuses to delete Namespace vision: it is protected (until its team has no `storage`)"
        in verdict.sentences
    )


@pytest.mark.parametrize(("environment", "protected"), [("prod", {"a"}), ("dev", set[str]())])
def test_namespaces_with_claims_are_protected_in_production(environment: str, protected: set[str]) -> None:
    gpus = {"h100": {"guaranteed": 8}}
    teams = {"a": team(gpus=gpus, storage={"ck": {"size": "1Gi", "storageClass": "fs"}}), "b": team(gpus=gpus)}
    made = tenancy(stack(teams=teams, environment=environment))
    namespaces = [one for one in made.rendered.registrations if one.type.endswith(":Namespace")]
    assert {one.name.partition("-")[0] for one in namespaces if one.protect} == protected
