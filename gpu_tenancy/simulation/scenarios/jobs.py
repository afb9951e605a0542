"""The steps of a scenario, with the jobs that are submitted and that end."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_tenancy.kueue import PodSet, Step, Workload


@dataclass(frozen=True, slots=True)
class Job:
    """A job to submit, with all defaults resolved.

    Attributes:
        name: unique among current jobs, and valid for a Job of Kubernetes.
        team: the team that submits it; its namespace.
        queue: the team whose ClusterQueue gets it, usually the same.
        flavor: the flavor that its pods select.
        requests: of one pod, in base units; the same as limits.
        pods: number of pods, which are admitted together.
        priority: name of its priority class; None for the default.
        priority_value: value of the class.
    """

    name: str
    team: str
    queue: str
    flavor: str
    requests: Mapping[str, int]
    pods: int = 1
    priority: str | None = None
    priority_value: int = 0

    @property
    def workload(self) -> Workload:
        """The job as the simulation of Kueue takes it."""
        part = PodSet(self.requests, self.pods, frozenset({self.flavor}))
        return Workload(self.name, self.queue, (part,), self.priority_value)


@dataclass(frozen=True, slots=True)
class JobStep:
    """One step of a scenario: jobs end, then jobs are submitted, in the order given.

    Attributes:
        label: `2. submit big`.
        finish: names of running or pending jobs.
    """

    label: str
    finish: tuple[str, ...] = ()
    submit: tuple[Job, ...] = ()

    @property
    def step(self) -> Step:
        """The step as the simulation of Kueue takes it."""
        return Step(tuple(job.workload for job in self.submit), self.finish)
