"""Runtimes of Kubeflow Trainer: one for each TrainJob, and those that TrainJobs of users need."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.model.plan.needs import framework_used, there
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import SHIPPED, JobPlan, class_runtime, jobs
from gpu_tenancy.model.spec.roles import Framework


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
    if not there(tree, "trainer"):
        return ()
    return (*_of_jobs(tree, team), *_of_classes(tree, team))


def _of_jobs(tree: Tree, team: str) -> Iterator[RuntimePlan]:
    for job in jobs(tree, team):
        if job.runtime and not job.dispatched:
            yield RuntimePlan(job.runtime, team, job.framework, job.pod.priority, job)


def _of_classes(tree: Tree, team: str) -> Iterator[RuntimePlan]:
    # TrainJobs of a MultiKueue manager name its runtimes, which are not copied to a worker.
    several = tree.stack.multikueue is not None
    classes = tree.stack.teams[team].compute.priorities or (tree.stack.priorities if several else ())
    for framework in SHIPPED:
        if framework == "pytorch" or several or framework_used(tree.stack, framework):
            for priority in sorted(classes):
                yield RuntimePlan(class_runtime(framework, priority), team, framework, priority)
