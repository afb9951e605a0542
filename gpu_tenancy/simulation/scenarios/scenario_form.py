"""The form of a file with jobs over time."""

import json
from typing import Annotated, Any, Final

from pydantic import Field

from gpu_tenancy.model.fields import Bytes, Count, Cpu, Positive, Section, WorkloadName
from gpu_tenancy.model.schema import URI, Schema

MOST_JOBS: Final = 1000
"""Jobs that one entry of `submit` can stand for; the simulation of so many takes seconds."""


class Submitted(Section):
    """A job to submit, or several that are alike."""

    name: WorkloadName
    """Name of the job; must be unique among current jobs."""
    team: str
    """Team whose queue gets the job."""
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 1
    """Number of such jobs, each admitted on its own; of several, the names are `NAME-1`, `NAME-2`, …"""
    flavor: str | None = None
    """Flavor to run on; may be omitted if the team has only one GPU flavor."""
    gpus: Count | None = None
    """GPUs of each pod; 0 for CPU jobs. Default: 1, or 0 if the team or the flavor has no GPUs."""
    pods: Positive = 1
    """Number of pods, which are admitted together."""
    cpu: Cpu | None = None
    """CPUs of each pod; default: the share of its GPUs in the machine, less a tenth."""
    memory: Bytes | None = None
    """Memory of each pod; default: as for CPUs."""
    priority: str | None = None
    """Priority class; default: that of the team."""


class ScenarioStep(Section):
    """One step: jobs end, then jobs are submitted, one after the other."""

    label: str | None = None
    """Title of the step; default: what happens in it."""
    finish: list[str] = Field(default_factory=list[str])
    """Names of running or pending jobs that end; the name of several jobs that are alike ends all of them."""
    submit: list[Any] = Field(default_factory=list[Any])
    """Jobs to submit, in this order."""


class Scenario(Section):
    """Jobs over time, for `tenancy local demo` and `tenancy whatif --workloads`.

    Example:
        >>> Scenario.model_validate({"steps": [{"submit": [{"name": "big", "team": "a", "gpus": 8, "pods": 4}]}]})
    """

    steps: list[Any]
    """The steps, in order."""


def scenario_schema() -> Schema:
    """The JSON schema of such a file, for validation and completion in editors.

    Steps and jobs are read one by one, so that a problem in one does not hide another; here they are joined.
    """
    whole, step, job = (shape.model_json_schema(by_alias=True) for shape in (Scenario, ScenarioStep, Submitted))
    step["properties"]["submit"] |= {"items": {"$ref": "#/$defs/Submitted"}}
    whole["properties"]["steps"] |= {"items": {"$ref": "#/$defs/ScenarioStep"}}
    description = whole.pop("description").partition("\n")[0]
    return {
        "$schema": URI,
        **whole,
        "title": "Jobs over time",
        "description": description,
        "$defs": {"ScenarioStep": step, "Submitted": job},
    }


def scenario_schema_text() -> str:
    """The schema as the file `stacks/scenarios/schema.json`."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"
