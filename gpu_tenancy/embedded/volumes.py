"""Simulated volumes and Secrets: what a cloud's CSI driver, and people, would create."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.base.quantity import format_bytes, parse_bytes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.datasets import CachedDataset
from gpu_tenancy.model.plan.notebooks import OfferedHome
from gpu_tenancy.model.plan.storage import ClaimPlan
from gpu_tenancy.model.spec import Stack

STORAGE: Final = "gpu-tenancy.dev/embedded-volume"
CACHE: Final = "gpu-tenancy.dev/embedded-cache"
"""Labels of the volumes and claims that this module created and can delete."""
DEFAULT: Final = "standard"
"""The default StorageClass of a platform whose stack says that its cluster has one."""
_HOMES: Final = 5
"""Volumes for notebooks of a team."""
_FLUID: Final = "fluid"
"""StorageClass of Fluid's claims: https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/common/volume.go."""


def bring_volumes(
    cluster: Cluster, claims: Sequence[ClaimPlan], homes: Mapping[str, OfferedHome] | None = None, *, default: bool
) -> None:
    """Creates a volume for each claim, and deletes those that no claim has any more.

    For notebooks, whose claims people make, each team of `homes` has a few volumes that any claim of its size can bind.

    With `default`, the cluster has a default StorageClass, which the API server writes into claims that name none.

    The platform's nodes are simulated and mount nothing, so nothing is stored at a volume's path. A volume whose claim
    was deleted is created again, as a new claim would get a new disk. A claim of an earlier stack keeps its volume
    until it is deleted itself.

    Raises:
        ApiError: the API server rejects a volume.
    """
    if default:
        cluster.apply(_default_class(), force=True)
    else:
        cluster.delete(Reference.of(_default_class()))
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


def _default_class() -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": DEFAULT,
            "labels": {STORAGE: "true"},
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": STORAGE,
    }


def remove_claims(cluster: Cluster, cached: Sequence[CachedDataset]) -> None:
    """Deletes claims and volumes of an earlier stack's caches, whose names the stack may need for claims of its own.

    Raises:
        ApiError: the API server rejects a deletion.
    """
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
    """Creates a volume and a claim for each team's reference to a cache, as Fluid would; the namespaces exist.

    Fluid does not run on the platform: nothing is cached.

    Raises:
        ApiError: the API server rejects an object.
    """
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
    """A volume that only one claim, by namespace and name, can bind; or any, without `claim`."""
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


PLACEHOLDER: Final = "placeholder"
"""The value of each key; the key, where workloads name none."""


def bring_secrets(cluster: Cluster, stack: Stack) -> None:
    """Creates each Secret that a team declares as existing and that does not exist; the namespaces exist.

    It has the keys that variables of the team's workloads refer to.

    Raises:
        ApiError: the API server rejects a Secret.
    """
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
