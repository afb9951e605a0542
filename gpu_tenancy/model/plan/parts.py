"""The Pulumi stacks into which an environment is divided."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.plan.queues import gang_queue_name
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import NAMESPACE
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster

KEY: Final = f"{NAMESPACE}:part"
"""Config key of the Pulumi stacks into which an environment is divided; its value is the name of the part."""
CLUSTER: Final = "cluster"
OPERATORS: Final = "operators"
TENANCY: Final = "tenancy"
_COHORT: Final = "cohort."
_STAGES: Final = (CLUSTER, OPERATORS, TENANCY)


@dataclass(frozen=True, slots=True)
class Part:
    """One of the Pulumi stacks of an environment.

    Attributes:
        name: `cluster`, `operators`, `tenancy` or `cohort.NAME`; the stack's name is the environment's, a dot and this.
        teams: whose namespaces it has, with all that is in them.
        cluster_queues: names of its ClusterQueues.
        gang_queues: names of its Volcano queues.
    """

    name: str
    teams: frozenset[str] = frozenset()
    cluster_queues: frozenset[str] = frozenset()
    gang_queues: frozenset[str] = frozenset()

    @property
    def stage(self) -> int:
        """When it is deployed: after all parts of lower stages, and together with those of the same stage."""
        return _STAGES.index(self.name) if self.name in _STAGES else len(_STAGES)

    @property
    def has_shared(self) -> bool:
        """Whether it has what all teams share: priorities, guards, flavors, cohorts."""
        return self.name == TENANCY


def is_part(name: str) -> bool:
    """Whether a part of any environment can have this name."""
    return name in _STAGES or name.startswith(_COHORT)


def parts(tree: Tree, *, operators: bool) -> tuple[Part, ...]:
    """The parts of a stack, by stage; empty if it is not divided.

    Args:
        tree: of the stack.
        operators: whether the stack installs operators or dashboards.
    """
    split = tree.stack.split
    if split is None:
        return ()
    on_cloud = not isinstance(tree.stack.cluster, ExistingCluster)
    before = [name for name, exists in ((CLUSTER, on_cloud), (OPERATORS, operators)) if exists]
    home = {team: _home(tree, team, frozenset(split.cohorts)) for team in tree.stack.teams}
    names = (TENANCY, *(f"{_COHORT}{cohort}" for cohort in dict.fromkeys(split.cohorts)))
    return (*map(Part, before), *(_of_teams(tree, name, home) for name in names))


def _home(tree: Tree, team: str, split: frozenset[str]) -> str:
    """The part of a team: that of the nearest cohort above its queue with a part of its own."""
    above = tree.above(tree.cohort_of(tree.queue_of(team)))
    return next((f"{_COHORT}{cohort}" for cohort in above if cohort in split), TENANCY)


def _of_teams(tree: Tree, name: str, home: Mapping[str, str]) -> Part:
    teams = [team for team, part in home.items() if part == name]
    return Part(
        name,
        teams=frozenset(teams),
        cluster_queues=frozenset(owner for owner in tree.queue_owners if home[owner] == name),
        gang_queues=frozenset(
            gang_queue_name(team, flavor) for team in teams for flavor in tree.stack.teams[team].gangs
        ),
    )
