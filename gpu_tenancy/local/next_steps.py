"""What to do after `tenancy up`: commands that work as they are printed, on the stack that the platform carries."""

from pathlib import Path
from typing import Final

import yaml

from gpu_tenancy.base.json import Json, at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.model.resolve import resolve
from gpu_tenancy.model.spec.roles import KINDS

_EXAMPLE: Final = "example"
"""Name of the job in the file that is written."""


def next_steps(result: Outcome, folder: Path) -> tuple[str, ...]:
    """The arguments of `usage`, `why` and `fit` that show something of a deployed stack.

    `usage` and `why` are about a workload that is pending, if there is one. `fit` is about a job that is written to
    `job.yaml`: a copy of one of the stack, with another name.

    Args:
        result: of `up`.
        folder: for the file.
    """
    teams = resolve(result.preview.stack).teams.items()
    declared = [(team, name) for team, section in teams for name in (*section.training, *section.serving)]
    if not declared:
        return ("usage",)
    pending = [workload for workload in result.summary.pending if workload in declared]
    team, workload = (*pending, *declared)[0]
    steps = [f"usage {team}", f"why {team}/{workload}"]
    if example := _example(result, team):
        file = folder / "job.yaml"
        write_text(file, example)
        steps.append(f"fit {team} -f {file}")
    return tuple(steps)


def _example(result: Outcome, team: str) -> str:
    """A Job of a team with another name, as YAML; empty if the team has none."""
    for item in result.preview.objects:
        if (item.api_version, item.kind) == KINDS["job"].api and item.namespace == team:
            metadata: Json = {"name": _EXAMPLE, "namespace": team, "labels": at(item.shown, "metadata", "labels")}
            return yaml.safe_dump({**item.shown, "metadata": metadata}, sort_keys=False)
    return ""
