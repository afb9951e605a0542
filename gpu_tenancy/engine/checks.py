"""Problems of a rendered stack that are known before it is applied, and the scopes of kinds.

`scopes.yaml` is generated from Kubernetes' OpenAPI document and the pinned custom resource definitions (`make scopes`).
`scopes_documented.yaml` has all other kinds, each with the source of its scope.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.base.problems import Problem, nearest
from gpu_tenancy.engine.objects import DependencyCycleError, KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_table

GENERATED: Final = Path(__file__).parent / "scopes.yaml"
DOCUMENTED: Final = Path(__file__).parent / "scopes_documented.yaml"

Kind: TypeAlias = tuple[str, str]  # API group (empty for the core group) and kind


class Scopes(BaseModel):
    """The kinds of one set of definitions (such as `kueue`) by API group, and the checksum of the definitions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    definitions: str
    version: str
    sha256: str
    cluster: dict[str, list[str]] = {}
    namespaced: dict[str, list[str]] = {}

    def kinds(self) -> Iterator[tuple[Kind, bool]]:
        """Each kind, and whether it is cluster-scoped."""
        for kinds, cluster_scoped in ((self.cluster, True), (self.namespaced, False)):
            for group, names in kinds.items():
                yield from (((group, name), cluster_scoped) for name in names)


