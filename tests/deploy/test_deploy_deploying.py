"""Stacks of an environment are deployed in order, and deployments without changes are skipped."""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import pytest
from builders import EKS
from cli_builders import Project
from deploy_builders import PROJECT, States, sections, state_of

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy.deploying import Environment
from gpu_tenancy.deploy.recovering import PROVIDERS, marked, unchanged
from gpu_tenancy.deploy.stacks import OperationError, Stacks
from gpu_tenancy.deploy.states import Event, Seen, State
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import UnreachableError
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.project import declared


@dataclass
class Backend:
    """A backend with states, which records the operations on each stack in order."""

    environment: str
    parts: Mapping[str, str]
    states: States
    fails: str = ""
    failing: tuple[str, ...] = ()
    why: str = "error: no quota left"
    project: str = PROJECT
    done: list[str] = field(default_factory=list)
    fast: set[str] = field(default_factory=set[str])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parts) or (self.environment,)

    def part(self, name: str) -> str | None:
        return self.parts.get(name)

    def existing(self) -> tuple[str, ...]:
        return tuple(self.states)

    def export(self, name: str) -> State:
        return self.states[name]

    def create(self, existing: tuple[str, ...]) -> None:
        self.record(*(f"create {name}" for name in self.names if name not in existing))

    def replace(self, name: str, state: State) -> None:
        self.record(f"import {name}")
        self.states[name] = state

    def interrupted(self, name: str) -> State:
        return self.states.get(name, {})

    mark: str = f"{PROJECT}/ml"

    def operate(
        self, name: str, command: str, *options: str, on_event: Callable[[Event], None], at_the_end: bool = False
    ) -> None:
        if command == "refresh":
            assert "--run-program=false" in options
            return
        if at_the_end:
            self.fast.add(name)
        assert command != "up" or "--continue-on-error" in options
        kept = [urn.rpartition("::")[2] for urn in options if urn.startswith("--exclude=")]
        self.record(f"{command} {name}" + (f" without {kept}" if kept else ""))
        if command == "up" and name == self.fails:
            for type_ in self.failing:
                for event in failed(type_, "InsufficientInstanceCapacity"):
                    on_event(event)
            raise OperationError(self.why, "")

    def record(self, *what: str) -> None:
        self.done.extend(what)


def failed(type_: str, why: str) -> tuple[Event, Event]:
    """The engine's events of a resource that it could not create, named `h100`."""
    urn = f"urn:pulumi:ml::{PROJECT}::{type_}::h100"
    told = {"urn": urn, "message": why, "severity": "error"}
    step = {"op": "create", "urn": urn, "type": type_, "new": {"custom": True, "parent": ""}}
    return {"diagnosticEvent": told}, {"resOpFailedEvent": {"metadata": step}}


class NoCluster:
    def get(self, *_: Any, **__: Any) -> None:
        return None

    def list(self, *_: Any, **__: Any) -> tuple[()]:
        return ()


