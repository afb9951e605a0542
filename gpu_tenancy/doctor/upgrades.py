"""Checks of a running cluster before its operators are upgraded to the versions of a stack."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.clouds.clients import DeniedError, NoAnswerError
from gpu_tenancy.doctor.results import Question, Row, answers, judged
from gpu_tenancy.embedded.definitions.pins import read_definitions
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from gpu_tenancy.kube.pruning import StoredKind, stored_kinds
from gpu_tenancy.model.names import KUBECTL
from gpu_tenancy.model.plan.operators import ReleasePlan

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.")
MIGRATE: Final = "`tenancy cluster migrate`"


def upgrade_rows(cluster: Cluster, releases: Iterable[ReleasePlan]) -> Iterator[Row]:
    """Checks whether each installed operator of a stack can be upgraded while workloads run; changes nothing."""
    for release in releases:
        questions: list[Question] = []
        # Deployments of the operator's chart: it says so in a label, or is alone in its namespace.
        found = cluster.list("apps/v1", "Deployment", namespace=release.namespace)
        charts = [text_at(one, "metadata", "labels", "helm.sh/chart") for one in found]
        own = [one for one, chart in zip(found, charts, strict=True) if re.fullmatch(rf"{release.name}-v?\d.*", chart)]
        if installed := own or [one for one, chart in zip(found, charts, strict=True) if not chart]:
            questions.append(_asked("version", release, partial(_version, release, installed)))
            questions.append(_asked("pods", release, partial(_pods, cluster, release)))
        elif not any(cluster.versions(group) for group in release.serves):
            continue
        questions.append(_asked("definitions", release, partial(_definitions, cluster, release)))
        questions.append(_asked("webhooks", release, partial(_webhooks, cluster, release)))
        yield from answers(questions)


def _asked(check: str, release: ReleasePlan, ask: "partial[Iterator[Row]]") -> Question:
    def asked() -> list[Row]:
        try:
            return list(ask())
        except ApiError as error:
            if error.status == FORBIDDEN and "cannot" in error.message:
                raise DeniedError(f"the right to do this: {error.message}") from error
            raise NoAnswerError(error.message) from error

    return Question(check, release.name, "", asked)


def _version(release: ReleasePlan, installed: Iterable[Manifest]) -> Iterator[Row]:
    known: dict[str, re.Match[str]] = {}
    for one in installed:  # The version of the label, or of the first image.
        text = text_at(one, "metadata", "labels", "app.kubernetes.io/version")
        containers = maps_at(one, "spec", "template", "spec", "containers")
        tags = (text_at(container, "image").partition("@")[0].rpartition(":") for container in containers)
        text = text or next((tag for _, colon, tag in tags if colon), "")
        if found := _VERSION.match(text + "."):
            known[text] = found
    if not known:
        raise NoAnswerError("the version is not in the images; compare it with the release notes")
    text, before = next(iter(known.items()))
    after = _VERSION.match(release.version + ".")
    old, new = (tuple(map(int, match.groups())) if match else (0, 0) for match in (before, after))
    row = partial(Row, "version", release.name, release.version, text)
    if new < old:
        yield row("missing", f"set operators version {text}: an older version may not read what {text} has stored")
    elif new[0] == old[0] and new[1] <= old[1] + 1:
        yield row("OK")
    else:
        yield row("unknown", f"read the release notes of every version between {text} and {release.version}")


def _definitions(cluster: Cluster, release: ReleasePlan) -> Iterator[Row]:
    """Stored versions of the operator's kinds, and whether objects are converted to all served versions."""
    later = {
        pin.group: definitions.versions
        for definitions in read_definitions()
        for pin in definitions.pins()
        if definitions.versions and definitions.version.removeprefix("v") == release.version.removeprefix("v")
    }
    kinds = stored_kinds(cluster, release.serves)
    problems = [row for kind in kinds for row in _of_kind(cluster, release, kind, later.get(kind.group, kind.served))]
    needed = "stored in one version, readable in all"
    yield from problems or [Row("definitions", release.name, needed, f"{plural(len(kinds), 'kind')} are", "OK")]


def _of_kind(cluster: Cluster, release: ReleasePlan, kind: StoredKind, later: Sequence[str]) -> Iterator[Row]:
    # `later` are the versions that the next definition of the kind serves.
    if kind.old:
        row = partial(Row, "stored", kind.name, f"only {kind.storage}", f"stored also as {', '.join(kind.old)}")
        if lost := [version for version in kind.old if version not in later]:
            lacking = f"{release.name} {release.version} does not serve {', '.join(lost)} and cannot be installed"
            yield row("missing", f"{lacking}; run {MIGRATE}")
        else:
            fix = f"run {MIGRATE}: a later version without {', '.join(kind.old)} cannot be installed before"
            yield row("unknown", fix)
    for version in kind.served if kind.converts else ():
        try:
            cluster.list(f"{kind.group}/{version}", kind.kind, metadata_only=True)
        except ApiError as error:
            if error.status == FORBIDDEN:
                raise
            fix = "check that the Service of the conversion webhook has ready pods, and its caBundle"
            yield Row("conversion", kind.name, f"readable as {version}", error.message, "missing", fix)


def _webhooks(cluster: Cluster, release: ReleasePlan) -> Iterator[Row]:
    if release.probe is None:
        return
    fix = f"check the pods in {release.namespace}: a webhook with failurePolicy Fail rejects what it does not answer"
    row = partial(judged, "webhooks", release.name, "accept a sample", fix=fix)
    sample: Manifest = dict(release.probe.manifest)
    if cluster.resource(text_at(sample, "apiVersion"), text_at(sample, "kind")).namespaced:
        sample["metadata"] = {**map_at(sample, "metadata"), "namespace": release.namespace}
    yield _tried(cluster, sample, row)


def _pods(cluster: Cluster, release: ReleasePlan) -> Iterator[Row]:
    amounts: Json = {"cpu": "1m", "memory": "1Mi"}
    resources: Json = {"requests": amounts, "limits": amounts}
    restricted: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container: Json = {"name": "sample", "image": KUBECTL, "resources": resources, "securityContext": restricted}
    nobody: Json = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    pod: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "gpu-tenancy-sample-", "namespace": release.namespace},
        "spec": {"containers": [container], "securityContext": nobody},
    }
    fix = f"correct the quota, policy or webhook that rejects pods in {release.namespace}, before the operator restarts"
    yield _tried(cluster, pod, partial(judged, "pods", release.name, f"accepted in {release.namespace}", fix=fix))


def _tried(cluster: Cluster, manifest: Manifest, row: "partial[Row]") -> Row:
    try:
        cluster.create(manifest, dry_run=True)
    except ApiError as error:
        if error.status == NOT_FOUND or (error.status == FORBIDDEN and "cannot create resource" in error.message):
            raise
        return row(error.message, fits=False)
    return row("accepted", fits=True)
