"""Forbidden parts of a pod's spec, written without the code of the packs."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
NAMESPACE: Final = "ml-research"


def _context(spec: Json, **fields: object) -> None:
    spec["containers"][0].setdefault("securityContext", {}).update(fields)


def _of_pod(spec: Json, **fields: object) -> None:
    spec.setdefault("securityContext", {}).update(fields)


def _container(spec: Json, **fields: object) -> None:
    spec["containers"][0].update(fields)


def _add(spec: Json, field: str, item: Json) -> None:
    spec.setdefault(field, []).insert(0, item)


def _limit(spec: Json, name: str, count: object) -> None:
    _container(spec, resources={"limits": {name: count}})


def _linger(spec: Json) -> None:
    _limit(spec, GPU, 1)
    spec["terminationGracePeriodSeconds"] = 86400


def _mount(spec: Json, path: str) -> None:
    _add(spec["containers"][0], "volumeMounts", {"name": "scratch", "mountPath": path})


def _apart(spec: Json, field: str, **reach: object) -> None:
    term: Json = {"topologyKey": "kubernetes.io/os", "labelSelector": {}}
    spec["affinity"] = {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term, {**term, **reach}]}}


# The rule, and a function that puts the violation into a valid pod.
VIOLATIONS: Final[Mapping[str, tuple[str, Callable[[Json], None]]]] = {
    "privileged": ("no-privileged", lambda spec: _context(spec, privileged=True)),
    "capability": ("no-privileged", lambda spec: _context(spec, capabilities={"add": ["SYS_ADMIN"]})),
    "init container": ("no-privileged",
        lambda spec: _add(spec, "initContainers", {"name": "i9", "securityContext": {"privileged": True}})),
    "unmasked": ("no-privileged", lambda spec: _context(spec, procMount="Unmasked")),
    "host process": ("no-privileged", lambda spec: _context(spec, windowsOptions={"hostProcess": True})),
    "host process of the pod": ("no-host-namespaces", lambda spec: _of_pod(spec, windowsOptions={"hostProcess": True})),
    "hostPID": ("no-host-namespaces", lambda spec: spec.update(hostPID=True)),
    "hostNetwork": ("no-host-namespaces", lambda spec: spec.update(hostNetwork=True)),
    "hostPath": ("no-host-paths", lambda spec: _add(spec, "volumes", {"name": "host", "hostPath": {"path": "/"}})),
    "variable": ("gpu-visible-devices",
        lambda spec: _add(spec["containers"][0], "env", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})),
    "prefix": ("gpu-visible-devices",
        lambda spec: _container(spec, envFrom=[{"prefix": "NVIDIA_", "secretRef": {"name": "keys"}}])),
    **{
        f"mount at {root}": (
            "gpu-visible-devices",
            lambda spec, root=root: _mount(spec, f"{root}nvidia-container-devices/all"),
        )
        for root in ("/var/run/", "/run//", "/var/run/x/../", "var/run/")
    },
    "grace": ("gpu-grace-bounded", _linger),
    "affinity": ("affinity-own-namespace", lambda spec: _apart(spec, "podAntiAffinity", namespaceSelector={})),
    "affinity to others": ("affinity-own-namespace", lambda spec: _apart(spec, "podAffinity", namespaces=["x"])),
    "affinity to others too": ("affinity-own-namespace",
        lambda spec: _apart(spec, "podAntiAffinity", namespaces=[NAMESPACE, "x"])),
    "system class": ("priority-not-system", lambda spec: spec.update(priorityClassName="system-node-critical")),
    "toleration": ("toleration-has-key", lambda spec: _add(spec, "tolerations", {"operator": "Exists"})),
    "image": ("image-pinned", lambda spec: _container(spec, image="example.com/train:latest")),
    "part of a GPU": ("gpu-request-equals-limit", lambda spec: _limit(spec, GPU, "500m")),
    "GPUs without a quota": ("gpu-namespace-quota", lambda spec: _limit(spec, "nvidia.com/mig-1g.10gb", 1)),
    "GPUs of a claim without a quota": ("gpu-namespace-quota",
        lambda spec: _add(spec, "resourceClaims", {"name": "gpu", "resourceClaimTemplateName": "eight"})),
}  # fmt: skip
