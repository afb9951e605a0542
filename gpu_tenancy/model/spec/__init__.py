"""What a stack may say: one closed, frozen section for each key of the Pulumi config."""

from typing import Literal

from gpu_tenancy.model.spec.base import Name, Section
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster
from gpu_tenancy.model.spec.cluster import Cluster, Metrics
from gpu_tenancy.model.spec.guards import Guards, GuardsEntry
from gpu_tenancy.model.spec.machines import MachineEntry, PriceEntry
from gpu_tenancy.model.spec.operators import Operators
from gpu_tenancy.model.spec.pools import Pool
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.tenancy import Cohort, PriorityEntry
from gpu_tenancy.model.spec.workloads import DatasetEntry

NAMESPACE = "gpu-tenancy"
"""Namespace of the Pulumi config keys: the project's name."""


class Stack(Section):
    """One environment."""

    environment: Name = "dev"
    """Label `environment` on what is made, such as dev, staging or prod."""
    cluster: Cluster = ExistingCluster(cloud="existing")
    """Where the tenancy lives."""
    pools: dict[Name, Pool]
    """Node pools by name."""
    machines: dict[str, MachineEntry] = {}
    """Machine types beside those of the catalogue, or in place of them, by the cloud's name for them."""
    prices: dict[str, PriceEntry] = {}
    """Prices of machine types in place of the catalogue's: yours, or your region's."""
    priorities: dict[Name, PriorityEntry] = {}
    """Priority classes by name."""
    fairness: Literal["hierarchical", "even"] = "hierarchical"
    """How teams share what nobody is guaranteed. `hierarchical`: groups' bounds hold, and a group within its own
    share reclaims before its neighbours. `even`: teams borrow by weight, whatever their group, and no group may bound
    them."""
    cohorts: dict[Name, Cohort] = {}
    """Groups of teams, a tree of any depth; left out, one root named `org`."""
    teams: dict[Name, Team] = {}
    """Teams by name, which is their namespace's."""
    datasets: dict[Name, DatasetEntry] = {}
    """Datasets by name: a bucket, or spelled out."""
    metrics: Metrics = Metrics()
    """Custom metrics that servers may scale on."""
    operators: Operators = Operators()
    """What runs in the cluster that the tenancy relies on, and who installs it."""
    guards: GuardsEntry = Guards()
    """What the API server refuses of what tenants make after the deployment."""


__all__ = ["NAMESPACE", "Stack"]
