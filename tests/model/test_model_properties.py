"""Properties of every stack."""

from collections.abc import Mapping
from itertools import product
from typing import Any, Final, TypeAlias, cast

import pytest
from builders import EXISTING, GPU, Data, errors, h100, planned, pool, stack, stack_of, team, tree_of
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpu_tenancy.base.quantity import CPU
from gpu_tenancy.kueue import PodSet, Step, Workload
from gpu_tenancy.model.checks import coherence_problems
from gpu_tenancy.model.load import draft
from gpu_tenancy.model.outlook.shares import even_amounts
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.queues import cohort_of_queue, cohort_parents, cohort_weight
from gpu_tenancy.model.plan.shares import Measure, Tree, admitted, gangs_of
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.scenes import busy
from gpu_tenancy.simulation.stage import Moment, play

Drawn: TypeAlias = st.SearchStrategy[Data]
GROUPS = ["g1", "g2", "g3"]
TEAMS = ["a", "b", "c", "d"]
MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def coherent(draw: st.DrawFn) -> Data:
    """Trees of up to four levels with consistent guarantees, and enough nodes for them, or a few more."""
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
@MANY
@given(coherent())
def test_quotas_of_a_flavor_add_up_to_its_supply(sections: Data) -> None:
    stack = stack_of(sections)
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
@MANY
@given(coherent())
def test_a_namespaces_quota_admits_all_that_its_queues_admit(sections: Data) -> None:
    stack = stack_of(sections)
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
def test_flavors_of_a_queue_have_the_same_resources(sections: Data) -> None:
    queues = plan(stack_of(sections)).queues
    for owner in (*queues.cohorts, *(queue.spec for queue in queues.cluster_queues)):
        for group in owner.groups:
            assert len({tuple(flavor.resources) for flavor in group.flavors}) == 1


def keys(optional: Mapping[str, Any], **required: Any) -> Drawn:
    """A section: some of the optional keys, and all required ones."""
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
@MANY
@given(ANY_STACK)
def test_any_stack_is_either_refused_in_sentences_or_planned(sections: Data) -> None:
    problems = errors(sections)
    assert all(": " in message and "; " in message for message in problems)
    if not problems:
        plan(stack_of(sections))


@pytest.mark.slow
@MANY
@given(ANY_STACK)
def test_checks_survive_any_stack(sections: Data) -> None:
    read = draft(Source(sections))
    assert read.stack is None or list(coherence_problems(read.stack)) is not None


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | named(inner, 3),
    max_leaves=6,
)
SECTIONS: Final = st.sampled_from(["pools", "teams", "cohorts", "datasets", "cluster", "priorities"])


@pytest.mark.slow
@MANY
@given(cast("Drawn", st.dictionaries(SECTIONS, JSON)))
def test_any_section_is_refused_with_errors_or_planned(sections: Data) -> None:
    if not errors(sections):
        plan(stack_of(sections))


# Trees of groups with even fairness.

H100 = Measure("h100", GPU)
CPUS = Measure("cpu", CPU)
Scenario: TypeAlias = tuple[Tree, tuple[Moment, ...]]
SLOW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def trees(draw: st.DrawFn, times: int = 1) -> Data:
    """Teams in nested groups, in a third and beside them, on 16 H100s (`times` as many) and 400 CPUs."""
    inside = {"a": "left", "b": "left", "c": "inner", "d": "right", "e": "org"}
    teams: Data = {}
    for name, cohort in inside.items():
        sure = times * draw(st.integers(0, 3))
        weight = draw(st.sampled_from([1, 1, 2, 0.5]))
        teams[name] = team(cohort=cohort, gpus=h100(sure, sure + times * draw(st.integers(0, 8))), weight=weight)
    cohorts: Data = {"org": {}}
    sure = {name: teams[name]["gpus"]["h100"]["guaranteed"] for name in teams}
    needs = {"inner": sure["c"], "right": sure["d"], "left": sure["a"] + sure["b"]}
    for group, parent in (("inner", "left"), ("right", "org"), ("left", "org")):
        least = needs[group]
        cohorts[group] = {"parent": parent}
        kind = draw(st.sampled_from(["none", "limit", "weight", "own"]))
        if kind == "limit":
            cohorts[group]["gpus"] = h100(least, least + times * draw(st.integers(0, 6)))
        if kind == "weight":
            cohorts[group]["weight"] = draw(st.sampled_from([1, 3]))
        if kind == "own":
            least += times * draw(st.integers(0, 2))
            cohorts[group]["gpus"] = h100(least, least)
            none = {"guaranteed": 0, "limit": 0}
            if draw(st.integers(0, 3)):  # Else it can borrow CPUs, and is refused.
                cohorts[group]["quota"] = {"cpu": {"cpu": none, "memory": none}}
        if group == "inner":
            needs["left"] += least
    cpu = {"cpu": 400, "memory": "4000Gi", "nodes": times}
    sections = stack(fairness="even", pools={"h100": pool(nodes=2 * times), "cpu": cpu}, teams=teams)
    return {**sections, "cohorts": {name: cohorts[name] for name in ("org", "left", "inner", "right")}}


