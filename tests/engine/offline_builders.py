"""Builders of valid objects for the offline preview's tests, of which each test breaks one part."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpu_tenancy.base.json import Json, Path
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.engine.recording import NO_ANSWERS, Registration
from gpu_tenancy.engine.render import Rendered

PREFIX = "urn:pulumi:dev::gpu-tenancy::"
TEAM = "gpu-tenancy:team:Team"


def manifest(kind: str, name: str, namespace: str = "", *, api: str = "v1", **rest: Json) -> dict[str, Json]:
    metadata: dict[str, Json] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def registered(inputs: Mapping[str, Json], *, dependencies: Sequence[str] = (), parent: str = "") -> Registration:
    token = f"kubernetes:{inputs['apiVersion']}:{inputs['kind']}"
    metadata = inputs["metadata"]
    assert isinstance(metadata, dict)
    name = "-".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata)
    return Registration(
        urn=f"{PREFIX}{token}::{name}",
        type=token,
        name=name,
        custom=True,
        inputs=inputs,
        parent=parent,
        dependencies=tuple(dependencies),
    )


def component(name: str, *, dependencies: Sequence[str] = (), parent: str = "") -> Registration:
    return Registration(
        urn=f"{PREFIX}{TEAM}::{name}",
        type=TEAM,
        name=name,
        custom=False,
        inputs={},
        parent=parent,
        dependencies=tuple(dependencies),
    )


def metadata_changed(registration: Registration, **changes: Json) -> Registration:
    """The same registration with other metadata; None removes a field."""
    metadata = registration.inputs["metadata"]
    assert isinstance(metadata, dict)
    merged = {key: value for key, value in {**metadata, **changes}.items() if value is not None}
    return replace(registration, inputs={**registration.inputs, "metadata": merged})


def stack_of(*registrations: Registration) -> Rendered:
    return Rendered("gpu-tenancy", "dev", registrations, {})


def an_object(
    body: Mapping[str, Json], *, depends_on: Sequence[str] = (), secret_paths: Sequence[Path] = ()
) -> KubernetesObject:
    return KubernetesObject(body, registered(body).urn, tuple(depends_on), tuple(secret_paths))


NAMESPACE = registered(manifest("Namespace", "ml-research"))
QUOTA = registered(manifest("ResourceQuota", "gpus", "ml-research", spec={"hard": {"requests.nvidia.com/gpu": "36"}}))
QUEUE = registered(manifest("ClusterQueue", "ml-research", api="kueue.x-k8s.io/v1beta2", spec={}))


class Rendering(Protocol):
    def __call__(
        self,
        source: str,
        *,
        stack: str = "dev",
        config: Mapping[str, str] | None = None,
        answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS,
    ) -> Rendered: ...
