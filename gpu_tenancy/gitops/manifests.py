"""A stack's objects and Helm releases as files in folders that kubectl and helm, Argo CD and Flux can apply."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, Path, map_at, text_at
from gpu_tenancy.engine.files import RELEASE, HelmRelease, as_yaml, helm_releases
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.kinds import kinds

BUILT_IN: Final = frozenset(  # API groups of every API server; operators' releases install all others
    {
        *("", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apps", "autoscaling", "batch"),
        *("coordination.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io"),
        *("resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io"),
    }
)

_RUNS: Final = frozenset(  # kinds that run or queue for days: nothing waits until they are healthy
    key for key, kind in kinds().items() if key == ("", "Pod") or (kind.work and key != ("batch", "Job"))
)

OPERATORS: Final = "operators"  # part of releases, jobs that wait for their webhooks, and their dependencies
TENANCY: Final = "tenancy"  # part of objects that need no server or job, and that no release needs
WORK: Final = "work"  # part of servers, jobs and their dependents; nothing waits until it is healthy

_STAND_IN: Final = "kubernetes:gpu-tenancy:Release"
_NOT_CLOUD: Final = ("kubernetes:", "pulumi:")
_SKIP_AWAIT: Final = "pulumi.com/skipAwait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(KubernetesObject):
    """One object, or one release, whose manifest has only kind and name."""

    release: HelmRelease | None
    before: frozenset[str]  # URNs of its dependencies in earlier waves
    wave: int
    part: str
    retained: bool  # stays when the stack no longer has it


def pieces(rendered: Rendered) -> tuple[Piece, ...]:
    """A stack's objects and releases, by waves and URNs. Raises DependencyCycleError for a dependency cycle."""
    registrations = {registration.urn: registration for registration in rendered.registrations}
    releases = {release.urn: release for release in helm_releases(rendered)}
    # Releases are added to the objects, so that one graph has all dependencies.
    objects = kubernetes_objects(replace(rendered, registrations=tuple(map(_stand_in, rendered.registrations))))
    urns = {item.urn for item in objects}
    namespaces = {item.name: item.urn for item in objects if (item.group, item.kind) == ("", "Namespace")}
    ordered = [(wave, item) for wave, members in enumerate(waves(objects)) for item in members]
    of_namespace = {item.urn: namespaces.get(item.namespace, "") for item in objects}
    before = {item.urn: urns.intersection((*item.depends_on, of_namespace[item.urn])) for item in objects}
    work, operators = set[str](), set[str]()
    for _, item in ordered:
        skipped = text_at(item.manifest, "metadata", "annotations", _SKIP_AWAIT) == "true"
        # A DaemonSet sets up nodes, which the operators need; on nodes that do not exist yet it is healthy.
        sets_up = (item.group, item.kind) == ("apps", "DaemonSet")
        if before[item.urn] & work or (not sets_up and (skipped or (item.group, item.kind) in _RUNS)):
            work.add(item.urn)
    for _, item in reversed(ordered):
        awaited = item.urn in releases or ((item.group, item.kind) == ("batch", "Job") and item.urn not in work)
        if awaited or item.urn in operators:
            operators |= {item.urn, *before[item.urn]}
    return tuple(
        Piece(
            item.manifest,
            item.urn,
            item.depends_on,
            release=releases.get(item.urn),
            before=frozenset(before[item.urn]),
            wave=wave,
            part=WORK if item.urn in work else OPERATORS if item.urn in operators else TENANCY,
            retained=registrations[item.urn].retain_on_delete,
        )
        for wave, item in ordered
    )


def _stand_in(registration: Registration) -> Registration:
    if registration.type != RELEASE or registration.external_id:
        return registration
    metadata: dict[str, Json] = {key: text_at(registration.inputs, key) for key in ("name", "namespace")}
    inputs: dict[str, Json] = {"apiVersion": "helm.sh/v3", "kind": "Release", "metadata": metadata}
    return replace(registration, type=_STAND_IN, inputs=inputs, secret_paths=(), unknown_paths=())


def refusals(rendered: Rendered) -> tuple[str, ...]:
    """Secret and unknown values, with which a stack cannot be written as manifests; sorted."""
    problems: list[str] = []
    for item in kubernetes_objects(rendered):
        name = f"{item.namespace}/{item.name}" if item.namespace else item.name
        problems += _hidden(f"{item.kind} {name}", item.secret_paths, item.unknown_paths)
    registrations = {registration.urn: registration for registration in rendered.registrations}
    for release in helm_releases(rendered):
        registration, what = registrations[release.urn], f"Helm release {release.namespace}/{release.name}"
        problems += _hidden(what, registration.secret_paths, registration.unknown_paths)
        if not release.repository and not release.chart.startswith("oci://"):
            lacking = f"{what}: chart {release.chart} has no repository, so other machines cannot download it"
            problems.append(f"{lacking}; set a repository, or use a chart with an oci:// URL")
        if not release.version:
            problems.append(f"{what}: no chart version, so each sync could install a newer one; set the version")
    return tuple(sorted(problems))