@pytest.mark.slow
@SLOW
@given(trees())
def test_quotas_add_up_to_the_supply(sections: Data) -> None:
    assume(errors(sections) == [])
    queues = planned(sections).queues
    for flavor, supply in tree_of(sections).flavors.items():
        for resource, amount in supply.capacity.items():
            owners = (*queues.cohorts, *(queue.spec for queue in queues.cluster_queues))
            nominal = [owner.quotas[flavor, resource].nominal for owner in owners if (flavor, resource) in owner.quotas]
            assert (min(nominal) >= 0, sum(nominal)) == (True, amount)


@st.composite
def scenarios(draw: st.DrawFn, *, cpus: bool = True) -> Scenario:
    """A valid tree, and the result of jobs of one GPU or 100 CPUs that are submitted and end in any order."""
    sections = draw(trees())
    assume(errors(sections) == [])
    found = tree_of(sections)
    on_gpus = PodSet({GPU: 1}, flavors=frozenset({"h100"}))
    on_cpus = PodSet({CPU: 100_000}, flavors=frozenset({"cpu"}))
    kinds = [on_gpus, on_gpus, on_gpus, *([on_cpus] if cpus else [])]
    steps: list[tuple[str, Step]] = []
    there: list[str] = []
    for number in range(draw(st.integers(1, 14))):
        if there and draw(st.integers(0, 5)) == 0:
            steps.append(("", Step(finish=(there.pop(draw(st.integers(0, len(there) - 1))),))))
            continue
        name, kind = draw(st.sampled_from("abcde")), draw(st.sampled_from(kinds))
        came = [Workload(f"{number}-{index}", name, (kind,)) for index in range(draw(st.integers(1, 10)))]
        there += [job.name for job in came]
        steps.append(("", Step(tuple(came))))
    return found, play(found, steps)


def inside(found: Tree, group: str) -> list[str]:
    groups, teams = found.children(group)
    return [*teams, *(name for below in groups for name in inside(found, below))]


@pytest.mark.slow
@SLOW
@given(scenarios())
def test_a_group_keeps_its_limit_and_a_team_gets_its_guarantee(scenario: Scenario) -> None:
    found, moments = scenario
    for moment in moments:
        for group in found.parents:
            for measure in (H100, CPUS):
                limit = found.cohort_limit(group, measure.flavor, measure.resource)
                used = sum(moment.amount(name, measure) for name in inside(found, group))
                assert limit is None or used <= limit
        for job in moment.waiting:
            if job.flavor == "h100" and not moment.restless:
                assert moment.amount(job.team, H100) >= found.team_shares[job.team]["h100"][GPU].guaranteed


@pytest.mark.slow
@SLOW
@given(scenarios())
def test_a_group_whose_teams_ask_for_its_guarantee_has_it(scenario: Scenario) -> None:
    """For any of its teams, up to the limits of the team and of groups in it."""
    found, moments = scenario
    for group in found.parents:
        if group == found.root or found.cohort_nominal(group, "h100", GPU) <= 0:
            continue
        guaranteed = found.guaranteed(group, "h100", GPU)
        for moment in moments:
            used = sum(moment.amount(name, H100) for name in inside(found, group))
            for job in moment.waiting:
                if job.flavor == "h100" and job.team in inside(found, group) and not moment.restless:
                    assert used >= guaranteed or _bounded(found, moment, job.team, group)


