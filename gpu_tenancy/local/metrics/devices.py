"""Samples of simulated GPUs as NVIDIA's dcgm-exporter names them, and of simulated servers.

Names and labels: https://github.com/NVIDIA/dcgm-exporter/blob/4.5.3-4.8.2/internal/pkg/rendermetrics, read 2026-11-21.
Nothing measures these values: a GPU that a running pod holds is busy and filled by a share that follows from its
name and the minute, and any other is idle.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpu_tenancy.base.json import map_at, text_at, texts_at
from gpu_tenancy.inspect.pods import ended, requests
from gpu_tenancy.local.metrics.series import Manifest, Sample
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, find_gpu
from gpu_tenancy.model.plan.workloads import ServerPlan

_GPU: Final = "nvidia.com/gpu"
_PRODUCT: Final = PRODUCT_LABELS["nvidia.com"]
_NAME: Final = "app.kubernetes.io/name"
_MIB: Final = 2**20
_UNKNOWN_MEMORY: Final = 16 * 2**30
"""Of a GPU whose model is not in the catalogue."""


class Devices:
    """The GPUs of simulated nodes. A pod keeps its GPUs until it ends, as with a real device plugin."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], str] = {}

    def samples(self, nodes: Iterable[Manifest], pods: Sequence[Manifest], now: float) -> Iterator[Sample]:
        """The samples of all whole GPUs of NVIDIA's at a moment, in seconds since 1970."""
        counts = {text_at(node, "metadata", "name"): _count(node) for node in nodes if _count(node)}
        models = {text_at(node, "metadata", "name"): texts_at(node, "metadata", "labels") for node in nodes}
        by_uid = {text_at(pod, "metadata", "uid"): pod for pod in pods if not ended(pod)}
        self._hand_out(counts, by_uid)
        for node, count in counts.items():
            product = models[node].get(_PRODUCT, "unknown")
            model = find_gpu(product)
            memory = (model.memory if model and model.memory else _UNKNOWN_MEMORY) // _MIB
            for number in range(count):
                pod = by_uid.get(self._held.get((node, number), ""), {})
                labels = {
                    "gpu": str(number),
                    "UUID": f"GPU-{node}-{number}",
                    "device": f"nvidia{number}",
                    "modelName": product.replace("-", " "),
                    "Hostname": node,
                    "namespace": text_at(pod, "metadata", "namespace"),
                    "pod": text_at(pod, "metadata", "name"),
                }
                busy = _busy(f"{node}-{number}", now) if text_at(pod, "status", "phase") == "Running" else 0
                used = memory * min(95, busy + 5) // 100 if busy else 0
                values = {"GPU_UTIL": busy, "FB_USED": used, "FB_FREE": memory - used, "XID_ERRORS": 0}
                for field, value in {**values, "GPU_TEMP": 30 + busy // 2}.items():
                    yield f"DCGM_FI_DEV_{field}", labels, value

    def _hand_out(self, counts: dict[str, int], pods: dict[str, Manifest]) -> None:
        self._held = {
            (node, number): uid for (node, number), uid in self._held.items() if uid in pods and number < counts[node]
        }
        served = set(self._held.values())
        for uid, pod in pods.items():
            node = text_at(pod, "spec", "nodeName")
            if uid not in served and node in counts:
                free = [number for number in range(counts[node]) if (node, number) not in self._held]
                for number in free[: requests(map_at(pod, "spec")).get(_GPU, 0)]:
                    self._held[node, number] = uid


def latency_samples(servers: Iterable[ServerPlan], pods: Iterable[Manifest], now: float) -> Iterator[Sample]:
    """The latency of running pods of servers that scale by it: about as much as their target, in seconds."""
    targets = {
        (server.team, server.name): server.scaling.latency
        for server in servers
        if server.scaling and server.scaling.latency
    }
    for pod in pods:
        metadata = map_at(pod, "metadata")
        namespace, name = text_at(metadata, "namespace"), text_at(metadata, "name")
        latency = targets.get((namespace, texts_at(metadata, "labels").get(_NAME, "")))
        if latency and text_at(pod, "status", "phase") == "Running":
            metric, target = latency
            yield metric, {"namespace": namespace, "pod": name}, target * _busy(name, now) / 100


def _count(node: Manifest) -> int:
    """Whole GPUs of a ready node; without those that are shared, of which the node does not say how many there are."""
    if "-SHARED" in texts_at(node, "metadata", "labels").get(_PRODUCT, ""):
        return 0
    return int(texts_at(node, "status", "capacity").get(_GPU, "0"))


def _busy(name: str, now: float) -> int:
    """A share in percent, from 55 to 98, another one each minute."""
    return 55 + zlib.crc32(f"{name} {now // 60:.0f}".encode()) % 44
