"""The resources of a stack as a tree for the terminal, with the most important fields of each object."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from rich.text import Text
from rich.tree import Tree

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.quantity import CPU, format_amount, is_extended, parse_bytes, parse_cpu
from gpu_tenancy.base.texts import plural
from gpu_tenancy.engine.files import helm_releases
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.catalogue import PRODUCT_LABELS
from gpu_tenancy.model.kinds import WorkloadKind, kind_of

Manifest = Mapping[str, Json]

_GPU = tuple(f"{of}{domain}/" for of in ("", "requests.") for domain in (*PRODUCT_LABELS, "habana.ai"))
_LIMIT = 4


def details(manifest: Manifest) -> str:
    """Returns an object's most important fields; empty for other kinds. Pass a manifest without secrets."""
    if kind := kind_of(manifest):
        return _workload(manifest, kind)
    describe = _BY_KIND.get((text_at(manifest, "apiVersion").rpartition("/")[0], text_at(manifest, "kind")))
    return describe(manifest) if describe else ""


def _few(items: list[str]) -> str:
    return ", ".join(items[:_LIMIT]) + (f", +{len(items) - _LIMIT}" if len(items) > _LIMIT else "")


def _pairs(value: Json) -> list[tuple[str, Json]]:
    if not isinstance(value, dict):
        return []
    return sorted(value.items(), key=lambda pair: (not pair[0].startswith(_GPU), pair[0]))


def _plain(value: Json) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _quotas(manifest: Manifest) -> Iterator[tuple[bool, str]]:
    """Each nonzero quota of a flavor: whether it is for GPUs, and its text, such as `a100 8 → 32`."""
    for group in maps_at(manifest, "spec", "resourceGroups"):
        for flavor in maps_at(group, "flavors"):
            for resource in maps_at(flavor, "resources"):
                name = text_at(resource, "name")
                is_gpu = name.startswith(_GPU)
                what = text_at(flavor, "name") if is_gpu else f"{text_at(flavor, 'name')} {name}"
                if reach := _reach(resource):
                    yield is_gpu, f"{what} {reach}"


def _reach(resource: Mapping[str, Json]) -> str:
    """`8 → 32` with a borrowing limit, `8` without; empty without a quota."""
    nominal, borrowing = _plain(resource.get("nominalQuota")), _plain(resource.get("borrowingLimit"))
    if not borrowing:
        return nominal if nominal != "0" else ""
    name = text_at(resource, "name")
    try:
        parse = parse_cpu if name == CPU else parse_bytes
        own, maximum = parse(nominal), parse(nominal) + parse(borrowing)
    except ValueError:
        return f"{nominal} → {nominal} + {borrowing}"
    # GPUs as a plain number: of 2000, `2k` would be the form of the API server.
    own_text, maximum_text = (str(n) if is_extended(name) else format_amount(name, n) for n in (own, maximum))
    return f"{own_text} → {maximum_text}" if maximum else ""


def _queue(manifest: Manifest) -> str:
    """Quotas of a ClusterQueue or Cohort, only of GPUs if there are any; and the parent of a Cohort."""
    quotas = list(_quotas(manifest))
    gpus = [text for is_gpu, text in quotas if is_gpu]
    parent = text_at(manifest, "spec", "parentName")
    return "; ".join(filter(None, (f"parent {parent}" if parent else "", _few(gpus or [text for _, text in quotas]))))


def _limit_range(manifest: Manifest) -> str:
    limits = [pair for limit in maps_at(manifest, "spec", "limits") for pair in _pairs(limit.get("max"))]
    return _few([f"max {name} {_plain(amount)}" for name, amount in limits])


def _monitor(manifest: Manifest) -> str:
    ends = maps_at(manifest, "spec", "endpoints")
    return _few([f"{text_at(end, 'port')}{text_at(end, 'path') or '/metrics'}" for end in ends])


def _field(*path: str, before: str = "") -> Callable[[Manifest], str]:
    def describe(manifest: Manifest) -> str:
        value = _plain(at(manifest, *path))
        return f"{before}{value}" if value else ""

    return describe


def _map(*path: str, between: str = " ") -> Callable[[Manifest], str]:
    return lambda manifest: _few([f"{name}{between}{_plain(value)}" for name, value in _pairs(at(manifest, *path))])


def _gpus(template: Manifest) -> str:
    limits = [
        pair for one in maps_at(template, "spec", "containers") for pair in _pairs(at(one, "resources", "limits"))
    ]
    limits += _pairs(at(template, "resourcesPerNode", "limits"))
    return _few([f"{name} {_plain(amount)}" for name, amount in limits if name.startswith(_GPU)])