def _bounded(found: Tree, moment: Moment, name: str, group: str) -> bool:
    """Whether a team is at its limit, or a group between it and `group` at its own."""
    if moment.amount(name, H100) >= found.team_shares[name]["h100"][GPU].effective_limit:
        return True
    above: str | None = found.cohort_of(name)
    while above is not None and above != group:
        limit = found.cohort_limit(above, "h100", GPU)
        if limit is not None and sum(moment.amount(each, H100) for each in inside(found, above)) >= limit:
            return True
        above = found.parents[above]
    return False


@pytest.mark.slow
@SLOW
@given(scenarios(cpus=False))
def test_no_job_waits_below_the_share_of_borrowers(scenario: Scenario) -> None:
    """Even sharing in whole GPUs, between two teams, or the Cohorts below the nearest common one.

    Without CPUs: Kueue does not try pending jobs again when others borrow more of another resource.
    """
    found, moments = scenario
    for moment in moments:
        waiting = {job.team for job in moment.waiting if not moment.restless}
        borrowing = [name for name in found.queue_owners if _borrowed(found, moment, f"team {name}") > 0]
        for name, other in product(waiting, borrowing):
            mine, theirs = _sides(found, name, other)
            if name != other and not any(_full(found, moment, node) for node in mine):
                with_it = max(0, _borrowed(found, moment, mine[-1]) + 1) / _weight(found, mine[-1])
                assert with_it >= _borrowed(found, moment, theirs[-1]) / _weight(found, theirs[-1])


def _sides(found: Tree, one: str, other: str) -> tuple[list[str], list[str]]:
    """Each of two teams with the Cohorts above it, up to the nearest common one."""
    above = {name: [f"team {name}", *_cohorts(found, cohort_of_queue(found, name))] for name in (one, other)}
    common = next(name for name in above[one] if name in above[other])
    return above[one][: above[one].index(common)], above[other][: above[other].index(common)]


def _cohorts(found: Tree, name: str | None) -> list[str]:
    return [] if name is None else [name, *_cohorts(found, cohort_parents(found)[name])]


def _borrowed(found: Tree, moment: Moment, node: str) -> int:
    kind, _, name = node.partition(" ")
    if kind == "team":
        return moment.amount(name, H100) - found.team_shares[name]["h100"][GPU].guaranteed
    return sum(moment.amount(each, H100) for each in inside(found, node)) - found.guaranteed(node, "h100", GPU)


def _full(found: Tree, moment: Moment, node: str) -> bool:
    kind, _, name = node.partition(" ")
    if kind == "team":
        share = found.team_shares[name]["h100"][GPU]
        return _borrowed(found, moment, node) >= share.effective_limit - share.guaranteed
    limit = found.cohort_limit(node, "h100", GPU)
    return limit is not None and _borrowed(found, moment, node) >= limit - found.guaranteed(node, "h100", GPU)


def _weight(found: Tree, node: str) -> float:
    kind, _, name = node.partition(" ")
    return found.stack.teams[name].weight if kind == "team" else cohort_weight(found, node) or 1


@pytest.mark.slow
@settings(SLOW, max_examples=40)
@given(trees(times=4), st.sampled_from([None, *"abcde"]), st.sampled_from([None, *"abcde"]))
def test_when_all_are_busy_each_team_has_its_even_part(sections: Data, first: str | None, last: str | None) -> None:
    """In any order, as far as possible in whole GPUs; a Cohort gets several for one of a team."""
    assume(errors(sections) == [] and (first is None or first != last))
    found = tree_of(sections)
    moment = busy(found, first=first, last=last)
    assume(not moment.restless)
    weights = [team.weight for team in found.stack.teams.values()]
    heaviest = max([*weights, *(cohort_weight(found, name) or 1 for name in cohort_parents(found))])
    for name, amount in even_amounts(found, H100).items():
        assert abs(moment.amount(name, H100) - amount) <= heaviest / min(weights) + 1, (name, amount)