def stays(rendered: Rendered) -> tuple[tuple[str, str], ...]:
    """Type and name of the cloud resources, which cannot be manifests and stay with Pulumi; sorted."""
    created = (item for item in rendered.registrations if item.custom and not item.external_id)
    return tuple(sorted((item.type, item.name) for item in created if not item.type.startswith(_NOT_CLOUD)))


def _hidden(what: str, secret: tuple[Path, ...], unknown: tuple[Path, ...]) -> Iterator[str]:
    if secret:
        fix = "remove it from the stack and use an operator in the cluster, such as External Secrets"
        yield f"{what}: {_places(secret)} is secret and would be readable in git; {fix}"
    if unknown:
        fix = "set the value in the stack, or deploy the stack with `pulumi up`"
        yield f"{what}: {_places(unknown)} is known only after deployment; {fix}"


def _places(paths: tuple[Path, ...]) -> str:
    return ", ".join(".".join(map(str, path)) or "the whole object" for path in paths)


_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_KUSTOMIZATION: Final = "kustomization.yaml"
_TO_PULUMI: Final = "pulumi.com/"
_RETAINED: Final[dict[str, Json]] = {  # Argo CD and Flux keep such an object when the folder no longer has it
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}

Files = dict[PurePosixPath, str]  # file contents by path


def content(piece: Piece) -> dict[str, Json]:
    """The manifest without Pulumi's fields."""
    metadata = map_at(piece.manifest, "metadata")
    kept = {key: value for key, value in map_at(metadata, "annotations").items() if not key.startswith(_TO_PULUMI)}
    kept |= _RETAINED if piece.retained else {}
    changed: dict[str, Json] = {key: value for key, value in metadata.items() if key != "annotations"}
    if kept:
        changed = {"annotations": dict(sorted(kept.items())), **changed}
    return {key: changed if key == "metadata" else value for key, value in piece.manifest.items()}


def file_name(member: Piece) -> str:
    """The file name of an object, unique in a stack, such as `ml-research.job-nightly.yaml`."""
    place = member.namespace or "_cluster"
    kind = member.kind.lower() if member.group in BUILT_IN else f"{member.kind.lower()}.{member.group}"
    return _UNSAFE.sub("_", f"{place}.{kind}-{member.name}") + ".yaml"


def named(files: Iterable[tuple[str, Mapping[str, Json]]]) -> dict[str, Mapping[str, Json]]:
    """Manifests by file name. Raises ConsoleError if two objects have the same file name."""
    members: dict[str, Mapping[str, Json]] = {}
    for file, manifest in files:
        if file in members:
            raise ConsoleError(f"{file}: two objects have this file name", "rename one of them")
        members[file] = manifest
    return members


def plain(pieces: Sequence[Piece]) -> Files:
    """The files in `operators`, `tenancy` and `work`: objects with a kustomization, Helm values with their command.

    Each folder numbers its own waves, so a new operator renames no file of the teams.
    """

    def kustomization(resources: Iterable[str]) -> str:
        kind: dict[str, Json] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
        return as_yaml({**kind, "resources": [*resources]})

    files: Files = {}
    for part in (OPERATORS, TENANCY, WORK):
        members = [piece for piece in pieces if piece.part == part]
        listed: list[str] = []
        for number, wave in enumerate(sorted({piece.wave for piece in members})):
            place = PurePosixPath(part, f"wave-{number:02}")
            of_wave = [piece for piece in members if piece.wave == wave]
            if objects := named((file_name(piece), content(piece)) for piece in of_wave if not piece.release):
                files |= {place / file: as_yaml(manifest) for file, manifest in sorted(objects.items())}
                files[place / _KUSTOMIZATION] = kustomization(sorted(objects))
                listed.append(place.name)
            for release in (piece.release for piece in of_wave if piece.release):
                file = place / f"helm-{release.name}.yaml"
                files[file] = f"# {_command(release, file)}\n" + as_yaml(release.values)
        if listed:
            files[PurePosixPath(part, _KUSTOMIZATION)] = kustomization(listed)
    return files


def _command(release: HelmRelease, values: PurePosixPath) -> str:
    arguments = ["helm", "upgrade", "--install", release.name, release.reference, "--version", release.version]
    arguments += ["--repo", release.repository] if release.repository else []
    arguments += ["--namespace", release.namespace, "--values", values.as_posix(), "--atomic"]
    arguments += ["--timeout", f"{release.timeout}s"] if release.timeout else []
    arguments += ["--skip-crds"] if release.skip_crds else []
    return shlex.join(arguments)
