"""Reviews for tests: made by hand, and by the real functions from stacks and their bases."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from builders import EXISTING, Data, pool, server, team
from cli_builders import Project
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.engine.project import preview
from gpu_tenancy.explain.proposal import Affected, Effect, Exceeded
from gpu_tenancy.explain.proposed import SmallerPool
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.project import read_stack
from gpu_tenancy.model.source import Source
from gpu_tenancy.review.build import review
from gpu_tenancy.review.changes import Change, FieldChange, changes
from gpu_tenancy.review.review import Comparison, Real, Review, RuleLine, Rules
from gpu_tenancy.review.verdict import verdict

PINNED = RuleLine(
    "workloads", "image-pinned", "high", "mandatory", "broken", "Job ml-research/nightly",
    "Job ml-research/nightly: image pytorch has no tag; set one, such as pytorch:2.9-cuda13",
)  # fmt: skip
SURGE = RuleLine(
    "workloads", "surge-room", "medium", "advisory", "broken", "Deployment ml-serving/model-server",
    "Deployment ml-serving/model-server: peak of 50 GPUs equals the limit; raise the limit for a rollout surge",
)  # fmt: skip
PRIVATE = RuleLine(
    "clouds", "nodes-private", "high", "mandatory", "exempted", "NodeGroup a100",
    "NodeGroup a100: has public addresses; exempted until 2026-12-03: the old registry needs internet access",
)  # fmt: skip
RULES = Rules((PINNED, SURGE, PRIVATE), 61, ("workloads 0.1.0", "clouds 0.1.0"), {"mandatory": 50, "advisory": 14})

NASTY = "a|b `c` <b>&amp; *d* _e_ [f](g) @all #12 :tada: ~~h~~"


def small() -> Data:
    """Three teams, two of them in a cohort, one without a guarantee, and a server."""
    return {
        "environment": "test",
        "cluster": dict(EXISTING),
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=2), "l4": pool("g6.12xlarge", 2)},
        "cohorts": {"org": {}, "lab": {"parent": "org", "gpus": {"h100": {"guaranteed": 8, "limit": 12}}}},
        "teams": {
            "vision": team(cohort="lab", gpus={"h100": {"guaranteed": 4, "limit": 8}}, serving={"api": server(gpus=2)}),
            "speech": team(costCenter="rd-002", cohort="lab", gpus={"h100": {"guaranteed": 0, "limit": 8}}),
            "search": team(costCenter="pr-001", gpus={"l4": {"guaranteed": 2, "limit": 6}}),
        },
    }


def many(count: int) -> Data:
    """Teams in ten cohorts, each with two flavors, every fifth with a server."""

    def numbered(number: int) -> Data:
        other = {"a100": {"guaranteed": 1, "limit": 8}} if number % 2 else {"l4": {"guaranteed": 2, "limit": 6}}
        return team(
            owner=f"people-{number % 17}",
            costCenter=f"cc-{number % 40:03}",
            cohort=f"division-{number % 10}",
            gpus={"h100": {"guaranteed": 2, "limit": 16}, **other},
            serving={} if number % 5 else {"api": server(flavor="h100", replicas={"min": 1, "max": 2})},
        )

    return {
        "cluster": dict(EXISTING),
        "pools": {
            "cpu": pool("m7i.8xlarge", 60),
            "h100": pool(nodes=100),
            "a100": pool("p4de.24xlarge", 60),
            "l4": pool("g6.12xlarge", 120),
        },
        "cohorts": {"org": {}} | {f"division-{number}": {"parent": "org"} for number in range(10)},
        "teams": {f"team-{number:03}": numbered(number) for number in range(count)},
    }


def outlook_of(sections: Data) -> StackOutlook:
    return outlook(load(Source(sections)))


def reviewed(  # noqa: PLR0913 - the optional parts of a review
    now: StackOutlook,
    *,
    stack: str = "test",
    before: StackOutlook | None = None,
    changed: tuple[Change, ...] = (),
    rules: Rules | None = None,
    real: Real | None = None,
    effect: Effect | None = None,
    where: dict[str, str] | None = None,
    notes: tuple[str, ...] = (),
    runs: str = "",
    support: str = "",
) -> Review:
    comparison = Comparison("origin/main", "abc1234", before, notes) if before or changed or notes else None
    result = verdict(now, comparison, changed, rules, real=real, effect=effect, runs=runs, support=support)
    return Review(stack, 99, now, result, comparison, changed, rules, real, where or {}, effect)


CHANGES = (
    Change("delete", "team vision", "Job", "vision/nightly", "urn:nightly"),
    Change("replace", "pool h100", "NodeGroup", "cluster-pool-h100", "urn:h100", (FieldChange("instanceTypes.0",
     "p5.4xlarge", "p5.48xlarge", replaces=True), )),
    Change("create", "team search", "Namespace", "search", "urn:search"),
    Change("create", "team search", "NetworkPolicy", "search/allow-dns", "urn:dns"),
    Change("create", "team search", "NetworkPolicy", "search/default-deny", "urn:deny"),
    Change("update", "team speech", "ClusterQueue", "speech", "urn:speech",
     (FieldChange("spec.resourceGroups.0.flavors.1.resources.2.borrowingLimit", "4", "8"), FieldChange("spec.token",
     "", "[secret]"))),
)  # fmt: skip

EFFECT = Effect(
    preempted=(
        Affected("vision/pretrain", "vision", {"h100": 16}, 31, by="speech/asr"),
        Affected("vision/<eval>", "vision", {"h100": 2}, 31, by="speech/asr", again=True),
    ),
    deleted=(Affected("old/sweep", "old", {"l4": 4}, 31, why="namespace old is deleted"),),
    admitted=(Affected("speech/asr", "speech", {"": 8}, 31),),
    delayed=(Affected("search/index", "search", {"": 4}, 31, why="insufficient quota in l4"),),
    exceeded=(Exceeded("ClusterQueue search", "nvidia.com/gpu of l4", "6", "4"),),
    pods_on_removed_flavors={"a100": ("vision/pretrain-0", "vision/pretrain-1")},
    smaller_pools=(SmallerPool("l4", 1, 3, ("old/sweep-0", "old/sweep-1", "search/index-0")),),
    not_simulated=("not simulated in the tree of search: topologies",),
    running=7,
)


def full() -> Review:
    """A review with all parts: a base, findings of all kinds, deletions, an unknown price, special characters."""
    before = small()
    before["teams"]["speech"]["gpus"]["h100"]["limit"] = 4
    del before["teams"]["search"]
    now = small()
    now["pools"]["h100"] |= {"capacity": "spot"}
    now["prices"] = {"p5.48xlarge": {}}
    return reviewed(
        outlook_of(now),
        before=outlook_of(before),
        changed=CHANGES,
        rules=Rules((*RULES.lines, replace(SURGE, says=NASTY)), RULES.held, RULES.packs, RULES.levels),
        where={"team vision": "stacks/Pulumi.test.yaml:12", "pool h100": "stacks/Pulumi.test.yaml:4"},
        notes=(NASTY,),
        effect=EFFECT,
    )


def bare() -> Review:
    """A review with the fewest parts: no base, no policy pack, no price."""
    sections = small()
    del sections["teams"]["vision"]["serving"], sections["cohorts"]
    for sections_of_team in sections["teams"].values():
        sections_of_team.pop("cohort", None)
    now = outlook_of(sections)
    return reviewed(replace(now, supply=tuple(replace(supply, price=None) for supply in now.supply)))


@cache
def against(name: str, change: Callable[[Data], None]) -> Review:
    """A stack of the project, compared by the real functions with an earlier version."""
    found = stack_of_repository(name)
    sections = deepcopy(dict(read_stack(name).sections))
    change(sections)
    with TemporaryDirectory() as folder:
        project = Project.at(Path(folder, name))
        project.write(name, sections)
        earlier = preview(name, project.folder)
    done = review(found, ROOT)
    before = outlook(earlier.stack)
    differences = changes(earlier.rendered, found.rendered, [*found.stack.pools, *earlier.stack.pools])
    comparison = Comparison("origin/main", "abc1234", before, ())
    result = verdict(done.now, comparison, differences, None)
    # Line numbers change with each edit of the stack's file and would change the goldens.
    return replace(done, comparison=comparison, changes=differences, verdict=result, where={})


def earlier_local(sections: Data) -> None:
    """Base: limit of research 24, guarantee of serving 40, no team ml-experiments."""
    teams = sections["teams"]
    del teams["ml-experiments"]
    sections["datasets"]["corpus"]["teams"] = ["ml-research"]
    teams["ml-research"]["gpus"]["a100"]["limit"] = 24
    teams["ml-research"]["quota"]["a100"]["cpu"] = {"guaranteed": 24, "limit": 30}
    teams["ml-research"]["training"]["nightly"]["workers"] = 3
    teams["ml-serving"]["gpus"]["l4"] = {"guaranteed": 40, "limit": 40}
    teams["ml-serving"]["serving"]["model-server"]["replicas"]["max"] = 40


def earlier_aws(sections: Data) -> None:
    """The same, with fewer L4 nodes and a team that was removed later."""
    earlier_local(sections)
    sections["pools"]["l4"]["nodes"]["max"] = 11
    sections["teams"]["ml-retired"] = {
        "owner": "research",
        "costCenter": "rd-009",
        "cohort": "research",
        "gpus": {"a100": {"guaranteed": 8, "limit": 8}},
    }


def local() -> Review:
    """The review whose page and comment are goldens."""
    return against("local", earlier_local)


def prod_aws() -> Review:
    """A review of a stack with a cluster of its own."""
    return against("prod-aws", earlier_aws)
