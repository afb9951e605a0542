"""The program: read the stack, plan it, build it, export what others need."""

from pathlib import Path

import pulumi

from components.clouds import open_cluster
from components.config import configured_stack
from components.observability import Observability
from components.operators import Operators
from components.tenancy import Tenancy
from model.plan import plan

planned = plan(configured_stack(Path(__file__).parent))
cluster = open_cluster("cluster", planned.fleet)
within = pulumi.ResourceOptions(providers=[cluster.kubernetes], depends_on=[*cluster.nodes])
if planned.operators:
    operators = Operators("operators", planned.operators, within)
    within = pulumi.ResourceOptions(providers=[cluster.kubernetes], depends_on=[operators])
if planned.observability:
    of_others = planned.monitoring not in {release.namespace for release in planned.operators}
    Observability("observability", planned.observability, planned.monitoring, within, of_others=of_others)
tenancy = Tenancy("tenancy", planned, within)

pulumi.export("environment", planned.environment)
pulumi.export("namespaces", [team.namespace.name for team in planned.teams])
pulumi.export("gpuOperatorValues", planned.fleet.gpu_operator)
pulumi.export("queues", {team.namespace.name: team.namespace.queue for team in planned.teams})
