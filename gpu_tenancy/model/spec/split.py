"""How an environment is divided into several Pulumi stacks."""

from gpu_tenancy.model.spec.base import Name, Section


class Split(Section):
    """Several Pulumi stacks for one environment: `tenancy up STACK --all` deploys them in order and side by side.

    The stacks are `STACK.cluster` (a cloud's cluster and node pools), `STACK.operators` (with dashboards),
    `STACK.tenancy` (priorities, queues, guards, and all other teams) and `STACK.cohort.NAME` for each cohort below.
    Each has a state of its own, so a small change reads and writes little, and a failure stops only its own stack.
    """

    cohorts: list[Name] = []
    """Cohorts that get a stack of their own, for their teams and those of the cohorts below them."""
