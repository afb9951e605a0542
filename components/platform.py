"""The platform of a stack: cluster, operators, dashboards and tenancy, in the order in which they need each other."""

from pathlib import Path
from typing import Any, Final

import pulumi

from gpu_tenancy.model.plan import Plan, plan

from .clouds import open_cluster
from .config import configured_stack
from .infiniband import Infiniband
from .observability import Observability
from .operators import Operators
from .tenancy import Tenancy

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
    build(planned)
    for name, value in outputs(planned).items():
        pulumi.export(name, value)


def build(planned: Plan, *, name: str = "", parent: pulumi.Resource | None = None) -> None:
    """Registers everything that a plan contains.

    Args:
        planned: of one environment.
        name: start of the names of all resources, for programs with several platforms; default: none.
        parent: of the cluster, the operators, the dashboards and the tenancy; default: the stack.

    Raises:
        pulumi.RunError: the cloud's package is not installed.
    """
    prefix = f"{name}-" if name else ""  # a hyphen, because clouds do not accept dots in names
    own = pulumi.ResourceOptions(parent=parent)
    cluster = open_cluster(f"{prefix}cluster", planned.cluster, own)
    inside = pulumi.ResourceOptions(parent=parent, providers=[cluster.kubernetes], depends_on=[*cluster.nodes])
    if planned.operators:
        operators = Operators(f"{prefix}operators", planned.operators, inside)
        inside = pulumi.ResourceOptions(parent=parent, providers=[cluster.kubernetes], depends_on=[operators])
    if planned.infiniband:
        Infiniband(f"{prefix}infiniband", planned.infiniband, inside)
    if planned.observability:
        of_others = planned.monitoring not in {release.namespace for release in planned.operators}
        Observability(f"{prefix}observability", planned.observability, planned.monitoring, inside, of_others=of_others)
    Tenancy(f"{prefix}tenancy", planned, inside, prefix=f"{name}." if name else "")


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
