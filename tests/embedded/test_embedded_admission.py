"""Operators of the reference stacks start under the admission settings of their clouds.

Their charts are rendered; otherwise their descriptions define the pods. Controllers create the pods, the scheduler
places them on system nodes, of which there are as few as a created cluster can have.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from platforms import running
from rendered_charts import RENDERED, TEMPLATED, rendered
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.json import Json, at, int_at, map_at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amounts
from gpu_tenancy.cluster.pods import name_of, namespace_of
from gpu_tenancy.embedded.controllers.launching import placed
from gpu_tenancy.embedded.definitions.pins import Module, read_pins
from gpu_tenancy.embedded.nodes import NodeShape, bring_nodes, node_shapes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.model.catalogue import allocatable
from gpu_tenancy.model.catalogue.operators import CRITICAL, charts
from gpu_tenancy.model.plan.cluster import cluster_plan
from gpu_tenancy.model.plan.operators import ReleasePlan, releases
from gpu_tenancy.model.plan.shares import Tree

pytestmark = [pytest.mark.platform, pytest.mark.slow]

STACKS: Final = {"eks": ("dev-aws", "prod-aws"), "gke": ("prod-gcp",), "aks": ("prod-azure",)}
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
PINS: Final = [pin for pin in read_pins() if isinstance(pin.source, Module)]
_FIRST: Final = ("Namespace", "ServiceAccount", "ConfigMap", "Secret")
_LEFT_OUT: Final = frozenset(
    # Installed by their pins, or served by programs that no kubelet runs.
    {"CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService"}
)


@pytest.mark.parametrize("service", STACKS)
def test_operators_come_up_on(service: str, tmp_path: Path, report: Report) -> None:
    with running(tmp_path / "home", report, service, PINS) as platform, platform.cluster() as cluster:
        assert refused(cluster) == (service == "gke")
        assert tolerations_of_gpus(cluster) == ["nvidia.com/gpu"]
        for name in STACKS[service]:
            come_up(cluster, name, report)


def test_settings_stay_until_those_of_another_service_are_named(tmp_path: Path, report: Report) -> None:
    with running(tmp_path / "home", report, "gke") as platform:
        before = platform.status()
        platform.up(report)
        assert platform.status() == before
        platform.up(report, "eks")
        with platform.cluster() as cluster:
            assert not refused(cluster)


def refused(cluster: Cluster) -> bool:
    """Whether a pod of a system class is refused in a namespace without the quota."""
    try:
        cluster.apply(pod("critical", {"priorityClassName": CRITICAL[0]}), dry_run=True)
    except ApiError as error:
        return "insufficient quota to match these scopes" in str(error)
    return False


def tolerations_of_gpus(cluster: Cluster) -> list[str]:
    """The taints that a pod with a GPU tolerates by admission."""
    resources: Json = {"limits": {"nvidia.com/gpu": "1"}}
    containers: Json = [{"name": "main", "image": "registry.example.com/main:1.0", "resources": resources}]
    made = cluster.apply(pod("gpu", {"containers": containers}), dry_run=True)
    return [
        key
        for one in maps_at(made, "spec", "tolerations")
        if not (key := text_at(one, "key")).startswith("node.kubernetes.io/")
    ]


def pod(name: str, spec: dict[str, Json]) -> Manifest:
    containers: Json = [{"name": "main", "image": "registry.example.com/main:1.0"}]
    metadata: Json = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def come_up(cluster: Cluster, name: str, report: Report) -> None:
    """Applies the operators of a stack in their order, each with the stack's objects in its namespace."""
    preview = stack_of_repository(name)
    tree = Tree(preview.declared)
    bring_nodes(cluster, tuple(system_nodes(tree)))
    ours = [dict(one.manifest) for one in preview.objects]
    served = set[str]()
    for release in releases(tree):
        objects = rendered(release, report) if release.name in RENDERED else list(described(release))
        at_install = [one for one in objects if one["kind"] not in _LEFT_OUT and installed(one)]
        served |= set(release.serves)
        groups = {text_at(one, "apiVersion").rpartition("/")[0] for one in at_install} & {pin.group for pin in PINS}
        assert groups <= served, f"{release.name} comes before the definitions of its objects"
        of_release = [one for one in ours if release.namespace in {namespace_of(one), name_of(one)}]
        for one in of_release:
            if one["kind"] in {"Namespace", "ResourceQuota"}:
                cluster.apply(enforced(one) if one["kind"] == "Namespace" else one)
        gate = [one for one in of_release if name_of(one).startswith(f"{release.name}-gate")]
        for one in sorted([*at_install, *gate], key=lambda one: one["kind"] not in _FIRST):
            cluster.apply(placed(cluster, one, release.namespace), force=True, metadata_only=True)
    namespaces = sorted({release.namespace for release in releases(tree)})
    with suppress(WaitTimeoutError):
        cluster.wait_for(lambda: not waiting(cluster, namespaces), timeout=60)
    assert waiting(cluster, namespaces) == []


