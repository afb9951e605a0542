"""Resources move between the states of an environment's stacks: each is in one of them, and none is lost."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pytest
from builders import EKS, Data, stack, team
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import ROOT

from gpu_tenancy.deploy.moving import ROOT as STACK_TYPE
from gpu_tenancy.deploy.moving import Moving, State, is_scaffold, placement
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.parts import Part
from gpu_tenancy.model.source import Source, to_config

PROJECT: Final = "gpu-tenancy"
States: TypeAlias = dict[str, State]


def sections(split: list[str] | None, cluster: Data | None = None, /, **cohorts: str) -> Data:
    """Three teams in two cohorts, or as said."""
    of_team = {"one": "a", "two": "b", "three": "org", **cohorts}
    return stack(
        **({"cluster": dict(cluster)} if cluster else {}),
        cohorts={"org": {}, "a": {"parent": "org"}, "b": {"parent": "org"}},
        teams={name: team(cohort=of, gpus={"h100": {"guaranteed": 4}}) for name, of in of_team.items() if of},
        **({} if split is None else {"split": {"cohorts": split}}),
    )


def whole(content: Data) -> State:
    """The state after the first deployment as one stack."""
    rendered = render(
        ROOT, project=PROJECT, stack="ml", config=to_config(Source({k: v for k, v in content.items() if k != "split"}))
    )
    root = {"urn": f"urn:pulumi:ml::{PROJECT}::{STACK_TYPE}::{PROJECT}-ml", "custom": False, "type": STACK_TYPE}
    by_urn = {one.urn: one for one in rendered.registrations}
    ids = {urn: f"id-{number}" for number, urn in enumerate(by_urn)}
    ordered: dict[str, Registration] = {}

    def place(one: Registration) -> None:
        if one.urn not in ordered:
            for needed in (one.parent, one.provider.rpartition("::")[0], *one.dependencies):
                if needed in by_urn and needed != one.urn:
                    place(by_urn[needed])
            ordered[one.urn] = one

    for one in rendered.registrations:
        place(one)
    return {"resources": [root, *(entry(one, str(root["urn"]), ids) for one in ordered.values())]}


def entry(one: Registration, root: str, ids: Mapping[str, str]) -> Data:
    provider = one.provider.rpartition("::")[0]
    return {
        "urn": one.urn,
        "custom": one.custom,
        "type": one.type,
        "parent": one.parent or root,
        "dependencies": list(one.dependencies),
        "propertyDependencies": {"spec": list(one.dependencies)},
        **({"id": ids[one.urn]} if one.custom else {}),
        **({"provider": f"{provider}::{ids[provider]}"} if provider in ids else {}),
    }


def parts_of(content: Data) -> tuple[Part, ...]:
    return plan(load(Source(content))).parts


def moving(states: States, content: Data) -> Moving:
    parts = parts_of(content)
    targets = tuple(f"ml.{part.name}" for part in parts) or ("ml",)
    return Moving(PROJECT, states, targets, placement("ml", parts))


def after(states: States, content: Data) -> States:
    """The states when all moves are done, as Pulumi accepts them; stacks that are empty are gone."""
    found = moving(states, content)
    for step in (found.first, found.then):
        for name, state in step.items():
            check(name, state)
            states = {**states, name: state}
    return {name: state for name, state in states.items() if state["resources"]}


def check(name: str, state: State) -> None:
    """What the engine checks of a state: https://github.com/pulumi/pulumi (Snapshot.VerifyIntegrity)."""
    there: set[str] = set()
    providers: set[str] = set()
    for one in state["resources"]:
        assert one["urn"].startswith(f"urn:pulumi:{name}::"), one["urn"]
        assert one["urn"] not in there, one["urn"]
        parent = one.get("parent")
        assert parent in there if parent else one["type"] == STACK_TYPE, one["urn"]
        chain = parent.split("::")[2] if parent else ""
        expected = one["type"] if chain in {"", STACK_TYPE} else f"{chain}${one['type']}"
        assert one["urn"].split("::")[2] == expected
        assert set(one.get("dependencies", ())) <= there
        assert set(one.get("propertyDependencies", {}).get("spec", ())) <= there
        assert one.get("provider", "") in {"", *providers}, one["urn"]
        there.add(one["urn"])
        if one["type"].startswith("pulumi:providers:"):
            providers.add(f"{one['urn']}::{one['id']}")


