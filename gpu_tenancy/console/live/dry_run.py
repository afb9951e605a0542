"""The last word: the API server itself, asked to create the object and keep nothing."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.errors import ApiError, UnknownKindError
from gpu_tenancy.console.live.answers import Answer, Verdict
from gpu_tenancy.console.live.demand import Demand, Template
from gpu_tenancy.console.live.pods import called
from gpu_tenancy.console.offline.wire import Json, at, text_at

ABOUT: Final = "API server"
_CONFLICT: Final = 409
_FORBIDDEN: Final = 403
_SERVER: Final = 500


def ask(cluster: Cluster, demand: Demand, *, full: bool) -> Iterator[Answer]:
    """Has the API server create the object, and each kind of pod that it would make, by a dry run.

    Args:
        cluster: which.
        demand: the object.
        full: whether the namespace's quota has room later only, so that it refuses a pod now and not for ever.
    """
    yield _asked(cluster, demand.manifest, demand.title, full=full)
    if text_at(demand.manifest, "kind") == "Pod":
        return
    for template in demand.templates:
        if template.count and _runs(template):
            yield _asked(cluster, pod_of(demand, template), f"a pod of {demand.title}", full=full)


def _runs(template: Template) -> bool:
    """A runtime's pod has its image from elsewhere; without one nothing can be asked."""
    containers = at(template.spec, "containers")
    return isinstance(containers, list) and all(isinstance(each, dict) and each.get("image") for each in containers)


def pod_of(demand: Demand, template: Template) -> Manifest:
    """The pod that a controller would make of a template."""
    name = (called(demand.manifest) or text_at(demand.manifest, "metadata", "generateName") or "pod")[:40].rstrip("-.")
    metadata: dict[str, Json] = {
        "generateName": f"{name}-",
        "namespace": text_at(demand.manifest, "metadata", "namespace"),
        "labels": dict(template.labels),
        "annotations": dict(template.annotations),
    }
    spec: dict[str, Json] = {**template.spec}
    if text_at(demand.manifest, "kind") == "TrainJob":
        spec.setdefault("restartPolicy", "Never")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _asked(cluster: Cluster, manifest: Mapping[str, Json], what: str, *, full: bool) -> Answer:
    try:
        how = _create(cluster, manifest)
    except UnknownKindError as error:
        return Answer(ABOUT, "never", (f"{what}: {error.message}",))
    except ApiError as error:
        return Answer(ABOUT, _verdict(error, full=full), (_words(error, what),))
    return Answer(ABOUT, "now", (f"takes {what} ({how})",))


def _create(cluster: Cluster, manifest: Mapping[str, Json]) -> str:
    """By its own name; where that is taken, by a name like it. Returns which it was, in words."""
    try:
        cluster.create(manifest, dry_run=True)
    except ApiError as error:
        if error.status != _CONFLICT or error.reason != "AlreadyExists":
            raise
        metadata = at(manifest, "metadata")
        kept = {key: each for key, each in metadata.items() if key != "name"} if isinstance(metadata, dict) else {}
        cluster.create({**manifest, "metadata": {**kept, "generateName": f"{called(manifest)[:40]}-"}}, dry_run=True)
        return "dry run by another name: one of its name is there"
    return "dry run"


def _verdict(error: ApiError, *, full: bool) -> Verdict:
    if _no_right(error) or error.status >= _SERVER:
        return "unknown"
    return "later" if full and "exceeded quota" in error.message else "never"


def _no_right(error: ApiError) -> bool:
    """Whether it is the user who may not, not the object that must not."""
    return error.status == _FORBIDDEN and "cannot create resource" in error.message


def _words(error: ApiError, what: str) -> str:
    if _no_right(error):
        return f"{what} was not judged, since you may not create it: {error.message}"
    return f"refuses {what}: {error.message}"
