"""Problems of a rendered stack that are known before it is applied."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.base.problems import Problem, nearest
from gpu_tenancy.engine.objects import DependencyCycleError, KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.engine.scopes import DOCUMENTED, declared_scopes, known_scopes
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack

_BUILT_IN_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})


def problems(rendered: Rendered) -> tuple[str, ...]:
    """Returns every reason why the engine or an API server would reject the resources of a stack, sorted.

    Each has the URN or the object, the value, the rule and the fix. A stack is expected to have one cluster: the same
    name for two providers is a duplicate.
    """
    objects = kubernetes_objects(rendered)
    checks = (
        _repeated_urns(rendered),
        _repeated_objects(objects),
        (message for item in objects for message in _unresolved(item)),
        _scope_problems(objects),
        _missing_namespaces(objects, _namespaces(rendered, objects)),
        _cycles(objects),
    )
    return tuple(sorted(message for messages in checks for message in messages))


def _repeated_urns(rendered: Rendered) -> Iterator[str]:
    for urn, count in Counter(registration.urn for registration in rendered.registrations).items():
        if count > 1:
            yield (
                f"{urn}: declared {count} times, but a URN must be unique in a stack; give each resource a unique name"
            )


def _repeated_objects(objects: Iterable[KubernetesObject]) -> Iterator[str]:
    same: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for item in objects:
        if item.name:
            same[item.group, item.kind, item.namespace, item.name].append(item.urn)
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
    scopes = {**known_scopes(), **declared_scopes(objects)}
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


def _namespaces(rendered: Rendered, objects: Iterable[KubernetesObject]) -> frozenset[str]:
    """The namespaces that will exist: those of every cluster, declared ones, and those that a Helm release creates."""
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
    return _BUILT_IN_NAMESPACES | declared | read | released


def _missing_namespaces(objects: Iterable[KubernetesObject], namespaces: frozenset[str]) -> Iterator[str]:
    for item in objects:
        if item.namespace and item.namespace not in namespaces:
            near = get_close_matches(item.namespace, sorted(namespaces - {""}), n=1)
            hint = f"did you mean {near[0]}?" if near else "declare a Namespace with this name, or read an existing one"
            yield (
                f"{item.urn}: metadata.namespace is {item.namespace}, but the stack has no Namespace with this name; "
                f"{hint}"
            )


def _cycles(objects: Sequence[KubernetesObject]) -> Iterator[str]:
    try:
        waves(objects)
    except DependencyCycleError as error:
        yield f"{error}; remove one of them from depends_on"


_OF_CLUSTER: Final = "gpu-tenancy:clouds:"
"""In the URN of each resource below a cluster of `components/clouds`."""


def adoption_problems(source: Source, stack: Stack, rendered: Rendered) -> Iterator[Problem]:
    """Names in `cluster.adopt` that no object of the stack has.

    What a created cluster has beside the tenancy and its operators, such as its StorageClass, is not adopted.
    """
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
