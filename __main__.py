"""The program: read the stack, plan it, build it, export what others need."""

from pathlib import Path

import pulumi

from components.cluster import cluster_provider
from components.config import configured_stack
from components.tenancy import Tenancy
from model.plan import plan

planned = plan(configured_stack(Path(__file__).parent))
provider = cluster_provider("cluster", planned.cluster)
tenancy = Tenancy("tenancy", planned, pulumi.ResourceOptions(providers=[provider]))

pulumi.export("environment", planned.environment)
pulumi.export("namespaces", [team.namespace.name for team in planned.teams])
pulumi.export("queues", {team.namespace.name: team.namespace.queue for team in planned.teams})
