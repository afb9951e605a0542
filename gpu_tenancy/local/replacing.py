"""Another stack on the embedded platform, which carries one stack at a time.

`up --replace` deletes the whole platform and starts it again, whatever engine deployed the other stack. Pruning the
other stack's objects in place can block: for `local` followed by `example-tree` it did not end within 180 seconds,
because a TrainJob's Workload has a finalizer that only Kubeflow Trainer clears, and the new stack does not run it.
Deleting the platform takes 2 seconds, and starting it with the new stack 24 (two cores, 2026-11-22). This also deletes
what users and demos left: the new stack finds the same platform as after `tenancy local down`.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.inspect.pods import ended
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import UnknownKindError
from gpu_tenancy.model.plan.workloads import DEPLOYMENT, GANG
from gpu_tenancy.model.spec.roles import KINDS

_MANAGED: Final = "app.kubernetes.io/managed-by=gpu-tenancy"
"""Label selector of the namespaces of teams, whatever engine made them."""

_KINDS: Final = (
    ("server", DEPLOYMENT),
    ("job", *dict.fromkeys(kind.api for kind in KINDS.values()), GANG),
)


def other_stack(platform: Platform, name: str) -> str | None:
    """Name and content of another stack that the platform carries; None if it carries this one or none."""
    carried = platform.carried()
    if carried is None or carried.name == name:
        return None
    return f"{carried.name} ({plural(carried.objects, 'object')}, deployed with {carried.engine}{_running(platform)})"


def not_replaced(other: str, name: str) -> ConsoleError:
    """The error for a user who did not ask for the other stack to be deleted."""
    return ConsoleError(
        f"the embedded platform carries stack {other}",
        f"to delete it with everything on the platform and deploy {name}, run `tenancy local up {name} --replace`"
        f" (`make up STACK={name} REPLACE=1`)",
    )


def _running(platform: Platform) -> str:
    if not platform.kubeconfig.is_file():
        return ""
    with platform.cluster() as cluster:
        if not cluster.ready():
            return "; the platform is not running"
        return f"; running: {', '.join(_counts(cluster))}"


def _counts(cluster: Cluster) -> Iterator[str]:
    """Teams and what they run, also what is not of the stack; objects of other objects are not counted."""
    teams = [text_at(team, "metadata", "name") for team in cluster.list("v1", "Namespace", labels=_MANAGED)]
    yield plural(len(teams), "team")
    for noun, *kinds in _KINDS:
        found = [item for kind in kinds for item in _of(cluster, *kind) if _team(item) in teams]
        yield plural(sum(not at(item, "metadata", "ownerReferences") for item in found), noun)
    pods = [pod for pod in cluster.list("v1", "Pod") if _team(pod) in teams and not ended(pod)]
    yield plural(sum(bool(text_at(pod, "spec", "nodeName")) for pod in pods), "pod")


def _of(cluster: Cluster, api_version: str, kind: str) -> tuple[Manifest, ...]:
    with suppress(UnknownKindError):  # The stack does not need its operator.
        return cluster.list(api_version, kind, metadata_only=True)
    return ()


def _team(item: Manifest) -> str:
    return text_at(item, "metadata", "namespace")
