"""State of a cluster as a file, so that a pipeline can judge a change without access to the cluster.

The file has only data for admission: no environment variables, commands, images, users' annotations or Secret values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, texts_at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.cluster.reading import Kind, Missing, State
from gpu_tenancy.explain.proposal import KINDS
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.names import IDLE, STACK
from gpu_tenancy.model.plan.guards import FACTS

VERSION: Final = 1
_METADATA: Final = ("name", "namespace", "labels", "creationTimestamp", "ownerReferences", "uid")
_POD: Final = (
    "nodeName", "nodeSelector", "affinity", "tolerations", "priority", "priorityClassName", "schedulerName", "overhead",
    "resources", "resourceClaims", "terminationGracePeriodSeconds",
)  # fmt: skip
_CONTAINER: Final = ("name", "resources", "restartPolicy")
_NODE: Final = {"spec": ("taints", "unschedulable"), "status": ("allocatable", "capacity")}


def to_file(state: State, file: Path) -> None:
    """Writes a cluster's state to a file."""
    objects = {kind: [_trimmed(kind, one) for one in state.of(kind)] for kind in KINDS}
    missing = {kind: _only(asdict(one), ("tells", "why", "who", "partly")) for kind, one in state.missing.items()}
    parts = {"version": VERSION, "kubernetes": state.kubernetes, "objects": objects, "missing": missing}
    write_text(file, json.dumps(parts, sort_keys=True) + "\n")


def from_file(file: Path) -> State:
    """Reads a file of `to_file`; raises ConsoleError for any other file."""
    fix = "write it with `tenancy cluster snapshot --out FILE`"
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ConsoleError(f"{file}: version {data['version']} is not known", fix)
        objects: dict[Kind, tuple[Manifest, ...]] = {kind: tuple(found) for kind, found in data["objects"].items()}
        missing: dict[Kind, Missing] = {kind: Missing(kind, **one) for kind, one in data["missing"].items()}
        kubernetes = data.get("kubernetes", "")
    except OSError as error:
        raise ConsoleError(f"{file}: {error.strerror}", fix) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{file} is not a snapshot of a cluster", fix) from error
    return State(objects, missing, kubernetes=kubernetes)


def _trimmed(kind: Kind, manifest: Mapping[str, Json]) -> dict[str, Json]:
    found = cast("dict[str, Any]", manifest)
    metadata = _only(found.get("metadata") or {}, _METADATA)
    annotations = texts_at(manifest, "metadata", "annotations")
    ours = {key: value for key, value in annotations.items() if key.startswith((STACK, IDLE, "kueue.x-k8s.io/", FACTS))}
    kept: dict[str, Any] = {"metadata": {**metadata, **({"annotations": ours} if ours else {})}}
    if kind == "Pod":
        kept["spec"], kept["status"] = _pod(found.get("spec") or {}), _only(found.get("status") or {}, ("phase",))
    elif kind == "Node":
        kept |= {part: _only(found.get(part) or {}, keys) for part, keys in _NODE.items()}
    else:
        kept |= {part: found[part] for part in ("spec", "status") if part in found}
    if kind == "Workload":
        spec: dict[str, Any] = found.get("spec") or {}
        pod_sets: Any = [
            {**pods, "template": {"spec": _pod(pods.get("template", {}).get("spec") or {})}}
            for pods in spec.get("podSets") or ()
        ]
        kept["spec"] = {**spec, "podSets": pod_sets}
    return kept


def _pod(spec: Mapping[str, Any]) -> dict[str, Any]:
    parts = {
        key: [_only(one, _CONTAINER) for one in spec[key]] for key in ("containers", "initContainers") if key in spec
    }
    return {**_only(spec, _POD), **parts}


def _only(found: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: found[key] for key in keys if key in found}
