"""The schema of a stack: one closed, frozen section for each key of the Pulumi config."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from gpu_tenancy.model.fields import DottedName, Name, Section, Shorthand
from gpu_tenancy.model.spec.cluster import Cluster, ExistingCluster, Metrics
from gpu_tenancy.model.spec.data import DatasetEntry
from gpu_tenancy.model.spec.operators import Operators
from gpu_tenancy.model.spec.people import Action, Guards, GuardsEntry, Images, People
from gpu_tenancy.model.spec.pools import MachineEntry, Pool, PriceEntry
from gpu_tenancy.model.spec.teams import Idle, IdleEntry, Team
from gpu_tenancy.model.spec.tenancy import Cohort, Fairness, MultiKueue, PriorityEntry

NAMESPACE = "gpu-tenancy"
"""Namespace of the Pulumi config keys: the project's name."""
_PRODUCTION: Final = ("prod", "prd", "live")
"""How the names of production environments begin, for stacks without the key `production`."""


def is_production(environment: str, *, declared: bool | None) -> bool:
    """Whether an environment is production: as the key `production` says, else by the beginning of its name."""
    return environment.lower().startswith(_PRODUCTION) if declared is None else declared


def _of_config(value: Any) -> Any:
    """A boolean from its text: Pulumi gives the program the values of top-level keys as texts."""
    return value == "true" if value in ("true", "false") else value


class Split(Section):
    """Three Pulumi stacks for one environment: `tenancy up STACK` deploys them in order.

    The stacks are `STACK.cluster` (a cloud's cluster and node pools), `STACK.operators` (with dashboards) and
    `STACK.tenancy` (priorities, queues, guards and teams). Each has a state of its own. The section has no keys.
    """


class Stack(Section):
    """One environment."""

    environment: Name = "dev"
    """Value of the label `environment` on all objects, such as dev, staging or prod."""
    production: Annotated[bool | None, BeforeValidator(_of_config)] = None
    """Whether Pulumi refuses to delete clusters, pools, keys and buckets, guards `deny` by default, and policy packs
    have their settings for production. Default: true if `environment` begins with `prod`, `prd` or `live`."""
    cluster: Cluster = ExistingCluster(cloud="existing")
    """The cluster: created here, or an existing one."""
    pools: dict[Name, Pool]
    """Node pools by name."""
    machines: dict[str, MachineEntry] = {}
    """Machine types that extend or override the catalogue, by the cloud's name."""
    prices: dict[str, PriceEntry] = {}
    """Prices that override the catalogue's: by machine type, or by class or StorageClass of storage."""
    priorities: dict[Name, PriorityEntry] = {}
    """Priority classes by name."""
    fairness: Annotated[Fairness, Shorthand(str, ("kind",))] = Fairness()
    """How teams share unguaranteed quota: `hierarchical`, `even`, or `{kind, …}`."""
    cohorts: dict[DottedName, Cohort] = {}
    """Groups of teams (Kueue cohorts), a tree of any depth; default: one root named `org`."""
    teams: dict[Name, Team] = {}
    """Teams by name; the name is also the namespace. Or a file beside the stack's file that has this section, such as
    `teams.yaml`: Pulumi does not start the program of a stack whose config is longer than 128 KiB."""
    idle: IdleEntry | None = None
    """What happens to jobs of all teams whose GPUs are idle: `notify`, `requeue`, `cancel`, or a mapping; default:
    nothing."""
    people: People = People()
    """Administrators and auditors, and short names for people; or a file beside the stack's file that has this section,
    such as `people.yaml`, for several stacks."""
    datasets: dict[Name, DatasetEntry] = {}
    """Datasets by name: a bucket, or a mapping."""
    metrics: Metrics = Metrics()
    """Custom metrics that servers can scale on."""
    operators: Operators = Operators()
    """Operators that the tenancy depends on, and who installs them."""
    guards: GuardsEntry = Guards()
    """Admission policies for objects that tenants create in their namespaces."""
    images: Images = Images()
    """Registries of the teams' images."""
    multikueue: MultiKueue | None = None
    """Worker clusters in which the workloads of this stack run, or the manager whose workloads this one runs."""
    split: Split | None = None
    """Division into the Pulumi stacks cluster, operators and tenancy: `split: {}`; default: one stack."""

    @property
    def is_production(self) -> bool:
        """Whether this is production; nothing else decides it."""
        return is_production(self.environment, declared=self.production)

    @property
    def guards_action(self) -> Action:
        """What guards do with objects that violate them."""
        return self.guards.action or ("deny" if self.is_production else "warn")

    @property
    def standing(self) -> str:
        """`production (protected, guards deny)`, for output."""
        kind, protected = ("production", "protected") if self.is_production else ("not production", "not protected")
        return f"{kind} ({protected}, guards {self.guards_action})"

    def idle_of(self, team: str) -> Idle | None:
        """What happens to jobs of a team whose GPUs are idle; None if nothing."""
        idle = self.teams[team].idle or self.idle
        return idle if idle and idle.then != "off" else None

    @property
    def idle_teams(self) -> Mapping[str, Idle]:
        """The teams whose idle GPUs have consequences; of one team, ask `idle_of`."""
        return {name: idle for name in self.teams if (idle := self.idle_of(name))}

    @property
    def elsewhere(self) -> Mapping[str, Pool]:
        """Pools of worker clusters, in which all workloads of this stack run; empty for any other stack."""
        return self.multikueue.pools if self.multikueue else {}

    @property
    def dispatches(self) -> bool:
        """Whether this is the stack of a MultiKueue manager."""
        return self.multikueue is not None and bool(self.multikueue.workers)
