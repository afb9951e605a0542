"""Dry run of an object by the API server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at
from gpu_tenancy.cluster.budgets import FREED, exceeded_quota
from gpu_tenancy.cluster.demand import Demand, Template, demand
from gpu_tenancy.cluster.gangs import ALONE, QUEUE_NAME
from gpu_tenancy.cluster.pods import ADMISSION_GATE, label, name_of
from gpu_tenancy.cluster.reading import Answer, Check, Verdict
from gpu_tenancy.cluster.rejections import rule_of
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError
from gpu_tenancy.model.kinds import kind_of
from gpu_tenancy.model.names import PRIORITY_LABEL, QUEUE_LABEL

_CONFLICT: Final = 409
_SERVER: Final = 500


def with_answers(cluster: Cluster, wanted: Demand, answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """The results of checks, and of dry runs; first a guard's rejection, after which the object lacks its defaults."""
    own, *pods = ask(cluster, wanted)
    guarded = own.verdict == "never" and "; " in own.lines[0]
    return (own, *answers, *pods) if guarded else (*answers, own, *pods)


def ask(cluster: Cluster, wanted: Demand) -> Iterator[Answer]:
    """Dry runs of the object, and of one pod of each template; a rejection for quota in use is not final."""
    single = text_at(wanted.manifest, "kind") == "Pod"
    yield _asked(cluster, wanted.manifest, wanted.title, alone=(wanted.gang or "") if single else "")
    if single:
        return
    for template in wanted.templates:
        # A TrainJob may take the image of a container from its runtime, and then no pod can be checked.
        images = [text_at(container, "image") for container in maps_at(template.spec, "containers")]
        if template.count and isinstance(at(template.spec, "containers"), list) and all(images):
            yield _asked(cluster, pod_of(wanted, template), f"a pod of {wanted.title}")


_KUEUE: Final = "kueue.x-k8s.io/manager"
# Fields that the admission policies of a stack fill in.
_COMPLETED: Final = ("tolerations", "priorityClassName", "resources", "runtimePatches")


def completed(cluster: Cluster, wanted: Demand) -> Demand:
    """The workload with the changes of the cluster's admission policies; unchanged if the API server rejects it."""
    try:
        made, _ = created(cluster, wanted.manifest)
    except (ApiError, UnknownKindError):
        return wanted
    # A pod has the defaults of its LimitRange by now, which are named as such.
    fields = [field for field in _COMPLETED if field != "resources" or text_at(made, "kind") != "Pod"]
    manifest = cast("dict[str, Json]", _overlaid(dict(wanted.manifest), made, fields))
    own = map_at(made, "metadata", "labels")
    if queued := {key: own[key] for key in (QUEUE_LABEL, PRIORITY_LABEL) if key in own}:
        metadata = map_at(manifest, "metadata")
        manifest["metadata"] = {**metadata, "labels": {**map_at(metadata, "labels"), **queued}}
    return replace(demand(manifest, text_at(manifest, "metadata", "namespace")), channels=wanted.channels)


def _overlaid(written: Json, made: Json, fields: Sequence[str]) -> Json:
    if isinstance(written, list) and isinstance(made, list):
        return [_overlaid(one, other, fields) for one, other in zip(written, made, strict=False)]
    if not (isinstance(written, dict) and isinstance(made, dict)):
        return written
    kept = {key: _overlaid(value, made.get(key), fields) for key, value in written.items()}
    for key in fields:
        value = made.get(key)
        if isinstance(value, list):  # Kueue makes its own patches of a runtime for each TrainJob anew.
            kept[key] = [one for one in value if not isinstance(one, dict) or one.get("manager") != _KUEUE]
        elif key in made:
            kept[key] = value
    return kept


def pod_of(wanted: Demand, template: Template) -> Manifest:
    """The pod that a controller would create from a template."""
    name = (name_of(wanted.manifest) or text_at(wanted.manifest, "metadata", "generateName") or "pod")[:40].rstrip("-.")
    metadata: dict[str, Json] = {
        "generateName": f"{name}-",
        "namespace": text_at(wanted.manifest, "metadata", "namespace"),
        # Its quota is that of its object: shown by Kueue's label or Volcano's annotation, since it has no owner.
        "labels": {**({QUEUE_LABEL: wanted.queue} if wanted.queue else {}), **template.labels},
        "annotations": {**({QUEUE_NAME: wanted.gang} if wanted.gang else {}), **template.annotations},
    }
    spec: dict[str, Json] = {**template.spec}
    # Its controller adds volumes of the same names for the claims that it makes.
    claims = maps_at(wanted.manifest, "spec", "volumeClaimTemplates")
    if made := [text_at(claim, "metadata", "name") for claim in claims]:
        volumes = [volume for volume in maps_at(spec, "volumes") if text_at(volume, "name") not in made]
        spec["volumes"] = [*volumes, *({"name": claim, "emptyDir": {}} for claim in made)]
    if (kind := kind_of(wanted.manifest)) and kind.work == "batch":
        spec.setdefault("restartPolicy", "Never")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _asked(cluster: Cluster, manifest: Mapping[str, Json], what: str, *, alone: str = "") -> Answer:
    """`alone`: the Volcano queue of a single pod."""
    verdict: Verdict = "never"
    try:
        made, renamed = created(cluster, manifest)
    except UnknownKindError as error:
        return Answer(Check.API_SERVER, verdict, (f"{what}: {error.message}",))
    except ApiError as error:
        exceeded = exceeded_quota(error.message)
        line = f"rejects {what}: {exceeded[0] if exceeded else rule_of(error.message)}"
        if error.status == FORBIDDEN and "cannot create resource" in error.message:  # whatever is in the object
            verdict, line = "unknown", f"{what} not evaluated, you may not create it: {error.message}"
        elif error.status >= _SERVER:
            verdict = "unknown"
        elif exceeded and exceeded[1] == FREED:
            verdict = "later"
        return Answer(Check.API_SERVER, verdict, (line,))
    gates = {text_at(gate, "name") for gate in maps_at(made, "spec", "schedulingGates")}
    if alone and ADMISSION_GATE in gates and not label(made, QUEUE_LABEL):
        return Answer(Check.API_SERVER, verdict, (f"{what}: {ALONE.format(alone)}",))
    how = "dry run with another name, since the name is in use" if renamed else "dry run"
    return Answer(Check.API_SERVER, "now", (f"accepts {what} ({how})",))


def created(cluster: Cluster, manifest: Mapping[str, Json]) -> tuple[Manifest, bool]:
    """Creates the object in a dry run; returns it, and whether its name was in use and a generated name was needed."""
    try:
        return cluster.create(manifest, dry_run=True), False
    except ApiError as error:
        if error.status != _CONFLICT or error.reason != "AlreadyExists":
            raise
        metadata = at(manifest, "metadata")
        kept = {key: value for key, value in metadata.items() if key != "name"} if isinstance(metadata, dict) else {}
        named = {**kept, "generateName": f"{name_of(manifest)[:40]}-"}
        return cluster.create({**manifest, "metadata": named}, dry_run=True), True