def _workload(manifest: Manifest, kind: WorkloadKind) -> str:
    """The pods of an object: `4 x nvidia.com/gpu 8`, `launcher 1, node 4 x nvidia.com/gpu 8`."""
    has_roles = len(kind.pods) > 1 or any(step.form in {"[]", "{}"} for pods in kind.pods for step in pods.at)
    roles: list[str] = []
    for pods in kind.pod_sets(manifest):
        count = str(pods.count) if has_roles or pods.stated else ""
        text = " x ".join(filter(None, (count, _gpus(pods.template))))
        roles.append(f"{pods.name} {text}" if has_roles else text)
    if kind.groups is None:
        return _few(roles)
    return " x ".join(filter(None, (_plain(at(manifest, *kind.groups.count.split("."))), f"({_few(roles)})")))


def _autoscaler(manifest: Manifest) -> str:
    target = text_at(manifest, "spec", "scaleTargetRef", "name")
    if text_at(manifest, "kind") == "HorizontalPodAutoscaler":
        low, high = (_plain(at(manifest, "spec", f"{bound}Replicas")) for bound in ("min", "max"))
        return f"{target} {low or 1} → {high}"
    low, high = (_plain(at(manifest, "spec", f"{bound}ReplicaCount")) for bound in ("min", "max"))
    triggers = _few([text_at(trigger, "type") for trigger in maps_at(manifest, "spec", "triggers")])
    return " on ".join(filter(None, (f"{target} {low or 0} → {high or 100}", triggers))) if target else ""


_KUEUE = "kueue.x-k8s.io"
_BY_KIND: Mapping[tuple[str, str], Callable[[Manifest], str]] = MappingProxyType(
    {
        ("", "LimitRange"): _limit_range,
        ("", "Namespace"): _field("metadata", "labels", "pod-security.kubernetes.io/enforce", before="pod security "),
        ("", "ResourceQuota"): _map("spec", "hard"),
        ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
        (_KUEUE, "ClusterQueue"): _queue,
        (_KUEUE, "Cohort"): _queue,
        (_KUEUE, "LocalQueue"): _field("spec", "clusterQueue", before="cluster queue "),
        (_KUEUE, "ResourceFlavor"): _map("spec", "nodeLabels", between="="),
        (_KUEUE, "WorkloadPriorityClass"): _field("value"),
        ("keda.sh", "ScaledObject"): _autoscaler,
        ("monitoring.coreos.com", "ServiceMonitor"): _monitor,
        ("policy", "PodDisruptionBudget"): _field("spec", "maxUnavailable", before="max unavailable "),
        ("scheduling.k8s.io", "PriorityClass"): _field("value"),
        ("scheduling.volcano.sh", "Queue"): _map("spec", "capability"),
    }
)


def tree(rendered: Rendered) -> Tree:
    """Returns the created resources of a stack under their parents; components have the number of their resources."""
    branches = _Branches(rendered)
    listed = [branches.branch(child, frozenset()) for child in branches.children("")]
    total = plural(sum(count for _, count in listed), "resource")
    title = (f"{rendered.project}/{rendered.stack}", "bold"), (f"  {total}", "dim")
    root = Tree(Text.assemble(*title), guide_style="dim")
    root.children.extend(branch for branch, _ in listed)
    return root


class _Branches:
    def __init__(self, rendered: Rendered) -> None:
        self._objects: Mapping[str, KubernetesObject] = {item.urn: item for item in kubernetes_objects(rendered)}
        self._releases = {release.urn: release for release in helm_releases(rendered)}
        parents = {registration.urn: registration.parent for registration in rendered.registrations}
        shown = [registration for registration in rendered.registrations if registration.will_exist]
        listed = {registration.urn for registration in shown}
        self._children: defaultdict[str, list[Registration]] = defaultdict(list)
        for registration in shown:
            parent = registration.parent
            while parent and parent not in listed:
                parent = parents.get(parent, "")
            self._children[parent].append(registration)

    def branch(self, registration: Registration, above: frozenset[str]) -> tuple[Tree, int]:
        """The branch of a resource, and the number of its descendants without components."""
        inside = above | {registration.urn}
        children = () if registration.urn in above else self.children(registration.urn)
        branches = [self.branch(child, inside) for child in children]
        beneath = sum(count for _, count in branches)
        label = self._label(registration)
        if not registration.custom:
            label.append(f"  {plural(beneath, 'resource')}", "dim")
        branch = Tree(label, guide_style="dim")
        branch.children.extend(child for child, _ in branches)
        return branch, beneath + registration.custom

    def _label(self, registration: Registration) -> Text:
        item = self._objects.get(registration.urn)
        if item:
            title = (f"{item.kind} ", "cyan"), item.name or f"({registration.name}: no name)"
            fields = details(item.shown)
        else:
            release = self._releases.get(registration.urn)
            style = "cyan" if registration.custom else "bold"
            title = (f"{_short_type(registration.type)} ", style), release.name if release else registration.name
            fields = release.version if release else ""
        suffix = ((f"  {fields}", "green"),) if fields else ()
        return Text.assemble(*title, *suffix, no_wrap=True, overflow="ellipsis")

    def children(self, parent: str) -> tuple[Registration, ...]:
        children = self._children.get(parent, ())
        return tuple(sorted(children, key=lambda child: (child.custom, _short_type(child.type), child.name)))


def _short_type(token: str) -> str:
    return token.rpartition(":")[2]
