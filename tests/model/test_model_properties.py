"""Promises that hold for every stack, and checks that survive every stack."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import pytest
from builders import EXISTING, GPU, Data, errors, pool, team
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_tenancy.model.checks import coherence_problems
from gpu_tenancy.model.load import draft, load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
from gpu_tenancy.model.source import Source

Drawn: TypeAlias = st.SearchStrategy[Data]
GROUPS = ["g1", "g2", "g3"]
TEAMS = ["a", "b", "c", "d"]
SLOW = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def coherent(draw: st.DrawFn) -> Data:
    """Trees of up to four levels whose guarantees add up, and just the nodes that hold them, or a few more."""
    names = GROUPS[: draw(st.integers(0, 3))]
    parents = {name: draw(st.sampled_from(["org", *names[:index]])) for index, name in enumerate(names)}
    flavors = ["h100", "l4"][: draw(st.integers(1, 2))]
    cohorts: Data = {"org": {}, **{name: {"parent": parent, "gpus": {}} for name, parent in parents.items()}}
    teams: Data = {
        name: team(cohort=draw(st.sampled_from(["org", *names])), gpus={}, gangs={})
        for name in TEAMS[: draw(st.integers(1, 4))]
    }
    pools: Data = {"cpu": pool("m7i.8xlarge", 2)}
    machines = {"h100": ("p5.48xlarge", 8), "l4": ("g6.12xlarge", 4)}
    for flavor in flavors:
        below: dict[str, list[int]] = {name: [] for name in cohorts}
        gangs = 0
        for drawn_team in teams.values():
            guaranteed = draw(st.integers(0, 12))
            drawn_team["gpus"][flavor] = {"guaranteed": guaranteed, "limit": guaranteed + draw(st.integers(0, 20))}
            below[drawn_team["cohort"]].append(guaranteed)
            if draw(st.booleans()):
                gangs += (gang := draw(st.integers(0, 3)))
                drawn_team["gangs"][flavor] = {"guaranteed": gang}
        for name in reversed(names):
            guaranteed = sum(below[name]) + draw(st.integers(0, 5))
            if draw(st.booleans()):
                cohorts[name]["gpus"][flavor] = {
                    "guaranteed": guaranteed,
                    "limit": guaranteed + draw(st.integers(0, 9)),
                }
            else:
                guaranteed = sum(below[name])
            below[parents[name]].append(guaranteed)
        machine, size = machines[flavor]
        pools[flavor] = pool(machine, -(-(sum(below["org"]) + gangs) // size) + draw(st.integers(0, 2)))
    return {"cluster": EXISTING, "pools": pools, "cohorts": cohorts, "teams": teams}


@pytest.mark.slow
@SLOW
@given(coherent())
def test_quotas_of_a_flavor_add_up_to_its_supply(sections: Data) -> None:
    stack = load(Source(sections))
    tree, queues = Tree(stack), plan(stack).queues
    for name, flavor in tree.flavors.items():
        for resource, supply in flavor.capacity.items():
            nominal = [
                quota.nominal
                for owner in (*queues.cohorts, *(queue.spec for queue in queues.cluster_queues))
                for pair, quota in owner.quotas.items()
                if pair == (name, resource)
            ]
            gangs = sum(gang.capability.get(resource, 0) for gang in queues.gang_queues if gang.flavor == name)
            assert min(nominal) >= 0
            assert sum(nominal) + gangs == supply


@pytest.mark.slow
@SLOW
@given(coherent())
def test_a_namespaces_quota_admits_all_that_its_queues_admit(sections: Data) -> None:
    stack = load(Source(sections))
    tree, made = Tree(stack), plan(stack)
    for queue in made.queues.cluster_queues:
        for (flavor, resource), quota in queue.spec.quotas.items():
            if resource == GPU and flavor != "cpu":
                limit = sections["teams"][queue.name]["gpus"][flavor]["limit"]
                assert quota.nominal + (quota.borrowing_limit or 0) == limit
    for team_plan in made.teams:
        name = team_plan.namespace.name
        admitted_amounts = admitted(tree.team_shares[name], gangs_of(stack.teams[name], tree.flavors))
        hard = team_plan.namespace.quotas[0].hard
        assert all(hard[f"requests.{resource}"] >= amount for resource, amount in admitted_amounts.items())


@settings(max_examples=30, deadline=None)
@given(coherent())
def test_every_flavor_of_a_queue_has_the_same_resources_in_the_same_order_as_kueue_demands(sections: Data) -> None:
    queues = plan(load(Source(sections))).queues
    for owner in (*queues.cohorts, *(queue.spec for queue in queues.cluster_queues)):
        for group in owner.groups:
            assert len({tuple(flavor.resources) for flavor in group.flavors}) == 1


def keys(optional: Mapping[str, Any], **required: Any) -> Drawn:
    """A section: some of its keys, and those that must be there."""
    return st.fixed_dictionaries(required, optional=dict(optional))


def named(values: Any, most: int = 2) -> Drawn:
    return st.dictionaries(NAMES, values, max_size=most)


NAMES: Final = st.sampled_from(["a", "b", "org", "h100", "cpu", "gone"])
COUNTS: Final = st.integers(0, 40)
SHARE: Final = keys({"limit": COUNTS}, guaranteed=COUNTS)
QUOTA: Final = keys({"guaranteed": COUNTS, "cpu": SHARE, "memory": SHARE})
WORKLOAD: Final = {"flavor": NAMES, "gpus": st.integers(0, 9), "cpu": COUNTS, "priority": NAMES}
IMAGE: Final = st.just("x:1")
POOL: Final = keys(
    {
        "flavor": NAMES,
        "sharing": st.sampled_from(
            [{"timeSlicing": 4}, {"mig": {"profile": "1g.10gb"}}, {"mig": {"profile": "9g.1gb"}}]
        ),
        "resource": st.sampled_from(["amd.com/gpu", GPU]),
    },
    machine=st.sampled_from(["p5.48xlarge", "m7i.8xlarge", "p99.metal"]),
    nodes=st.integers(0, 4),
)
ANY_TEAM: Final = keys(
    {
        "gpus": named(SHARE),
        "quota": named(QUOTA),
        "gangs": named(SHARE),
        "cohort": NAMES,
        "queue": NAMES,
        "priority": NAMES,
        "objects": keys({"pods": COUNTS, "storage": COUNTS, "services": COUNTS}),
        "compute": keys({"requests": keys({"cpu": COUNTS})}),
        "serving": named(keys(WORKLOAD, image=IMAGE, replicas=st.integers(1, 9))),
        "training": named(
            keys({**WORKLOAD, "scheduler": st.just("volcano"), "workers": st.integers(1, 9)}, image=IMAGE)
        ),
        "surprise": st.just(1),
    },
    owner=st.just("x"),
    costCenter=st.just("y"),
)
ANY_STACK: Final = keys(
    {
        "cohorts": named(keys({"parent": NAMES, "gpus": named(SHARE)}), 4),
        "fairness": st.sampled_from(["even", "hierarchical"]),
        "priorities": named(st.integers(0, 9)),
        "datasets": named(keys({"teams": st.lists(NAMES)}, bucket=st.just("s3://b")), 1),
        "cluster": st.just({"cloud": "existing", "autoscaler": False}),
    },
    pools=named(POOL, 3),
    teams=named(ANY_TEAM, 3),
)


@pytest.mark.slow
@SLOW
@given(ANY_STACK)
def test_any_stack_is_either_refused_in_sentences_or_planned(sections: Data) -> None:
    problems = errors(sections)
    assert all(": " in message and "; " in message for message in problems)
    if not problems:
        plan(load(Source(sections)))


@pytest.mark.slow
@SLOW
@given(ANY_STACK)
def test_the_checks_survive_any_stack_whether_or_not_its_problems_are_shown(sections: Data) -> None:
    read = draft(Source(sections))
    assert read.stack is None or list(coherence_problems(read.stack)) is not None


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | named(inner, 3),
    max_leaves=6,
)
SECTIONS: Final = st.sampled_from(["pools", "teams", "cohorts", "datasets", "cluster", "priorities"])


@pytest.mark.slow
@SLOW
@given(cast("Drawn", st.dictionaries(SECTIONS, JSON)))
def test_any_section_is_refused_with_errors_or_planned(sections: Data) -> None:
    if not errors(sections):
        plan(load(Source(sections)))
