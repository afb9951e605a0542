"""API Priority and Fairness: the requests of teams to the API server, apart from those of operators and of each other.

https://kubernetes.io/docs/concepts/cluster-administration/flow-control/. The flows are users: by namespace, a user
could fill the queues of another team with requests that RBAC rejects, which is asked only afterwards. A user fills only
some of the queues, which shuffle sharding chooses, so the requests of all others pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.plan.guards import accounts
from gpu_tenancy.model.plan.namespaces import NamespacePlan
from gpu_tenancy.model.plan.people import Subject

NAME: Final = "gpu-tenancy-teams"
"""Name of the FlowSchema and of its PriorityLevelConfiguration."""
PRECEDENCE: Final = 8000
"""Before `service-accounts` (9000), whose level operators share, and after those of the control plane (up to 900)."""
SHARES: Final = 40
"""Of the seats of the API server, to the 245 of the levels that Kubernetes has: as many as `workload-high`, in which
the controllers of kube-system are."""
LENDABLE: Final = 50
"""Percent of its seats that others use while teams do not."""
BORROWED: Final = 100
"""Percent of its seats that teams use of what others lend, at most."""
QUEUES: Final = 128
"""Queues, of which each flow has `HAND`: two users have the same ones in one of 5 billion cases."""
HAND: Final = 6
LENGTH: Final = 50
"""Requests that wait in one queue."""


@dataclass(frozen=True, slots=True)
class FlowsPlan:
    """Whose requests are those of teams: members, and all service accounts in their namespaces."""

    subjects: tuple[Subject, ...]


def flows(namespaces: Iterable[NamespacePlan]) -> FlowsPlan | None:
    """The flows of a stack's teams; None without teams."""
    spaces = tuple(namespaces)
    members = {subject for space in spaces for binding in space.bindings for subject in binding.subjects}
    within = (Subject("Group", accounts(space.name)) for space in spaces)
    return FlowsPlan(tuple(sorted({*members, *within}))) if spaces else None