def installed(one: Manifest) -> bool:
    """Whether an object is created by an installation: it is not a hook, or an installation's hook."""
    hook = map_at(one, "metadata", "annotations").get("helm.sh/hook")
    return hook is None or "-install" in str(hook)


def enforced(namespace: Manifest) -> Manifest:
    """A namespace that enforces `baseline` by default, as the description of its operators promises."""
    metadata = map_at(namespace, "metadata")
    labels: Json = {_ENFORCE: "baseline", **map_at(metadata, "labels")}
    return {**namespace, "metadata": {**metadata, "labels": labels}}


def system_nodes(tree: Tree) -> Iterator[NodeShape]:
    """The fewest system nodes of a created cluster; otherwise the pools of the stack."""
    system = cluster_plan(tree).system
    if system is None:
        yield from node_shapes(tree.stack)
        return
    cpu, memory = allocatable(system.machine)
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": system.machine.architecture}
    for number in range(system.minimum):
        yield NodeShape(f"system-{number}", labels, (), {**format_amounts({CPU: cpu, MEMORY: memory}), "pods": "110"})


def described(release: ReleasePlan) -> Iterator[Manifest]:
    """Owners of the pods in a description: one for each class, and one on all nodes if its pods need them."""
    row = charts()[release.name]
    requests: Json = {**format_amounts({CPU: row.requests.cpu, MEMORY: row.requests.memory})}
    main: dict[str, Json] = {"name": "main", "image": "registry.example.com/main:1.0"}
    for name in row.priority_classes or ("",):
        spec: dict[str, Json] = {"containers": [{**main, "resources": {"requests": requests}}]}
        yield owner("Deployment", f"{release.name}-{name or 'none'}", {**spec, "priorityClassName": name})
    if row.privileged:
        class_name = row.priority_classes[0] if row.priority_classes else ""
        privileged: Json = [{**main, "securityContext": {"privileged": True}}]
        spec = {"hostPID": True, "tolerations": [{"operator": "Exists"}], "containers": privileged}
        yield owner("DaemonSet", f"{release.name}-nodes", {**spec, "priorityClassName": class_name})


def owner(kind: str, name: str, spec: dict[str, Json]) -> Manifest:
    labels: Json = {"app": name}
    template: Json = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def waiting(cluster: Cluster, namespaces: Sequence[str]) -> list[str]:
    """Owners without their pods, and pods without a node."""
    found: list[str] = []
    for namespace in namespaces:
        pods = cluster.list("v1", "Pod", namespace=namespace)
        found += [f"{namespace}/{name_of(one)}" for one in pods if not text_at(one, "spec", "nodeName")]
        for kind in TEMPLATED:
            for one in cluster.list("batch/v1" if kind == "Job" else "apps/v1", kind, namespace=namespace):
                if created(one) < expected(one):
                    found.append(f"{namespace}/{kind} {name_of(one)}")
    return found


def created(one: Manifest) -> int:
    status = map_at(one, "status")
    return sum(int_at(status, key) for key in ("replicas", "currentNumberScheduled", "active", "succeeded"))


def expected(one: Manifest) -> int:
    if one["kind"] == "DaemonSet":
        return int_at(one, "status", "desiredNumberScheduled") or 1
    replicas = at(one, "spec", "replicas")
    return replicas if isinstance(replicas, int) else 1
