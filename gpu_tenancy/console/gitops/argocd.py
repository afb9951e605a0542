"""A tree for Argo CD: one Application for each Helm release, one for the objects, one for servers and jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.console.gitops.manifests import Files, content, file_name, folder, named
from gpu_tenancy.console.gitops.pieces import BUILT_IN, Piece, Release
from gpu_tenancy.console.offline.files import as_yaml
from gpu_tenancy.console.offline.wire import Json

API: Final = "argoproj.io/v1alpha1"
WAVE: Final = "argocd.argoproj.io/sync-wave"
OPTIONS: Final = "argocd.argoproj.io/sync-options"
_CASCADE: Final = "resources-finalizer.argocd.argoproj.io"
_SYNC: Final = ("ServerSideApply=true", "PruneLast=true")


@dataclass(frozen=True, slots=True)
class Repository:
    """Where Argo CD finds the tree.

    Attributes:
        path: of the tree's folder within it.
        revision: a branch, tag or commit.
    """

    url: str
    path: str
    revision: str


def argocd(stack: str, found: Sequence[Piece], where: Repository) -> Files:
    """The tree: `applications.yaml` to begin with, `platform` for the waves, `work` for what nobody waits for.

    Servers and jobs have an Application of their own without waves: Argo CD's sync of several waves lasts until all of
    them is healthy, which a job in a queue is days later (gitops-engine, sync_context.go: getOperationPhase).

    Args:
        stack: its name, with which the Applications' names begin.
        found: objects and releases.
        where: the repository in which the tree will be.
    """
    platform = [one for one in found if not one.work]
    work = [one for one in found if one.work]
    files = folder("platform", named(_platform(stack, platform)))
    applications = [_root(stack, where, "platform", waves=True)]
    if work:
        files |= folder("work", named((file_name(one), _object(one)) for one in work))
        applications.append(_root(f"{stack}-work", where, "work", waves=False))
    begin = "---\n".join(as_yaml(one) for one in applications)
    return {PurePosixPath("applications.yaml"): begin, **files}


def _platform(stack: str, found: Sequence[Piece]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for one in found:
        if one.release:
            yield f"release-{one.release.helm.name}.yaml", _application(stack, one, one.release)
        else:
            yield file_name(one), _object(one, {WAVE: str(one.wave)})


def _object(one: Piece, annotations: Mapping[str, str] | None = None) -> dict[str, Json]:
    options = [*_retention(one)]
    if one.group not in BUILT_IN:  # Its definition comes with a release, so before that no dry run knows it.
        options.append("SkipDryRunOnMissingResource=true")
    told = {OPTIONS: ",".join(options)} if options else {}
    return content(one, {**(annotations or {}), **told}, again_and_again=True)


def _retention(one: Piece) -> tuple[str, ...]:
    return ("Prune=false", "Delete=false") if one.retained else ()


def _application(stack: str, one: Piece, release: Release) -> dict[str, Json]:
    """The Application of a release; without a finalizer where the release outlives it."""
    helm = release.helm
    annotations: dict[str, Json] = {WAVE: str(one.wave)}
    if one.retained:
        annotations[OPTIONS] = ",".join(_retention(one))
    metadata: dict[str, Json] = {"name": f"{stack}-{helm.name}", "namespace": "argocd", "annotations": annotations}
    if not one.retained:
        metadata["finalizers"] = [_CASCADE]
    # Without its scheme, an address is one of an OCI registry: docs/user-guide/helm.md of Argo CD.
    repository, _, chart = helm.chart.removeprefix("oci://").rpartition("/")
    values: dict[str, Json] = {"releaseName": helm.name}
    if helm.values:
        values["valuesObject"] = dict(helm.values)
    if release.skip_crds:
        values["skipCrds"] = True
    source: dict[str, Json] = {
        "repoURL": helm.repository or repository,
        "chart": chart or helm.chart,
        "targetRevision": helm.version,
        "helm": values,
    }
    return {"apiVersion": API, "kind": "Application", "metadata": metadata, "spec": _spec(source, helm.namespace)}


def _root(name: str, where: Repository, part: str, *, waves: bool) -> dict[str, Json]:
    """An Application of files of the tree.

    Deleting it leaves everything in the cluster: it has no finalizer. Differences are judged by a dry run of the API
    server, as what Kueue and the autoscalers write is theirs.
    """
    source: dict[str, Json] = {
        "repoURL": where.url,
        "path": PurePosixPath(where.path, part).as_posix(),
        "targetRevision": where.revision,
    }
    metadata: dict[str, Json] = {
        "name": name,
        "namespace": "argocd",
        "annotations": {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"},
    }
    # What has no waves begins before its namespaces are there, and tries until they are.
    spec = _spec(source, "", tries=10 if waves else -1)
    return {"apiVersion": API, "kind": "Application", "metadata": metadata, "spec": spec}


def _spec(source: dict[str, Json], namespace: str, tries: int = 10) -> dict[str, Json]:
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
            "retry": {"limit": tries, "backoff": {"duration": "15s", "factor": 2, "maxDuration": "5m"}},
        },
    }
