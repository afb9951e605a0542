"""What a cluster uses of Kueue that the simulation does not cover."""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.inspect.pods import called
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kueue import Unmodelled, unmodelled

MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""The controller of the admission checks that send a workload to another cluster."""
_COVERED: Final = frozenset((Unmodelled.STOPPED_QUEUES, Unmodelled.NAMESPACES))
"""Not in the simulation, but the snapshot leaves out such workloads."""


def left_out(queues: Queues, target: str, workloads: Iterable[Workload]) -> tuple[Unmodelled, ...]:
    """What a ClusterQueue or the workloads of its tree use and the simulation does not cover."""
    state = queues.state
    queue = next(manifest for manifest in state.of("ClusterQueue") if called(manifest) == target)
    flavors = {flavor for flavor, _ in queues.cluster_queues[target].spec.quotas}
    objects: list[Mapping[str, Json]] = [{**queue, "kind": "ClusterQueue"}]
    objects += [{**item, "kind": "ResourceFlavor"} for item in state.of("ResourceFlavor") if called(item) in flavors]
    # Kueue writes a topology request into every workload; it has an effect only where a flavor has a topology.
    requested = set(unmodelled({**workload.manifest, "kind": "Workload"} for workload in workloads))
    used = (set(unmodelled(objects)) | requested - {Unmodelled.TOPOLOGY}) - _COVERED
    checks = {*_names(at(queue, "spec", "admissionChecks"))} | {
        text_at(check, "name") for check in maps_at(queue, "spec", "admissionChecksStrategy", "admissionChecks")
    }
    if any(
        called(check) in checks and text_at(check, "spec", "controllerName") == MULTIKUEUE
        for check in state.of("AdmissionCheck")
    ):
        used.add(Unmodelled.MULTIKUEUE)
    return tuple(part for part in Unmodelled if part in used)


def _names(value: Json) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []
