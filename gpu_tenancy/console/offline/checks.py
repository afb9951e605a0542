"""What is wrong with a rendered stack before any cluster sees it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from gpu_tenancy.console.offline.manifests import KubernetesObject, kubernetes_objects
from gpu_tenancy.console.offline.ordering import DependencyCycleError, waves
from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.offline.scopes import CLUSTER_SCOPED, declared_scopes
from gpu_tenancy.console.offline.wire import at, text_at

_BUILT_IN_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})


def problems(rendered: Rendered) -> tuple[str, ...]:
    """Returns every reason why the engine or an API server would refuse what a stack declares, sorted.

    Each names the URN or the object, the value, the rule, and what mends it. A stack is taken to have one
    cluster: the same name declared for two providers counts as declared twice.
    """
    objects = kubernetes_objects(rendered)
    found = (
        _repeated_urns(rendered),
        _repeated_objects(objects),
        (message for one in objects for message in _unresolved(one)),
        _scope_problems(objects),
        _homeless(objects, _namespaces(rendered, objects)),
        _cycles(objects),
    )
    return tuple(sorted(message for messages in found for message in messages))


def _repeated_urns(rendered: Rendered) -> Iterator[str]:
    times: defaultdict[str, int] = defaultdict(int)
    for registration in rendered.registrations:
        times[registration.urn] += 1
    for urn, count in times.items():
        if count > 1:
            yield (
                f"{urn}: declared {count} times, but a URN names one resource of a stack; "
                "give each a resource name of its own"
            )


def _repeated_objects(objects: Iterable[KubernetesObject]) -> Iterator[str]:
    same: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for one in objects:
        if one.name:
            same[one.group, one.kind, one.namespace, one.name].append(one.urn)
    for (group, kind, namespace, name), urns in same.items():
        if len(urns) > 1:
            place = f"namespace {namespace}" if namespace else "the cluster"
            by = " and by ".join(urns)
            yield (
                f"{kind}{'.' if group else ''}{group} {name} in {place}: declared by {by}, "
                "but an API server keeps one object of a name; rename or remove all but one"
            )


def _unresolved(one: KubernetesObject) -> Iterator[str]:
    """A name or namespace that nobody can read before the cluster is there."""
    for key in ("name", "namespace"):
        reason = one.withheld("metadata", key)
        if reason:
            yield (
                f"{one.urn}: metadata.{key} is {reason}, but what an object is called must be readable in a "
                f"pull request; take the {key} from the stack's configuration"
            )
    if one.name or one.withheld("metadata", "name"):
        return
    generated = text_at(one.manifest, "metadata", "generateName")
    value = f"metadata.generateName is {generated}" if generated else "metadata.name is missing"
    yield (
        f"{one.urn}: {value}, so this {one.kind} would get a random name and every preview another one; "
        "set metadata.name"
    )


def _scope_problems(objects: Sequence[KubernetesObject]) -> Iterator[str]:
    declared = declared_scopes(objects)
    for one in objects:
        kind = one.group, one.kind
        if one.withheld("metadata", "namespace"):
            continue
        if declared.get(kind, kind in CLUSTER_SCOPED):
            if one.namespace:
                yield (
                    f"{one.urn}: metadata.namespace is {one.namespace}, but a {one.kind} belongs to the "
                    "whole cluster; remove metadata.namespace"
                )
        elif not one.namespace:
            yield (
                f"{one.urn}: metadata.namespace is missing, so this {one.kind} would land in whatever "
                f"namespace the kubeconfig names; set it, or add ({one.group!r}, {one.kind!r}) to "
                "CLUSTER_SCOPED if the kind belongs to the whole cluster"
            )


def _namespaces(rendered: Rendered, objects: Iterable[KubernetesObject]) -> frozenset[str]:
    """The namespaces that will be there: a cluster's own, declared ones, those that a Helm release makes."""
    declared = {one.name for one in objects if (one.group, one.kind) == ("", "Namespace")}
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


def _homeless(objects: Iterable[KubernetesObject], namespaces: frozenset[str]) -> Iterator[str]:
    for one in objects:
        if one.namespace and one.namespace not in namespaces:
            near = get_close_matches(one.namespace, sorted(namespaces - {""}), n=1)
            hint = f"did you mean {near[0]}?" if near else "declare a Namespace of that name, or read it"
            yield (
                f"{one.urn}: metadata.namespace is {one.namespace}, but the stack declares no such Namespace; {hint}"
            )


def _cycles(objects: Sequence[KubernetesObject]) -> Iterator[str]:
    try:
        waves(objects)
    except DependencyCycleError as error:
        yield f"{error}; take one of these out of the other's depends_on"
