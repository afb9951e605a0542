"""The stacks of an environment are deployed in order, and what others may still need is deleted last."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from builders import EKS
from cli_builders import Project
from deploy_builders import PROJECT, States, sections, state_of

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy.deploying import Environment
from gpu_tenancy.deploy.events import Event, Seen
from gpu_tenancy.deploy.stacks import OperationError, Stacks
from gpu_tenancy.deploy.states import State
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.project import declared


@dataclass
class Backend:
    """A backend with states, which records what is done with each stack in order."""

    environment: str
    parts: Mapping[str, str]
    states: States
    fails: str = ""
    failing: tuple[str, ...] = ()
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
        self,
        name: str,
        command: str,
        *options: str,
        on_event: Callable[[Event], None],
        at_the_end: bool = False,
        forced: bool = False,
    ) -> None:
        assert not forced
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
            raise OperationError("error: no quota left", "")

    def record(self, *what: str) -> None:
        self.done.extend(what)


def failed(type_: str, why: str) -> tuple[Event, Event]:
    """What the engine tells of a resource that it could not create, named `h100`."""
    urn = f"urn:pulumi:ml::{PROJECT}::{type_}::h100"
    told = {"urn": urn, "message": why, "severity": "error"}
    step = {"op": "create", "urn": urn, "type": type_, "new": {"custom": True, "parent": ""}}
    return {"diagnosticEvent": told}, {"resOpFailedEvent": {"metadata": step}}


class NoCluster:
    """A cluster without any object, or one that is not asked."""

    def get(self, *_: Any, **__: Any) -> None:
        return None

    def list(self, *_: Any, **__: Any) -> tuple[()]:
        return ()


Opened = Callable[..., tuple[Environment, Backend]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """Opens an environment of a content on a backend with states."""

    def reach(_: Any) -> nullcontext[Cluster]:
        return nullcontext(cast("Cluster", NoCluster()))

    def open_(content: Mapping[str, Any], states: States, fails: str = "") -> tuple[Environment, Backend]:
        folder = tmp_path / "project"
        shutil.rmtree(folder, ignore_errors=True)
        project = Project.at(folder)
        project.write("ml", dict(content))
        read = declared("ml", folder)
        parts = {f"ml.{part}": part for part in plan(read.stack).parts}
        backend = Backend("ml", parts, dict(states), fails)
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


def test_resources_in_a_stack_that_the_environment_does_not_have_are_refused(opened: Opened) -> None:
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


@pytest.mark.parametrize(
    ("failing", "later"),
    [
        (("aws:eks/nodeGroup:NodeGroup",), True),
        (("aws:eks/nodeGroup:NodeGroup", "aws:eks/addon:Addon"), False),
    ],
)
def test_pools_without_capacity_are_named_and_stop_no_later_stack(
    opened: Opened, failing: tuple[str, ...], *, later: bool
) -> None:
    environment, backend = opened(sections(EKS, split=True), {}, fails="ml.cluster")
    backend.failing = failing
    with pytest.raises(ConsoleError, match=r"^pulumi up of stack ml\.cluster failed.*:\nh100: Insufficient") as raised:
        environment.up()
    assert ("up ml.tenancy" in backend.done) is later
    assert raised.value.fix.startswith("everything else is deployed") is later


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


def test_changes_are_counted_by_team_and_a_team_is_finished_when_nothing_of_it_is_under_way() -> None:
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
