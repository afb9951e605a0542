"""A played scenario as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenarios import Event, JobStep, StepResult
from gpu_tenancy.whatif.data import moment_data


class Recorder:
    """Keeps the events of each step."""

    def __init__(self) -> None:
        self.events: list[list[Event]] = []

    def begin(self, step: JobStep) -> None:  # noqa: ARG002 - of the protocol
        """A step begins."""
        self.events.append([])

    def event(self, event: Event) -> None:
        """Keeps an event."""
        self.events[-1].append(event)

    def end(self, result: StepResult) -> None:
        """A step has ended."""


def as_json(
    tree: Tree, results: Sequence[StepResult], events: Sequence[Sequence[Event]], left_out: Sequence[str]
) -> str:
    """Each step with its events, and the state that the simulation foresaw and that of a cluster; null for none."""
    steps = [_step(tree, result, told) for result, told in zip(results, events, strict=True)]
    return json.dumps({"steps": steps, "notModelled": list(left_out)}, indent=2, ensure_ascii=False) + "\n"


def _step(tree: Tree, result: StepResult, events: Sequence[Event]) -> dict[str, Any]:
    return {
        "label": result.step.label,
        "events": [{key: value for key, value in asdict(event).items() if value} for event in events],
        "foreseen": moment_data(tree, result.foreseen),
        "live": moment_data(tree, result.live) if result.live else None,
        "agrees": result.agrees,
    }