def real(states: States) -> dict[str, str]:
    """The stack of each resource by what the engine knows it by, without the stack."""
    found: dict[str, str] = {}
    for name, state in states.items():
        for one in state["resources"]:
            if not is_scaffold(one):
                key = f"{one['urn'].partition('::')[2]} {one.get('id', '')}"
                assert key not in found, key
                found[key] = name
    return found


@pytest.mark.parametrize("target", [None, EKS], ids=["existing", "eks"])
@pytest.mark.parametrize("split", [[], ["a"], ["a", "b"], ["org"]])
def test_a_split_and_the_way_back_keep_every_resource_with_its_id(split: list[str], target: Data | None) -> None:
    content = sections(split, target)
    before = {"ml": whole(content)}
    divided = after(before, content)
    assert set(divided) == {f"ml.{part.name}" for part in parts_of(content)}
    assert set(real(divided)) == set(real(before))
    back = after(divided, sections(None, target))
    assert set(back) == {"ml"}
    assert set(real(back)) == set(real(before))


def test_each_team_is_in_the_state_of_its_cohort() -> None:
    content = sections(["a", "b"])
    home = real(after({"ml": whole(content)}, content))
    teams = {urn.rpartition("::")[2].partition(" ")[0]: name for urn, name in home.items()}
    assert (teams["one"], teams["two"], teams["three"]) == ("ml.cohort.a", "ml.cohort.b", "ml.tenancy")
    assert (teams["queues-one"], teams["queues-cohort-a"]) == ("ml.cohort.a", "ml.tenancy")
    assert (teams["guards"], teams["priorities"]) == ("ml.tenancy", "ml.tenancy")


def test_teams_that_change_places_are_never_in_no_state() -> None:
    states = after({"ml": whole(sections(["a", "b"]))}, sections(["a", "b"]))
    content = sections(["a", "b"], one="b", two="a")
    found = moving(states, content)
    assert {(move.source, move.target) for move in found.moves} == {
        ("ml.cohort.a", "ml.cohort.b"),
        ("ml.cohort.b", "ml.cohort.a"),
    }
    every = {key for state in ({**states, **found.first}).values() for key in named(state)}
    assert every == {key for state in states.values() for key in named(state)}
    assert real(after(states, content)) == real({**states, **found.then})


def named(state: State) -> set[str]:
    return {one["urn"].partition("::")[2] for one in state["resources"] if not is_scaffold(one)}


def test_resources_in_their_state_do_not_move() -> None:
    content = sections(["a"])
    states = after({"ml": whole(content)}, content)
    found = moving(states, content)
    assert (found.moves, found.first, found.then) == ((), {}, {})


def test_a_team_that_is_removed_stays_where_its_objects_will_be_deleted() -> None:
    states = after({"ml": whole(sections(["a"]))}, sections(["a"]))
    assert moving(states, sections(["a"], one="")).moves == ()
    (move,) = moving(states, sections(["b"], one="", two="")).moves
    assert (move.source, move.target) == ("ml.cohort.a", "ml.cohort.b")  # its stack is no longer deployed


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sets(st.sampled_from(["a", "b", "org"])), min_size=1, max_size=4), st.data())
def test_moves_that_end_in_the_middle_are_completed_by_the_next_run(steps: list[set[str]], data: Any) -> None:
    content = sections([])
    states: States = {"ml": BEFORE}
    for split in steps:
        content = sections(sorted(split))
        found = moving(states, content)
        writes = [*found.first.items(), *found.then.items()]
        done = data.draw(st.integers(0, len(writes)))
        for name, state in writes[:done]:
            states = {**states, name: state}
    states = after(states, content)
    assert set(real(states)) == set(real({"ml": BEFORE}))


BEFORE: Final = whole(sections(None))
