"""Dry run: the API server checks an object as if it would create it."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.inspect.answers import Answer, Check, Verdict
from gpu_tenancy.inspect.budgets import exceeded_quota
from gpu_tenancy.inspect.demand import Demand, Template
from gpu_tenancy.inspect.pods import name_of
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, UnknownKindError
from gpu_tenancy.model.kinds import kind_of

_CONFLICT: Final = 409
_FORBIDDEN: Final = 403
_SERVER: Final = 500


def ask(cluster: Cluster, demand: Demand, *, full: bool) -> Iterator[Answer]:
    """Dry runs of the object, and of a pod of each template.

    Args:
        cluster: the API server.
        demand: the object.
        full: whether the namespace's quota has room later, so that a rejection for quota is not final.
    """
    yield _asked(cluster, demand.manifest, demand.title, full=full)
    if text_at(demand.manifest, "kind") == "Pod":
        return
    for template in demand.templates:
        if template.count and _runs(template):
            yield _asked(cluster, pod_of(demand, template), f"a pod of {demand.title}", full=full)


def _runs(template: Template) -> bool:
    """Whether all containers have an image; a TrainJob may take it from its runtime, and then no pod can be checked."""
    containers = at(template.spec, "containers")
    return isinstance(containers, list) and all(isinstance(item, dict) and item.get("image") for item in containers)


def pod_of(demand: Demand, template: Template) -> Manifest:
    """The pod that a controller would create from a template."""
    name = (name_of(demand.manifest) or text_at(demand.manifest, "metadata", "generateName") or "pod")[:40].rstrip("-.")
    metadata: dict[str, Json] = {
        "generateName": f"{name}-",
        "namespace": text_at(demand.manifest, "metadata", "namespace"),
        "labels": dict(template.labels),
        "annotations": dict(template.annotations),
    }
    spec: dict[str, Json] = {**template.spec}
    if (kind := kind_of(demand.manifest)) and kind.work == "batch":
        spec.setdefault("restartPolicy", "Never")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _asked(cluster: Cluster, manifest: Mapping[str, Json], what: str, *, full: bool) -> Answer:
    try:
        renamed = _create(cluster, manifest)
    except UnknownKindError as error:
        return Answer(Check.API_SERVER, "never", (f"{what}: {error.message}",))
    except ApiError as error:
        line = (
            f"{what} not evaluated, you may not create it: {error.message}"
            if _no_right(error)
            else f"rejects {what}: {error.message}"
        )
        return Answer(Check.API_SERVER, _verdict(error, full=full), (line,))
    how = "dry run with another name, since the name is in use" if renamed else "dry run"
    return Answer(Check.API_SERVER, "now", (f"accepts {what} ({how})",))


def _create(cluster: Cluster, manifest: Mapping[str, Json]) -> bool:
    """Creates the object by its name, or by a generated one if that is in use; returns whether it was renamed."""
    try:
        cluster.create(manifest, dry_run=True)
    except ApiError as error:
        if error.status != _CONFLICT or error.reason != "AlreadyExists":
            raise
        metadata = at(manifest, "metadata")
        kept = {key: value for key, value in metadata.items() if key != "name"} if isinstance(metadata, dict) else {}
        cluster.create({**manifest, "metadata": {**kept, "generateName": f"{name_of(manifest)[:40]}-"}}, dry_run=True)
        return True
    return False


def _verdict(error: ApiError, *, full: bool) -> Verdict:
    if _no_right(error) or error.status >= _SERVER:
        return "unknown"
    return "later" if full and exceeded_quota(error.message) else "never"


def _no_right(error: ApiError) -> bool:
    """Whether the user may not create such objects, whatever is in them."""
    return error.status == _FORBIDDEN and "cannot create resource" in error.message
