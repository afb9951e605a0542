"""MultiKueue: a stack whose workloads run in the clusters of other stacks, or that runs those of another stack."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from gpu_tenancy.model.fields import Name, Seconds, Section, refuse
from gpu_tenancy.model.spec.pools import Pool


class Worker(Section):
    """A worker cluster: another stack of this project, and the Secret by which Kueue reaches its API server."""

    name: Name
    """Name of the MultiKueueCluster."""
    stack: Name
    """Stack of the worker, whose file is beside this one. Its pools, teams and quotas are those of the manager."""
    secret: Name
    """Secret in Kueue's namespace of the manager's cluster, whose key `kubeconfig` has a kubeconfig of the worker.
    `tenancy access worker-kubeconfig` writes it; no stack and no program has its content."""


class MultiKueue(Section):
    """MultiKueue: `workers` in the stack of the manager, `manager` in the stack of each worker.

    Users submit to the manager. Each workload with quota there is created in the workers, and runs in the first one
    that admits it. The manager has no pools: its flavors, teams, cohorts and priorities are those of its workers.
    """

    workers: Annotated[list[Worker], Field(max_length=20)] = []
    """Worker clusters, in the order in which `incremental` tries them."""
    manager: Name | None = None
    """Stack of the manager, whose file is beside this one and names this stack under `workers`."""
    worker_lost_timeout: Annotated[Seconds, Field(ge=1)] = 900.0
    """Time after which workloads of a worker that is not reachable are queued again, for another worker."""
    dispatcher: Literal["all-at-once", "incremental"] = "all-at-once"
    """`all-at-once`: all workers get a workload, and the first that admits it runs it. `incremental`: three workers
    get it, after five minutes three more, in the order of `workers`."""
    pools: SkipJsonSchema[dict[Name, Pool]] = {}
    """The workers' pools, as `model.workers` reads them; not a key of the file."""

    @model_validator(mode="after")
    def _one_role(self) -> Self:
        if bool(self.workers) == (self.manager is not None):
            raise refuse("must set exactly one of workers and manager", "set one of them, and remove the other")
        for key in ("name", "stack"):
            values = [getattr(worker, key) for worker in self.workers]
            if twice := sorted({value for value in values if values.count(value) > 1}):
                raise refuse(f"has several workers with {key} {twice[0]}", f"set a {key} of its own for each worker")
        if self.manager is not None and self.model_fields_set & {"worker_lost_timeout", "dispatcher"}:
            raise refuse(
                "sets workerLostTimeout or dispatcher, which only the manager has", "set it in the stack of the manager"
            )
        return self
