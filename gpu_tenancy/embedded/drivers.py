"""Objects that drivers, operators and people would create: claims' devices, volumes, caches, and Secrets.

Of the devices: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.base.quantity import CHANNELS, INTERFACES, format_bytes, parse_bytes
from gpu_tenancy.embedded.nodes import node_shapes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.names import CHANNEL_CLASS, CLAIM_CLASSES, COMPUTE_DOMAIN
from gpu_tenancy.model.plan.datasets import CachedDataset
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claimed_on
from gpu_tenancy.model.plan.notebooks import OfferedHome
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.plan.storage import ClaimPlan
from gpu_tenancy.model.spec import Stack

# Label of slices, classes and templates of devices that this module created and can delete.
DEVICE: Final = "gpu-tenancy.dev/embedded-channel"
_API: Final = "resource.k8s.io/v1"
_DRIVER: Final = "compute-domain.nvidia.com"
_LABELS: Final[dict[str, Json]] = {DEVICE: "true"}
_ATTRIBUTES: Final = f"device.attributes['{_DRIVER}']"
_FIRST_CHANNEL: Final = f"device.driver == '{_DRIVER}' && {_ATTRIBUTES}.type == 'channel' && {_ATTRIBUTES}.id == 0"
_DRANET: Final = "dra.net"
# The CEL selector of each DeviceClass.
_SELECTED: Final = {CHANNELS: _FIRST_CHANNEL, INTERFACES: f"device.driver == '{_DRANET}'"}


def bring_channels(cluster: Cluster, stack: Stack) -> None:
    """Publishes the devices that a stack's pods can claim, and deletes others; raises ApiError if one is rejected."""
    environment = Environment(stack)
    wanted: list[Manifest] = []
    for resource, flavors in claimed_on(environment).items():
        spec: Json = {"selectors": [{"cel": {"expression": _SELECTED[resource]}}]}
        metadata: Json = {"name": CLAIM_CLASSES[resource], "labels": _LABELS}
        wanted.append({"apiVersion": _API, "kind": "DeviceClass", "metadata": metadata, "spec": spec})
        wanted += _slices(environment, resource, flavors)
    names = {Reference.of(manifest) for manifest in wanted}
    for kind in ("ResourceSlice", "DeviceClass"):
        for item in cluster.list(_API, kind, labels=DEVICE):
            if Reference.of(item) not in names:
                cluster.delete(Reference.of(item))
    for manifest in wanted:
        cluster.apply(manifest, force=True)


def _slices(environment: Environment, resource: str, flavors: Collection[str]) -> Iterator[Manifest]:
    pools = {name: pool.claimable for name, pool in environment.pools.items() if pool.flavor in flavors}
    of_channels = resource == CHANNELS
    kind, driver = ("channels", _DRIVER) if of_channels else ("interfaces", _DRANET)
    channel: Json = {"name": "channel-0", "attributes": {"type": {"string": "channel"}, "id": {"int": 0}}}
    for node in node_shapes(environment.stack):
        if (pool := node.labels[POOL_LABEL]) in pools:
            devices: list[Json] = [channel] if of_channels else [{"name": f"rdma{at}"} for at in range(pools[pool])]
            published: Json = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
            yield {
                "apiVersion": _API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node.name}-{kind}", "labels": _LABELS},
                "spec": {"driver": driver, "nodeName": node.name, "pool": published, "devices": devices},
            }


def bring_templates(cluster: Cluster) -> None:
    """Makes the ResourceClaimTemplate of each ComputeDomain, deleted with it; raises ApiError if one is rejected."""
    for domain in cluster.list(*COMPUTE_DOMAIN):
        cluster.apply(_template(domain), force=True)


def _template(domain: Manifest) -> Manifest:
    """As in templates/compute-domain-workload-claim-template.tmpl.yaml of the driver."""
    uid = text_at(domain, "metadata", "uid")
    version, kind = COMPUTE_DOMAIN
    owner: Json = {"apiVersion": version, "kind": kind, "name": text_at(domain, "metadata", "name"), "uid": uid}
    parameters: Json = {
        "apiVersion": version,
        "kind": "ComputeDomainChannelConfig",
        "domainID": uid,
        "allocationMode": text_at(domain, "spec", "channel", "allocationMode") or "Single",
    }
    devices: Json = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": _DRIVER, "parameters": parameters}}],
    }
    return {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": text_at(domain, "spec", "channel", "resourceClaimTemplate", "name"),
            "namespace": text_at(domain, "metadata", "namespace"),
            "labels": _LABELS,
            "ownerReferences": [owner],
        },
        "spec": {"spec": {"devices": devices}},
    }


STORAGE: Final = "gpu-tenancy.dev/embedded-volume"
# Label of the volumes and claims that this module created and can delete.
CACHE: Final = "gpu-tenancy.dev/embedded-cache"
DEFAULT: Final = "standard"  # the default StorageClass, if the stack says that its cluster has one
_HOMES: Final = 5  # volumes for notebooks of a team
# StorageClass of Fluid's claims: https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/common/volume.go.
_FLUID: Final = "fluid"