class DocumentedScope(BaseModel):
    """The scope of a kind whose definition is not pinned, with its source and the day it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    kind: str
    scope: Literal["Cluster", "Namespaced"]
    source: str
    date: date


@cache
def generated_scopes() -> tuple[Scopes, ...]:
    """The rows of `scopes.yaml`."""
    return tuple(TypeAdapter(list[Scopes]).validate_python(read_table(GENERATED)))


@cache
def documented_scopes() -> tuple[DocumentedScope, ...]:
    """The rows of `scopes_documented.yaml`."""
    return tuple(TypeAdapter(list[DocumentedScope]).validate_python(read_table(DOCUMENTED)))


@cache
def known_scopes() -> Mapping[Kind, bool]:
    """Whether each known kind is cluster-scoped."""
    documented = {(row.group, row.kind): row.scope == "Cluster" for row in documented_scopes()}
    return documented | {kind: cluster for scopes in generated_scopes() for kind, cluster in scopes.kinds()}


def defined_scope(definition: Mapping[str, Json]) -> tuple[Kind, bool]:
    """The kind that a CustomResourceDefinition defines, and whether it is cluster-scoped."""
    kind = (text_at(definition, "spec", "group"), text_at(definition, "spec", "names", "kind"))
    return kind, text_at(definition, "spec", "scope") == "Cluster"


_BUILT_IN_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})


def problems(rendered: Rendered) -> tuple[str, ...]:
    """Returns every reason why the engine or an API server would reject the resources of a stack, sorted.

    A stack is expected to have one cluster: the same name for two providers is a duplicate.
    """
    objects = kubernetes_objects(rendered)
    repeated = (
        f"{urn}: declared {count} times, but a URN must be unique in a stack; give each resource a unique name"
        for urn, count in Counter(registration.urn for registration in rendered.registrations).items()
        if count > 1
    )
    unresolved = (message for item in objects for message in _unresolved(item))
    missing = _missing_namespaces(rendered, objects)
    found = [*repeated, *_repeated_objects(objects), *unresolved, *_scope_problems(objects), *missing]
    try:
        waves(objects)
    except DependencyCycleError as error:
        found.append(f"{error}; remove one of them from depends_on")
    return tuple(sorted(found))


def _repeated_objects(objects: Iterable[KubernetesObject]) -> Iterator[str]:
    same = grouped(((item.group, item.kind, item.namespace, item.name), item.urn) for item in objects if item.name)
    for (group, kind, namespace, name), urns in same.items():
        if len(urns) > 1:
            place = f"namespace {namespace}" if namespace else "the cluster"
            by = " and by ".join(urns)
            yield (
                f"{kind}{'.' if group else ''}{group} {name} in {place}: declared by {by}, "
                "but a name must be unique; rename or remove all but one"
            )


def _unresolved(item: KubernetesObject) -> Iterator[str]:
    for key in ("name", "namespace"):
        reason = item.withheld("metadata", key)
        if reason:
            yield (
                f"{item.urn}: metadata.{key} is {reason}, but a preview must show the {key} of each object; "
                "set it from the stack's configuration"
            )
    if item.name or item.withheld("metadata", "name"):
        return
    generated = text_at(item.manifest, "metadata", "generateName")
    value = f"metadata.generateName is {generated}" if generated else "metadata.name is missing"
    yield (
        f"{item.urn}: {value}, so this {item.kind} would get another random name in every preview; set metadata.name"
    )


def _scope_problems(objects: Sequence[KubernetesObject]) -> Iterator[str]:
    definition = ("apiextensions.k8s.io", "CustomResourceDefinition")
    declared = dict(defined_scope(item.manifest) for item in objects if (item.group, item.kind) == definition)
    scopes = {**known_scopes(), **declared}
    for item in objects:
        if item.withheld("metadata", "namespace"):
            continue
        cluster_scoped = scopes.get((item.group, item.kind))
        if cluster_scoped and item.namespace:
            yield (
                f"{item.urn}: metadata.namespace is {item.namespace}, but {item.kind} is cluster-scoped; "
                "remove metadata.namespace"
            )
        elif cluster_scoped is False and not item.namespace:
            yield (
                f"{item.urn}: metadata.namespace is missing, so this {item.kind} would be created in the default "
                "namespace of the kubeconfig; set it"
            )
        elif cluster_scoped is None and not item.namespace:
            yield (
                f"{item.urn}: metadata.namespace is missing, and the scope of {item.kind}.{item.group} is unknown; set "
                f"the namespace, or add the kind to {DOCUMENTED.name} if it is cluster-scoped"
            )


def _missing_namespaces(rendered: Rendered, objects: Iterable[KubernetesObject]) -> Iterator[str]:
    declared = {item.name for item in objects if (item.group, item.kind) == ("", "Namespace")}
    read = {
        registration.external_id
        for registration in rendered.registrations
        if registration.external_id and registration.type == "kubernetes:core/v1:Namespace"
    }
    released = {
        text_at(registration.inputs, "namespace")
        for registration in rendered.registrations
        if registration.type == "kubernetes:helm.sh/v3:Release" and at(registration.inputs, "createNamespace")
    }
    namespaces = _BUILT_IN_NAMESPACES | declared | read | released
    for item in objects:
        if item.namespace and item.namespace not in namespaces:
            near = get_close_matches(item.namespace, sorted(namespaces - {""}), n=1)
            hint = f"did you mean {near[0]}?" if near else "declare a Namespace with this name, or read an existing one"
            yield (
                f"{item.urn}: metadata.namespace is {item.namespace}, but the stack has no Namespace with this name; "
                f"{hint}"
            )


_OF_CLUSTER: Final = "gpu-tenancy:clouds:"  # in the URN of each resource below a cluster of `components/clouds`


def adoption_problems(source: Source, stack: Stack, rendered: Rendered) -> Iterator[Problem]:
    """Names in `cluster.adopt` that no object of the tenancy or its operators has."""
    if not stack.cluster.adopt:
        return
    objects = kubernetes_objects(rendered)
    known = {Reference.of(item.manifest).adoptable for item in objects if _OF_CLUSTER not in item.urn}
    for place, name in enumerate(stack.cluster.adopt):
        if name not in known:
            path = ("cluster", "adopt", place)
            yield Problem(
                path,
                "is no object that this stack can adopt",
                f"remove it, or correct it: {nearest(name, known)}",
                value=name,
                file=source.file,
                line=source.line(path),
            )
