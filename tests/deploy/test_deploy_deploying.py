"""The stacks of an environment are deployed in order, and what others may still need is deleted last."""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, cast

import pytest
from cli_builders import Project
from test_deploy_moving import PROJECT, States, after, sections, whole

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy import deploying
from gpu_tenancy.deploy.deploying import Environment
from gpu_tenancy.deploy.events import Event, Seen
from gpu_tenancy.deploy.moving import State
from gpu_tenancy.deploy.stacks import OperationError, Stacks
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.parts import Part
from gpu_tenancy.model.project import declared


@dataclass
class Backend:
    """A backend with states, which records what is done with each stack in order."""

    environment: str
    parts: Mapping[str, Part]
    states: States
    fails: str = ""
    failing: tuple[str, ...] = ()
    project: str = PROJECT
    done: list[str] = field(default_factory=list)
    fast: set[str] = field(default_factory=set[str])
    _lock: Lock = field(default_factory=Lock)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parts) or (self.environment,)

    def part(self, name: str) -> Part | None:
        return self.parts.get(name)

    def stage(self, name: str) -> int:
        part = self.parts.get(name)
        return part.stage if part else (0 if name == self.environment else 9)

    def existing(self) -> tuple[str, ...]:
        return tuple(sorted(self.states, key=self.stage))

    def export(self, name: str) -> State:
        return self.states[name]

    def create(self, existing: tuple[str, ...]) -> None:
        self.record(*(f"create {name}" for name in self.names if name not in existing))

    def replace(self, name: str, state: State) -> None:
        self.record(f"import {name}")
        self.states[name] = state

    def remove(self, name: str) -> None:
        self.record(f"remove {name}")

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
        with self._lock:
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
        parts = {f"ml.{part.name}": part for part in plan(read.stack).parts}
        backend = Backend("ml", parts, dict(states), fails)
        return Environment(read, cast("Stacks", backend), lambda _: None, reach), backend

    return open_


def divided(split: list[str]) -> States:
    return after({"ml": whole(sections(split))}, sections(split))


def test_what_all_teams_share_is_deployed_before_the_teams(opened: Opened) -> None:
    environment, backend = opened(sections(["a", "b"]), {})
    assert [result.stack for result in environment.up(2)] == ["ml.tenancy", "ml.cohort.a", "ml.cohort.b"]
    assert backend.fast == {"ml.tenancy", "ml.cohort.a", "ml.cohort.b"}
    assert backend.done[:3] == ["create ml.tenancy", "create ml.cohort.a", "create ml.cohort.b"]
    assert backend.done[3] == "up ml.tenancy"
    assert sorted(backend.done[4:]) == ["up ml.cohort.a", "up ml.cohort.b"]


def test_programs_of_stacks_that_are_deployed_side_by_side_run_one_after_the_other(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, render = [0], [0], deploying.render

    def rendered(*arguments: Any, **options: Any) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        try:
            return render(*arguments, **options)
        finally:
            running[0] -= 1

    monkeypatch.setattr(deploying, "render", rendered)
    before = Path.cwd()
    environment, _ = opened(sections(["a", "b"]), {})
    environment.up(3)
    assert most == [1]
    assert Path.cwd() == before


def test_states_are_moved_before_the_first_deployment_targets_before_sources(opened: Opened) -> None:
    environment, backend = opened(sections(["a"]), {"ml": whole(sections(None))})
    assert {(move.source, move.target) for move in environment.moves} == {("ml", "ml.tenancy"), ("ml", "ml.cohort.a")}
    environment.up(1)
    assert backend.done == [
        "create ml.tenancy",
        "create ml.cohort.a",
        "import ml.tenancy",
        "import ml.cohort.a",
        "import ml",
        "up ml.tenancy",
        "up ml.cohort.a",
    ]


def test_the_stack_of_a_cohort_that_gets_none_any_more_is_removed(opened: Opened) -> None:
    environment, backend = opened(sections(["b"]), divided(["a", "b"]))
    environment.up(1)
    assert "remove ml.cohort.a" in backend.done
    assert not backend.states["ml.cohort.a"]["resources"]


def test_objects_that_a_later_stack_needs_are_deleted_after_it(opened: Opened) -> None:
    environment, backend = opened(sections(["a"]), divided(["a"]))
    environment.up(1)
    assert backend.done == ["up ml.tenancy", "up ml.cohort.a"]
    environment, backend = opened(sections(["a"], three=""), divided(["a"]))
    environment.up(1)
    first, second, third = backend.done
    assert first.startswith("up ml.tenancy without ")
    assert "'three'" in first
    assert "queues-three" in first
    assert (second, third) == ("up ml.cohort.a", "up ml.tenancy")


def test_a_failure_ends_its_stage_and_starts_no_later_one(opened: Opened) -> None:
    environment, backend = opened(sections(["a", "b"]), {}, fails="ml.tenancy")
    with pytest.raises(ConsoleError, match=r"^pulumi up of stack ml\.tenancy failed:\nerror: no quota left; fix the"):
        environment.up(2)
    assert backend.done[-1] == "up ml.tenancy"


@pytest.mark.parametrize(
    ("failing", "later"),
    [
        (("aws:eks/nodeGroup:NodeGroup",), True),
        (("aws:eks/nodeGroup:NodeGroup", "aws:eks/addon:Addon"), False),
    ],
)
def test_pools_without_capacity_are_named_and_stop_no_later_stage(
    opened: Opened, failing: tuple[str, ...], *, later: bool
) -> None:
    environment, backend = opened(sections(["a"]), {}, fails="ml.tenancy")
    backend.failing = failing
    with pytest.raises(ConsoleError, match=r"^pulumi up of stack ml\.tenancy failed.*:\nh100: Insufficient") as raised:
        environment.up(2)
    assert ("up ml.cohort.a" in backend.done) is later
    assert raised.value.fix.startswith("everything else is deployed") is later


def test_a_preview_omits_resources_that_move_first(opened: Opened) -> None:
    environment, backend = opened(sections(["a"]), {"ml": whole(sections(None))})
    assert environment.preview(1) == []
    environment, backend = opened(sections(["a"]), divided(["a"]))
    environment.preview(1)
    assert backend.done == ["preview ml.tenancy", "preview ml.cohort.a"]


def test_teams_are_deleted_before_what_they_share(opened: Opened) -> None:
    environment, backend = opened(sections(["a", "b"]), divided(["a", "b"]))
    environment.down(2)
    assert sorted(backend.done[:2]) == ["destroy ml.cohort.a", "destroy ml.cohort.b"]
    assert backend.done[2:] == ["destroy ml.tenancy"]


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
