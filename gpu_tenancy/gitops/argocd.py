"""Manifests for Argo CD: an Application for each Helm release, one for objects, one for servers and jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.block import as_yaml
from gpu_tenancy.engine.releases import HelmRelease
from gpu_tenancy.gitops.manifests import Files, content, file_name, folder, named
from gpu_tenancy.gitops.pieces import BUILT_IN, Piece

API: Final = "argoproj.io/v1alpha1"
WAVE: Final = "argocd.argoproj.io/sync-wave"
OPTIONS: Final = "argocd.argoproj.io/sync-options"
_CASCADE: Final = "resources-finalizer.argocd.argoproj.io"
_SYNC: Final = ("ServerSideApply=true", "PruneLast=true")


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository from which Argo CD applies the manifests."""

    url: str
    path: str
    revision: str


def argocd(stack: str, members: Sequence[Piece], repository: Repository) -> Files:
    """The files: `applications.yaml` to apply first, `platform` with sync waves, `work` for servers and jobs.

    Servers and jobs have a separate Application without sync waves, because Argo CD waits until every wave is healthy,
    which can take days for a queued job (gitops-engine, sync_context.go: getOperationPhase).
    """
    platform = [member for member in members if not member.work]
    work = [member for member in members if member.work]
    files = folder("platform", named(_platform(stack, platform)))
    applications = [_root(stack, repository, "platform", waves=True)]
    if work:
        files |= folder("work", named((file_name(member), _object(member)) for member in work))
        applications.append(_root(f"{stack}-work", repository, "work", waves=False))
    first = "---\n".join(as_yaml(application) for application in applications)
    return {PurePosixPath("applications.yaml"): first, **files}


def _platform(stack: str, members: Sequence[Piece]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for member in members:
        if member.release:
            yield f"release-{member.release.name}.yaml", _application(stack, member, member.release)
        else:
            yield file_name(member), _object(member, {WAVE: str(member.wave)})


def _object(member: Piece, annotations: Mapping[str, str] | None = None) -> dict[str, Json]:
    options = [*_retention(member)]
    if member.group not in BUILT_IN:  # A release installs its definition; a dry run before that would fail.
        options.append("SkipDryRunOnMissingResource=true")
    sync_options = {OPTIONS: ",".join(options)} if options else {}
    return content(member, {**(annotations or {}), **sync_options}, reapplied=True)


def _retention(member: Piece) -> tuple[str, ...]:
    return ("Prune=false", "Delete=false") if member.retained else ()


def _application(stack: str, member: Piece, release: HelmRelease) -> dict[str, Json]:
    """The Application of a release; without a finalizer if the release is retained."""
    annotations: dict[str, Json] = {WAVE: str(member.wave)}
    if member.retained:
        annotations[OPTIONS] = ",".join(_retention(member))
    metadata: dict[str, Json] = {"name": f"{stack}-{release.name}", "namespace": "argocd", "annotations": annotations}
    if not member.retained:
        metadata["finalizers"] = [_CASCADE]
    # Argo CD takes a URL without a scheme as an OCI registry (docs/user-guide/helm.md of Argo CD), and no digest of a
    # chart: https://github.com/argoproj/argo-cd/issues/23234.
    repository, _, chart = release.chart.removeprefix("oci://").rpartition("/")
    values: dict[str, Json] = {"releaseName": release.name}
    if release.values:
        values["valuesObject"] = dict(release.values)
    if release.skip_crds:
        values["skipCrds"] = True
    source: dict[str, Json] = {
        "repoURL": release.repository or repository,
        "chart": chart or release.chart,
        "targetRevision": release.version,
        "helm": values,
    }
    return {"apiVersion": API, "kind": "Application", "metadata": metadata, "spec": _spec(source, release.namespace)}


def _root(name: str, repository: Repository, part: str, *, waves: bool) -> dict[str, Json]:
    """An Application of a folder.

    It has no finalizer, so that its deletion keeps everything in the cluster. It compares by a server-side dry run,
    because Kueue and the autoscalers own some fields.
    """
    source: dict[str, Json] = {
        "repoURL": repository.url,
        "path": PurePosixPath(repository.path, part).as_posix(),
        "targetRevision": repository.revision,
    }
    metadata: dict[str, Json] = {
        "name": name,
        "namespace": "argocd",
        "annotations": {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"},
    }
    # Without waves the sync starts before the namespaces exist, so it retries without a limit.
    spec = _spec(source, "", retries=10 if waves else -1)
    return {"apiVersion": API, "kind": "Application", "metadata": metadata, "spec": spec}


def _spec(source: dict[str, Json], namespace: str, retries: int = 10) -> dict[str, Json]:
    destination: dict[str, Json] = {"server": "https://kubernetes.default.svc"}
    if namespace:
        destination["namespace"] = namespace
    return {
        "project": "default",
        "source": source,
        "destination": destination,
        "syncPolicy": {
            "automated": {"prune": True, "selfHeal": True},
            "syncOptions": [*_SYNC],
            "retry": {"limit": retries, "backoff": {"duration": "15s", "factor": 2, "maxDuration": "5m"}},
        },
    }
