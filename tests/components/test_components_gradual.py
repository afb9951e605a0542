"""How the program registers the teams of a large stack: a few at a time, and without the stack of its own calls."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from builders import Data, stack, team
from pulumi.runtime.proto import resource_pb2
from repository import ROOT

from components.tenancy import AT_ONCE
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine import lean
from gpu_tenancy.engine import render as rendering
from gpu_tenancy.engine.recording import STACK_TYPE, RecordingMonitor
from gpu_tenancy.model.source import Source, to_config

TEAMS = 3 * AT_ONCE


class Listening(RecordingMonitor):
    """Notes the order of registrations, and the frames of the program's stack that come with them."""

    def __init__(self, project: str, stack: str, answers: Mapping[str, Mapping[str, Json]]) -> None:
        super().__init__(project, stack, answers)
        self.order: list[str] = []
        self.frames = 0
        MONITORS.append(self)

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        self.order.append(f"{request.type.rpartition(':')[2]} {request.name}")
        if request.type != STACK_TYPE:  # it is registered before the program runs
            self.frames += request.HasField("stackTrace") and len(cast("Any", request).stackTrace.frames)
        return super().RegisterResource(request)


MONITORS: list[Listening] = []


@pytest.fixture
def listened(monkeypatch: pytest.MonkeyPatch) -> Listening:
    """The program on a stack of many teams."""
    monkeypatch.setattr(rendering, "RecordingMonitor", Listening)
    monkeypatch.setattr(lean, "_supported", lambda: False)  # the SDK as it is under the engine
    teams: Data = {f"t{n}": team(gpus={"h100": {"guaranteed": 0, "limit": 1}}) for n in range(TEAMS)}
    rendering.render(ROOT, project="p", stack="s", config=to_config(Source(stack(teams=teams))))
    return MONITORS.pop()


def test_a_team_is_registered_when_the_namespaces_of_all_but_a_few_before_it_are_whole(listened: Listening) -> None:
    last_of: dict[str, int] = {}
    starts: list[tuple[int, str]] = []
    for at, line in enumerate(listened.order):
        kind, _, name = line.partition(" ")
        if kind == "Team":
            starts.append((at, name))
        elif "-space" in name:
            last_of[name.partition("-space")[0]] = at
    assert [name for _, name in starts] == sorted(f"t{n}" for n in range(TEAMS))
    for number, (at, _) in enumerate(starts):
        whole = [name for _, name in starts[:number] if last_of[name] < at]
        assert len(whole) > number - AT_ONCE


def test_registrations_have_no_stack_of_calls_and_errors_of_the_program_have_theirs(listened: Listening) -> None:
    assert listened.frames == 0
    assert not hasattr(sys, "tracebacklimit")


ANY_PROGRAM = """
import pulumi

class Made(pulumi.CustomResource):
    def __init__(self):
        super().__init__("a:b:Made", "made", {})

Made()
"""


def test_the_sdk_sends_the_stack_of_calls_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendering, "RecordingMonitor", Listening)
    monkeypatch.setattr(lean, "_supported", lambda: False)
    (tmp_path / "__main__.py").write_text(ANY_PROGRAM)
    rendering.render(tmp_path, project="p", stack="s", config={})
    assert MONITORS.pop().frames > 0