def bring_volumes(
    cluster: Cluster, claims: Sequence[ClaimPlan], homes: Mapping[str, OfferedHome] | None = None, *, default: bool
) -> None:
    """Creates a volume for each claim, and deletes volumes without a claim; raises ApiError if one is rejected.

    For notebooks, whose claims people make, each team of `homes` has a few volumes that any claim of its size can bind.
    With `default`, the cluster has a default StorageClass, which the API server writes into claims that name none.

    The platform's nodes are simulated and mount nothing. A volume whose claim was deleted is created again, as a new
    claim would get a new disk. A claim of an earlier stack keeps its volume until it is deleted itself.
    """
    default_class: Manifest = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": DEFAULT,
            "labels": {STORAGE: "true"},
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": STORAGE,
    }
    if default:
        cluster.apply(default_class, force=True)
    else:
        cluster.delete(Reference.of(default_class))
    unnamed = DEFAULT if default else ""
    wanted = {f"embedded-{claim.team}.{claim.name}": claim for claim in claims}
    spare = {f"embedded-{team}.home-{number}": home for team, home in (homes or {}).items() for number in range(_HOMES)}
    for volume in cluster.list("v1", "PersistentVolume", labels=STORAGE):
        name, phase = text_at(volume, "metadata", "name"), text_at(volume, "status", "phase")
        if phase in {"Released", "Failed"} or (name not in {*wanted, *spare} and phase != "Bound"):
            cluster.delete(Reference.of(volume))
    for name, claim in wanted.items():
        spec = _spec(claim.access_mode, claim.size, claim.storage_class or unnamed)
        cluster.apply(_volume(name, STORAGE, (claim.team, claim.name), spec), force=True)
    for name, home in spare.items():
        spec = _spec(home.access_mode, parse_bytes(home.size), home.storage_class or unnamed)
        cluster.apply(_volume(name, STORAGE, None, spec), force=True)


def remove_claims(cluster: Cluster, cached: Sequence[CachedDataset]) -> None:
    """Deletes an earlier stack's claims on caches, with volumes, to free their names; raises ApiError if rejected."""
    wanted = {(one.team, one.dataset) for one in cached}
    for claim in cluster.list("v1", "PersistentVolumeClaim", labels=CACHE):
        namespace, name = (text_at(claim, "metadata", key) for key in ("namespace", "name"))
        if (namespace, name) not in wanted:
            cluster.delete(Reference.of(claim))
    volumes = {_cache(one) for one in cached}
    for volume in cluster.list("v1", "PersistentVolume", labels=CACHE):
        name = text_at(volume, "metadata", "name")
        if name not in volumes or text_at(volume, "status", "phase") in {"Released", "Failed"}:
            cluster.delete(Reference.of(volume))


def bring_claims(cluster: Cluster, cached: Sequence[CachedDataset]) -> None:
    """Creates volume and claim for each reference to a cache, as Fluid would; raises ApiError if one is rejected."""
    for one in cached:
        spec = _spec(one.access_mode, one.size, _FLUID)
        claim: Manifest = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": one.dataset, "namespace": one.team, "labels": {CACHE: "true"}},
            "spec": {
                **{key: value for key, value in spec.items() if key != "capacity"},
                "resources": {"requests": spec["capacity"]},
                "volumeName": _cache(one),
            },
        }
        cluster.apply(_volume(_cache(one), CACHE, (one.team, one.dataset), spec), force=True)
        cluster.apply(claim, force=True)


def _cache(cached: CachedDataset) -> str:
    return f"embedded-cache-{cached.team}.{cached.dataset}"


def _spec(access_mode: str, size: int, storage_class: str) -> dict[str, Json]:
    return {
        "accessModes": [access_mode],
        "capacity": {"storage": format_bytes(size)},
        "storageClassName": storage_class,
    }


def _volume(name: str, label: str, claim: tuple[str, str] | None, spec: dict[str, Json]) -> Manifest:
    """A volume that only `claim`, a namespace and name, can bind; any claim, without it."""
    kind = "caches" if label == CACHE else "volumes"
    reserved: dict[str, Json] = {"claimRef": {"namespace": claim[0], "name": claim[1]}} if claim else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {label: "true"}},
        "spec": {
            **spec,
            **reserved,
            "hostPath": {"path": f"/var/lib/gpu-tenancy/{kind}/{'/'.join(claim) if claim else name}"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }


PLACEHOLDER: Final = "placeholder"  # the value of each key; the key, if workloads name none


def bring_secrets(cluster: Cluster, stack: Stack) -> None:
    """Creates missing Secrets that teams declare as existing, with their keys; raises ApiError if one is rejected."""
    for team, spec in stack.teams.items():
        workloads = (*spec.serving.values(), *spec.training.values())
        parts = (part for workload in workloads for part in workload.parts.values())
        variables = [variable for part in parts for variable in part.env.values()]
        for name in (name for name, secret in spec.secrets.items() if secret.existing):
            keys = {variable.key for variable in variables if variable.secret == name and variable.key}
            if not cluster.exists("v1", "Secret", name, team):
                cluster.apply(
                    {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "metadata": {"name": name, "namespace": team},
                        "stringData": dict.fromkeys(sorted(keys) or [PLACEHOLDER], PLACEHOLDER),
                    }
                )
