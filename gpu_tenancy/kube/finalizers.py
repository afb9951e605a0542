"""Objects that cannot be pruned, because only a controller that does not run clears their finalizers."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.inventory import Inventory
from gpu_tenancy.kube.references import Key

_KUEUE: Final = "kueue.x-k8s.io"
_LISTED: Final = 5


def check_prunable(
    cluster: Cluster, inventory: Path, wanted: Collection[Key], running: Collection[str], name: str
) -> None:
    """Checks that nothing would wait for Kueue to clear a finalizer while Kueue does not run.

    Args:
        cluster: with what an earlier run applied.
        inventory: file of the applied objects.
        wanted: the objects of the stack.
        running: charts whose controllers run.
        name: of the stack.

    Raises:
        ConsoleError: an object that is no longer in the stack has such a finalizer; nothing was changed.
    """
    if "kueue" in running:
        return
    stale = [entry.reference for entry in Inventory.load(inventory).others(wanted) if entry.reference.group == _KUEUE]
    served = [reference for one in stale if (reference := cluster.served(one))]
    held = [
        str(one) for one in served if _held(at(cluster.get(*one, metadata_only=True) or {}, "metadata", "finalizers"))
    ]
    if held:
        more = f" and {len(held) - _LISTED} more" if len(held) > _LISTED else ""
        raise ConsoleError(
            f"objects are no longer in the stack, but have finalizers that only Kueue clears, which does not run: "
            f"{', '.join(held[:_LISTED])}{more}",
            f"run `tenancy up {name}` with controllers, which starts Kueue, or `tenancy down` first",
        )


def _held(finalizers: Json) -> bool:
    return isinstance(finalizers, list) and any(str(one).startswith(_KUEUE) for one in finalizers)