Opened = Callable[..., tuple[Environment, Backend]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def reach(_: Any) -> nullcontext[Cluster]:
        return nullcontext(cast("Cluster", NoCluster()))

    def open_(content: Mapping[str, Any], states: States, fails: str = "") -> tuple[Environment, Backend]:
        folder = tmp_path / "project"
        shutil.rmtree(folder, ignore_errors=True)
        Project.at(folder).write("ml", dict(content))
        read = declared("ml", folder)
        backend = Backend("ml", {f"ml.{part}": part for part in plan(read.stack).parts}, dict(states), fails)
        return Environment(read, cast("Stacks", backend), lambda _: None, reach), backend

    return open_


PARTS = ("cluster", "operators", "tenancy")


def divided() -> States:
    return {f"ml.{part}": state_of(sections(EKS, split=True), part) for part in PARTS}


def test_the_parts_are_deployed_in_order(opened: Opened) -> None:
    environment, backend = opened(sections(EKS, split=True), {})
    assert [result.stack for result in environment.up()] == [f"ml.{part}" for part in PARTS]
    assert backend.fast == {"ml.tenancy"}
    assert backend.done == [f"{what} ml.{part}" for what in ("create", "up") for part in PARTS]


def test_refuses_resources_in_an_unknown_stack(opened: Opened) -> None:
    whole = state_of(sections())
    environment, backend = opened(sections(split=True), {"ml": whole})
    told = r"^stack ml has \d+ resources, but the environment is deployed as ml\.tenancy; move them with `pulumi state"
    for refused in (environment.up, environment.preview):
        with pytest.raises(ConsoleError, match=told):
            refused()
    assert backend.done == []
    for left in ("ml.tenancy", "ml.cohort.a"):
        environment, backend = opened(sections(), {"ml": whole, left: state_of(sections(split=True), "tenancy")})
        with pytest.raises(
            ConsoleError, match=rf"^stack {left} has \d+ resources, but the environment is deployed as ml;"
        ):
            environment.up()
    environment, backend = opened(sections(), {"ml": whole, "ml.tenancy": {"resources": []}})
    environment.preview()
    assert backend.done == ["preview ml"]


def test_resources_that_a_later_stack_needs_are_deleted_after_it(opened: Opened) -> None:
    content = sections(EKS, split=True)
    environment, backend = opened(content, divided())
    environment.up()
    assert backend.done == [f"up ml.{part}" for part in PARTS]
    states = divided()
    last = states["ml.cluster"]["resources"][-1]
    old = {**last, "urn": f"urn:pulumi:ml.cluster::{PROJECT}::aws:eks/nodeGroup:NodeGroup::old"}
    states["ml.cluster"] = {"resources": [*states["ml.cluster"]["resources"], old]}
    environment, backend = opened(content, states)
    environment.up()
    first, *then = backend.done
    assert first == "up ml.cluster without ['old']"
    assert then == ["up ml.operators", "up ml.tenancy", "up ml.cluster"]


def test_a_failure_starts_no_later_stack(opened: Opened) -> None:
    environment, backend = opened(sections(EKS, split=True), {}, fails="ml.cluster")
    with pytest.raises(ConsoleError, match=r"^pulumi up of stack ml\.cluster failed:\nerror: no quota left; fix the"):
        environment.up()
    assert backend.done[-1] == "up ml.cluster"


@pytest.mark.parametrize(("why", "tries"), [("no quota", 1), ("Operation cannot be fulfilled on resourcequotas", 2)])
def test_tries_again_where_a_quota_was_written_meanwhile(opened: Opened, why: str, tries: int) -> None:
    environment, backend = opened(sections(split=True), {}, fails="ml.tenancy")
    backend.why = why
    with pytest.raises(ConsoleError, match=why):
        environment.up()
    assert backend.done == ["create ml.tenancy", *["up ml.tenancy"] * tries]


@pytest.mark.parametrize(
    ("failing", "later"),
    [(("aws:eks/nodeGroup:NodeGroup",), True), (("aws:eks/nodeGroup:NodeGroup", "aws:eks/addon:Addon"), False)],
)
def test_pools_without_capacity_stop_no_later_stack(opened: Opened, failing: tuple[str, ...], *, later: bool) -> None:
    environment, backend = opened(sections(EKS, split=True), {}, fails="ml.cluster")
    backend.failing = failing
    with pytest.raises(ConsoleError, match=r"^pulumi up of stack ml\.cluster failed.*:\nh100: Insufficient") as raised:
        environment.up()
    assert ("up ml.tenancy" in backend.done) is later
    assert raised.value.fix.startswith("everything else is deployed") is later


def test_a_silent_cluster_stops_no_stack_that_makes_it(opened: Opened) -> None:
    """What a stack makes may be what lets its cluster answer."""

    def nobody(_: Any) -> nullcontext[Cluster]:
        raise UnreachableError("https://a", "refused")

    told: list[str] = []
    objects: States = {**divided(), "ml.tenancy": {"resources": []}}
    for states, content in (({"ml": state_of(sections(EKS))}, sections(EKS)), (objects, sections(EKS, split=True))):
        environment, backend = opened(content, states)
        environment = Environment(environment.read, cast("Stacks", backend), told.append, nobody)
        with nullcontext() if "ml" in states else pytest.raises(UnreachableError):
            assert not environment.recover()
    compared = (f"{name}: not compared with its cluster" for name in ("ml", "ml.cluster", "ml.operators"))
    assert told == [f"{name}: {UnreachableError('https://a', 'refused')}" for name in compared]


def test_a_preview_is_of_the_stacks_that_exist(opened: Opened) -> None:
    states = divided()
    del states["ml.operators"]
    environment, backend = opened(sections(EKS, split=True), states)
    environment.preview()
    assert backend.done == ["preview ml.cluster", "preview ml.tenancy"]


def test_teams_are_deleted_before_what_they_share(opened: Opened) -> None:
    environment, backend = opened(sections(EKS, split=True), divided())
    environment.down()
    assert backend.done == [f"destroy ml.{part}" for part in reversed(PARTS)]


def test_counts_changes_by_team_until_each_is_finished() -> None:
    finished: list[str] = []
    seen = Seen(finished.append)
    above = f"urn:pulumi:ml::{PROJECT}::gpu-tenancy:tenancy:Tenancy$gpu-tenancy:tenancy:"
    team, space = f"{above}Team::vision", f"{above}Team$gpu-tenancy:tenancy:Namespace::vision-namespace"
    for urn, parent in ((team, ""), (space, team)):
        seen({"resourcePreEvent": {"metadata": step(urn, parent, custom=False)}})
    quota, shared = step("urn::ResourceQuota::budget", space), step("urn::ResourceFlavor::a100", "", "same")
    old = step("urn::LimitRange::vision", space, "delete")
    for one in (quota, shared, old):
        seen({"resourcePreEvent": {"metadata": one}})
    seen({"resOutputsEvent": {"metadata": step(team, "", custom=False)}})
    assert finished == []
    for one in (shared, quota, {**old, "old": old["new"], "new": None}):
        seen({"resOutputsEvent": {"metadata": one}})
    seen({"summaryEvent": {"resourceChanges": {"create": 1, "delete": 1, "same": 1}}})
    assert finished == ["vision"]
    assert seen.teams == {"vision": {"create": 1, "delete": 1}}
    assert seen.destroyed == ["LimitRange vision"]
    assert seen.changes == {"create": 1, "delete": 1, "same": 1}


def step(urn: str, parent: str, op: str = "create", *, custom: bool = True) -> dict[str, Any]:
    type_ = urn.split("::")[-2].rpartition("$")[2]
    return {"op": op, "urn": urn, "type": type_, "new": {"custom": custom, "parent": parent}}


# A deployment that would change nothing is recognised without Pulumi's engine, and one that would never is.


MARK: Final = f"{PROJECT}/ml"
Entries: TypeAlias = dict[str, dict[str, Any]]
VERSION: Final = "4.34.2"


def installed(_: str) -> str:
    return VERSION


def secret(value: Any) -> dict[str, Any]:
    """A secret as in `pulumi stack export --show-secrets`."""
    return {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps(value)}


def complete(state: State, rendered: Rendered) -> State:
    """A state with the other data that Pulumi writes of resources."""
    by_urn = {one.urn: one for one in rendered.registrations}
    first, *entries = deepcopy(state["resources"])
    for entry in entries:
        one = by_urn[entry["urn"]]
        entry["inputs"] = _inputs(one) if one.custom else {}
    return {"resources": [{**first, "outputs": dict(rendered.outputs)}, *entries]}


def _inputs(one: Registration) -> dict[str, Any]:
    if one.type.startswith(PROVIDERS):
        hidden = {key: secret(value) if key == "kubeconfig" else value for key, value in one.inputs.items()}
        return {**hidden, "version": VERSION, "__internal": {}}
    return deepcopy(marked({key: value for key, value in one.inputs.items() if value is not None}, MARK))


@pytest.fixture
def rendered(opened: Opened) -> Rendered:
    environment, _ = opened(sections(), {"ml": state_of(sections())})
    return environment.render("ml")


@pytest.fixture
def state(rendered: Rendered, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr("gpu_tenancy.deploy.recovering.version", installed)
    return complete(state_of(sections()), rendered)


def test_what_was_deployed_by_the_same_program_is_unchanged(rendered: Rendered, state: State) -> None:
    assert unchanged(rendered, state, MARK)


def quota(entries: Entries) -> dict[str, Any]:
    return next(one for one in entries.values() if one["type"].endswith(":ResourceQuota"))


def provider(entries: Entries) -> dict[str, Any]:
    return next(one for one in entries.values() if one["type"].startswith(PROVIDERS))


EDITS: Final[dict[str, Callable[[Entries], object]]] = {
    "another value": lambda of: quota(of)["inputs"]["spec"]["hard"].update(pods="999"),
    "no mark": lambda of: quota(of)["inputs"]["metadata"].pop("annotations"),
    "one field more": lambda of: quota(of)["inputs"]["spec"].update(scopes=["Terminating"]),
    "one object less": lambda of: of.pop(quota(of)["urn"]),
    "one object more": lambda of: of.update(more={**quota(of), "urn": f"{quota(of)['urn']}-more"}),
    "an object to delete": lambda of: of.update(old={**quota(of), "delete": True}),
    "a protected object": lambda of: quota(of).update(protect=True),
    "no dependencies": lambda of: quota(of).update(dependencies=[]),
    "another plugin": lambda of: provider(of)["inputs"].update(version="4.0.0"),
    "another cluster": lambda of: provider(of)["inputs"].update(kubeconfig=secret("elsewhere")),
    "another output": lambda of: next(iter(of.values()))["outputs"].update(environment="another"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_state_that_differs_in_one_place_is_not(rendered: Rendered, state: State, edit: str) -> None:
    entries: Entries = {one["urn"]: one for one in state["resources"]}
    EDITS[edit](entries)
    assert not unchanged(rendered, {"resources": [*entries.values()]}, MARK)


def test_neither_is_a_program_whose_values_only_an_engine_knows(rendered: Rendered, state: State) -> None:
    *rest, last = sorted(rendered.registrations, key=lambda one: one.custom)
    unknown = replace(last, unknown_paths=(("spec",),))
    assert not unchanged(Rendered(PROJECT, "ml", (*rest, unknown), rendered.outputs), state, MARK)


def test_pulumi_is_not_asked_where_nothing_changes(opened: Opened, state: State) -> None:
    environment, backend = opened(sections(), {"ml": state})
    assert [(one.changes, one.teams) for one in environment.preview()] == [({"same": len(state["resources"])}, {})]
    assert backend.done == []


def test_a_part_that_is_the_same_is_left_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_tenancy.deploy.recovering.version", installed)
    states = {"ml.tenancy": state_of(sections(split=True), "tenancy")}
    environment, _ = opened(sections(split=True), states)
    parts = {name: complete(found, environment.render(name)) for name, found in states.items()}
    environment, backend = opened(sections(split=True), parts)
    environment.preview()
    assert backend.done == []
    edited = sections(split=True)
    edited["teams"]["one"]["objects"] = {"services": 3}
    environment, backend = opened(edited, parts)
    environment.preview()
    assert backend.done == ["preview ml.tenancy"]
