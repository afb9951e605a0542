"""A flood by one tenant: how long requests of another take meanwhile, and how large etcd becomes.

`python -m benchmarks.floods` starts a platform three times: without API Priority and Fairness, with the levels that
Kubernetes has, and with that of the stack. Counts of the stack do not apply: they would stop the flood.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from threading import Event
from unittest.mock import patch

from benchmarks.measuring import arguments
from benchmarks.projects import platform_in, quiet
from gpu_tenancy.base.json import Json
from gpu_tenancy.embedded import platform as embedded
from gpu_tenancy.embedded.parts import API_SERVER, Places, Ports, flags
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.client import Cluster, Manifest

_CLIENTS = 8
"""Clients of the flood, of eight connections each."""
_SECONDS = 20.0
_FLOWS = ("PriorityLevelConfiguration", "FlowSchema")
_FLOOD, _OTHER = "ml-experiments", "ml-research"
_ACCOUNT = "system:serviceaccount:{0}:ci"


def _unfair(part: str, places: Places, ports: Ports) -> list[str]:
    off = ["--enable-priority-and-fairness=false"] if part == API_SERVER else []
    return [*flags(part, places, ports), *off]


def main() -> None:
    """Prints a line for each setting."""
    parser = arguments(__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    count: int = parser.parse_args().objects
    own = [item.manifest for item in preview("local").objects if item.manifest.get("kind") in _FLOWS]
    nothing: list[Mapping[str, Json]] = []
    for title, fair, levels in (
        ("no APF", False, nothing),
        ("Kubernetes' levels", True, nothing),
        ("the stack's level", True, own),
    ):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as settings:
            if not fair:
                settings.enter_context(patch.object(embedded, "flags", _unfair))
            platform = settings.enter_context(platform_in(Path(folder) / "home"))
            platform.up(quiet)
            print(title, _measured(platform, sorted(levels, key=lambda one: _FLOWS.index(str(one["kind"]))), count))


def _measured(platform: Platform, levels: Sequence[Mapping[str, Json]], count: int) -> str:
    with platform.cluster() as cluster:
        for manifest in (*_people(), *levels):
            cluster.apply(manifest)
        time.sleep(3)
        before, idle = _size(platform), _latencies(cluster, 5, Event())
        with ExitStack() as opened, ThreadPoolExecutor(_CLIENTS * 8) as pool:
            clients = [opened.enter_context(platform.cluster()) for _ in range(_CLIENTS)]
            tenants = [client.impersonating(_ACCOUNT.format(_FLOOD)) for client in clients]
            created = time.perf_counter()
            creating = pool.submit(
                lambda: [*pool.map(_create, [tenants[n % _CLIENTS] for n in range(count)], range(count))]
            )
            writing = _latencies(cluster, _SECONDS, Event())
            creating.result()
            took, after = time.perf_counter() - created, _size(platform)
            done = Event()
            reading = [pool.submit(_list, tenant, done) for tenant in tenants for _ in range(7)]
            time.sleep(2)
            flooded = _latencies(cluster, _SECONDS, done)
            done.set()
            lists = sum(future.result() for future in reading)
    return (
        f"| {idle} | {writing} | {flooded} | {count:,} in {took:.0f} s | {lists} | {(after - before) / 2**20:.0f} MiB"
    )


def _people() -> Iterator[Manifest]:
    group = "rbac.authorization.k8s.io"
    for namespace in (_FLOOD, _OTHER):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        yield {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "ci", "namespace": namespace},
            "subjects": [{"kind": "ServiceAccount", "name": "ci", "namespace": namespace}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        }


def _config_map(namespace: str, name: str) -> Manifest:
    data: dict[str, Json] = {"text": "x" * 10_000}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def _create(tenant: Cluster, number: int) -> None:
    tenant.create(_config_map(_FLOOD, f"flood-{number}"))


def _list(tenant: Cluster, done: Event) -> int:
    count = 0
    while not done.is_set():
        tenant.rows("v1", "ConfigMap", namespace=_FLOOD)
        count += 1
    return count


def _latencies(cluster: Cluster, seconds: float, done: Event) -> str:
    """Median and 99th percentile of another tenant's creations of ConfigMaps."""
    other, taken = cluster.impersonating(_ACCOUNT.format(_OTHER)), list[float]()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and not done.is_set():
        began = time.perf_counter()
        other.create(_config_map(_OTHER, f"own-{time.monotonic_ns()}"))
        taken.append(time.perf_counter() - began)
        time.sleep(0.05)
    cuts = quantiles(taken, n=100)
    return f"{1000 * cuts[49]:.0f} / {1000 * cuts[98]:.0f} ms"


def _size(platform: Platform) -> int:
    """Bytes of etcd's database: of its file, which grows only."""
    return (platform.places.data / "member/snap/db").stat().st_size


if __name__ == "__main__":
    main()
