"""The platform of a stack: cluster, operators, dashboards and tenancy, in the order in which they need each other."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pulumi

from gpu_tenancy.model.plan import Plan, plan

from .adoption import adopting
from .clouds import open_cluster
from .config import configured_stack
from .infiniband import Infiniband
from .observability import Observability
from .operators import Operators
from .tenancy import GradualTenancy, Tenancy

PLATFORM: Final = "gpu-tenancy:index:Platform"
"""Type of the platform in programs of other languages."""


def deploy(project: Path) -> None:
    """Declares everything that the selected stack contains, and exports what other programs need.

    Args:
        project: folder of `Pulumi.yaml`, with the stacks' files in `stacks/`.

    Raises:
        pulumi.RunError: the stack is invalid; the message has every problem with its place and fix.
    """
    planned = plan(configured_stack(project))

    async def program() -> dict[str, Any]:
        with _without_traces():
            tenancy = GradualTenancy("tenancy", planned, _foundation(planned))
            await tenancy.register_teams()
        return outputs(planned)

    pulumi.run(program)


@contextmanager
def _without_traces() -> Generator[None]:
    """Has the SDK register resources without the stack of calls by which the program made each.

    The engine's state would be twice as large, with paths of this machine, and a file backend writes it at each step.
    An error of the program itself has its whole traceback, since the limit is lifted before it is printed:
    https://docs.python.org/3/library/sys.html#sys.tracebacklimit.
    """
    before: int | None = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = 1
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before


def build(planned: Plan, *, name: str = "", parent: pulumi.Resource | None = None) -> None:
    """Registers everything that a plan contains.

    Args:
        planned: of one environment.
        name: start of the names of all resources, for programs with several platforms; default: none.
        parent: of the cluster, the operators, the dashboards and the tenancy; default: the stack.

    Raises:
        pulumi.RunError: the cloud's package is not installed.
    """
    inside = _foundation(planned, name, parent)
    Tenancy(f"{_prefix(name)}tenancy", planned, inside, prefix=f"{name}." if name else "")


def _foundation(planned: Plan, name: str = "", parent: pulumi.Resource | None = None) -> pulumi.ResourceOptions:
    """Registers the cluster, operators and dashboards; returns the options of the tenancy."""
    prefix = _prefix(name)
    cluster = open_cluster(f"{prefix}cluster", planned.cluster, pulumi.ResourceOptions(parent=parent))
    own = pulumi.ResourceOptions(
        parent=parent,
        providers=[cluster.kubernetes],
        transformations=adopting(planned.cluster.section.adopt, cluster.api),
    )
    inside = pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=[*cluster.nodes]))
    if planned.operators:
        operators = Operators(f"{prefix}operators", planned.operators, inside)
        inside = pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=[operators]))
    if planned.infiniband:
        Infiniband(f"{prefix}infiniband", planned.infiniband, inside)
    if planned.observability:
        of_others = planned.monitoring not in {release.namespace for release in planned.operators}
        Observability(f"{prefix}observability", planned.observability, planned.monitoring, inside, of_others=of_others)
    return inside


def _prefix(name: str) -> str:
    return f"{name}-" if name else ""  # a hyphen, because clouds do not accept dots in names


def outputs(planned: Plan) -> dict[str, Any]:
    """What other programs need of a platform or a tenancy, by the names of its outputs."""
    return {
        "environment": planned.environment,
        "namespaces": [team.namespace.name for team in planned.teams],
        "gpuOperatorValues": planned.cluster.gpu_operator,
        "queues": {team.namespace.name: team.namespace.queue for team in planned.teams},
    }


class Platform(pulumi.ComponentResource):
    """Everything that a stack can declare, as one component: for programs that deploy other things too.

    The program of this project has no such component: its resources are children of the stack. Names of resources
    start with the component's name, so that a program can have several platforms.

    Example:
        >>> Platform("ml", plan(stack))
    """

    def __init__(self, name: str, planned: Plan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(PLATFORM, name, {}, opts)
        build(planned, name=name, parent=self)
        self.register_outputs(outputs(planned))
