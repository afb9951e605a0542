"""Runtimes of Kubeflow Trainer: one for each TrainJob, and those that TrainJobs of users need."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.plan.operators.needs import framework_used
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import JobPlan, jobs
from gpu_tenancy.model.spec.roles import Framework

SHIPPED: Final[dict[Framework, str]] = {"pytorch": "torch-distributed", "jax": "jax-distributed"}
"""Trainer's own runtimes, which users can name in their TrainJobs, by framework."""


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """A TrainingRuntime of Kubeflow Trainer: what the pods of its TrainJobs have, and what TrainJobs cannot patch.

    Attributes:
        priority: priority class of the pods; None for the cluster's default.
        job: the only job that uses it; None for a runtime for users.
    """

    name: str
    team: str
    framework: Framework
    priority: str | None
    job: JobPlan | None = None


def runtimes(tree: Tree, team: str) -> tuple[RuntimePlan, ...]:
    """A team's runtimes: one for each TrainJob, and one for each class of a namespace that admits only some classes.

    There, TrainJobs with Trainer's own runtimes would never get a pod. Empty without Kubeflow Trainer.
    """
    if not tree.trainer:
        return ()
    return (*_of_jobs(tree, team), *_of_classes(tree, team))


def _of_jobs(tree: Tree, team: str) -> Iterator[RuntimePlan]:
    for job in jobs(tree, team):
        if job.runtime:
            yield RuntimePlan(job.runtime, team, job.framework, job.pod.priority, job)


def _of_classes(tree: Tree, team: str) -> Iterator[RuntimePlan]:
    for framework, name in SHIPPED.items():
        if framework == "pytorch" or framework_used(tree.stack, framework):
            for priority in sorted(tree.stack.teams[team].compute.priorities):
                yield RuntimePlan(f"{name}-{priority}", team, framework, priority)
