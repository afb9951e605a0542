"""The program of a stack: cluster, operators, dashboards and tenancy, in the order in which they need each other."""

from pathlib import Path

import pulumi

from gpu_tenancy.model.plan import plan

from .clouds import open_cluster
from .config import configured_stack
from .observability import Observability
from .operators import Operators
from .tenancy import Tenancy


def deploy(project: Path) -> None:
    """Declares everything that the selected stack says, and exports what other programs need.

    Args:
        project: folder of `Pulumi.yaml`, with the stacks' files in `stacks/`.

    Raises:
        pulumi.RunError: the stack is wrong; the message has every problem with its place and fix.
    """
    planned = plan(configured_stack(project))
    cluster = open_cluster("cluster", planned.fleet)
    within = pulumi.ResourceOptions(providers=[cluster.kubernetes], depends_on=[*cluster.nodes])
    if planned.operators:
        operators = Operators("operators", planned.operators, within)
        within = pulumi.ResourceOptions(providers=[cluster.kubernetes], depends_on=[operators])
    if planned.observability:
        of_others = planned.monitoring not in {release.namespace for release in planned.operators}
        Observability("observability", planned.observability, planned.monitoring, within, of_others=of_others)
    Tenancy("tenancy", planned, within)

    pulumi.export("environment", planned.environment)
    pulumi.export("namespaces", [team.namespace.name for team in planned.teams])
    pulumi.export("gpuOperatorValues", planned.fleet.gpu_operator)
    pulumi.export("queues", {team.namespace.name: team.namespace.queue for team in planned.teams})
