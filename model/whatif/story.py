"""Workloads over time, as a person writes them in YAML."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.admission import PodSet, Step, Workload
from model.plan.pods import pod_size
from model.plan.shares import Tree
from model.problems import nearest
from model.spec.workloads import Training


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Submitted(_Closed):
    """A job that comes.

    Attributes:
        gpus: of each pod.
        cpu: and memory, as a stack's jobs say them; left out, what the GPUs bring of the machine.
    """

    name: Annotated[str, Field(min_length=1)]
    team: str
    flavor: str | None = None
    gpus: Annotated[int, Field(ge=0)] = 1
    pods: Annotated[int, Field(ge=1)] = 1
    priority: str | None = None


class StoryStep(_Closed):
    """What happens next: jobs end, then jobs come, each after the one before has come to rest."""

    finish: list[str] = []
    submit: list[Submitted] = []


class Story(_Closed):
    """Steps of a story.

    Example:
        >>> Story.model_validate({"steps": [{"submit": [{"name": "big", "team": "a", "gpus": 8, "pods": 4}]}]})
    """

    steps: list[StoryStep]


def read_story(file: Path, tree: Tree) -> list[tuple[str, Step]]:
    """Reads workloads over time, and gives each the size and the flavor that the stack's own jobs would have.

    Raises:
        ValueError: with all that is wrong in the file: place, value and mend, a line each.
    """
    try:
        found: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        story = Story.model_validate(found)
    except OSError as error:
        msg = f"{file}: cannot be read: {error.strerror}; name a file of steps"
        raise ValueError(msg) from error
    except yaml.YAMLError as error:
        msg = f"{file}: is no YAML; write steps, each with submit and finish"
        raise ValueError(msg) from error
    except ValidationError as error:
        raise ValueError(
            "\n".join(f"{file}: {_place(each['loc'])}: {each['msg'].lower()}" for each in error.errors())
        ) from error
    wrong: list[str] = []
    steps: list[tuple[str, Step]] = []
    there: set[str] = set()
    for number, step in enumerate(story.steps):
        at = f"{file}: steps.{number}"
        wrong += [
            f"{at}.finish: there is no job {name}; {nearest(name, there)}" for name in step.finish if name not in there
        ]
        there -= set(step.finish)
        came: list[Workload] = []
        for index, job in enumerate(step.submit):
            workload = _workload(tree, job)
            if job.name in there:
                wrong.append(f"{at}.submit.{index}.name: a job {job.name} is there already; name it otherwise")
            elif isinstance(workload, str):
                wrong.append(f"{at}.submit.{index}.{workload}")
            else:
                came.append(workload)
            there.add(job.name)
        steps.append((_label(number, step), Step(tuple(came), tuple(step.finish))))
    if wrong:
        raise ValueError("\n".join(wrong))
    return steps


def _place(loc: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in loc)


def _label(number: int, step: StoryStep) -> str:
    parts = [f"{', '.join(step.finish)} ends"] if step.finish else []
    parts += [f"{', '.join(job.name for job in step.submit)} comes"] if step.submit else []
    return f"{number + 1}. {'; '.join(parts) or 'nothing happens'}"


def _workload(tree: Tree, job: Submitted) -> Workload | str:
    """A job as the queue gets it; or what is wrong with it, with its key first."""
    stack = tree.stack
    if job.team not in stack.teams:
        return f"team: there is no team {job.team}; {nearest(job.team, stack.teams)}"
    if job.flavor is not None and job.flavor not in tree.flavors:
        return f"flavor: there is no flavor {job.flavor}; {nearest(job.flavor, tree.flavors)}"
    priority = job.priority or stack.teams[job.team].priority
    if priority is not None and priority not in stack.priorities:
        return f"priority: there is no class {priority}; {nearest(priority, stack.priorities)}"
    training = Training.model_validate(
        {"image": "story:1", "flavor": job.flavor, "gpus": job.gpus, "workers": job.pods}
    )
    size = pod_size(tree, job.team, training)
    if size is None:
        return f"flavor: team {job.team} has several, or none; write which"
    default = next((each.value for each in stack.priorities.values() if each.default), 0)
    value = stack.priorities[priority].value if priority else default
    part = PodSet(size.amounts, job.pods, frozenset({size.flavor.name}))
    return Workload(job.name, tree.queue_of(job.team), (part,), value)
