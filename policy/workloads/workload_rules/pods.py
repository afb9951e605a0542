"""Pods and containers in objects of Kubernetes and of operators."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Annotated, Concatenate, Final, Literal, ParamSpec, TypeVar

from pydantic import AfterValidator, Field

from rule_engine import Resource, Settings, Subject, Unknown, View, read_table
from rule_engine.resources import Placed
from workload_rules.objects import FACTS, PODS_IN, TRAIN_JOB, matches_any
from workload_rules.shapes import CONTAINER_LISTS, Form, find_pods

UNSEARCHED: Final[Mapping[str, list[str]]] = FACTS["unsearched"]
"""API groups of operators whose objects are not searched for pods by shape, by the reason."""
_DYNAMIC: Final = ("pulumi-nodejs:dynamic", "pulumi-python:dynamic")
"""Types of resources that a program's own code creates, such as a pod:
https://www.pulumi.com/docs/iac/concepts/providers/dynamic-providers/."""
_WITHOUT_PODS: Final = frozenset(FACTS["kubernetes"]).union(*UNSEARCHED.values())
SYSTEM: Final[list[str]] = read_table(Path(__file__).with_name("namespaces.yaml"))
"""Namespaces of Kubernetes, clouds and operators, which do not belong to a tenant."""


def _exact(names: list[str]) -> list[str]:
    """Full names of namespaces; patterns are rejected."""
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a namespace; list exact names, without patterns")
    return names


_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
Namespaces = Annotated[list[str], AfterValidator(_exact)]
"""Exact names: a pattern such as `*-system` would exempt each namespace that a tenant names like it."""

_CLAIMS: Final = {"ResourceClaimTemplate": "resourceClaimTemplateName", "ResourceClaim": "resourceClaimName"}


class Tenants(Settings):
    """Selects the namespaces of tenants."""

    system: Namespaces = Field(SYSTEM)
    """Namespaces that do not belong to a tenant, by exact name; objects in them are not checked as a tenant's."""
    platform: Namespaces = Field([])
    """Further namespaces that do not belong to a tenant, by exact name: those of your platform team."""

    def tenant(self, namespace: str) -> bool:
        """Whether a namespace is a tenant's."""
        return namespace not in self.system and namespace not in self.platform


_Part = TypeVar("_Part", bound=Placed)
_Tenants = TypeVar("_Tenants", bound=Tenants)
_More = ParamSpec("_More")


def for_tenants(
    check: Callable[Concatenate[_Part, _Tenants, _More], Iterable[str]],
) -> Callable[Concatenate[_Part, _Tenants, _More], Iterator[str]]:
    """The check of a rule that is only about objects of tenants; an unknown namespace matters only for a message."""

    @wraps(check)
    def checked(part: _Part, settings: _Tenants, *more: _More.args, **named: _More.kwargs) -> Iterator[str]:
        metadata = part.resource.props.entries("metadata")
        known = not isinstance(metadata.get("namespace", View(None)).value, Unknown)
        if known and not settings.tenant(namespace_of(part)):
            return
        for message in check(part, settings, *more, **named):
            if settings.tenant(namespace_of(part)):
                yield message

    return checked


class Gpus(Settings):
    """Selects the resources that are GPUs."""

    gpus: list[str] = Field(default=[name for names in FACTS["gpus"].values() for name in names])
    """Resource names of GPUs, partitions and other accelerators, as patterns (`nvidia.com/mig-*`). Add names that your
    device plugin gives them."""

    def is_gpu(self, resource: str) -> bool:
        """Whether a resource name is a GPU's."""
        return "/" in resource and matches_any(resource, self.gpus)  # most are not: cpu and memory


class TenantGpus(Tenants, Gpus):
    """Selects the namespaces of tenants and the resources that are GPUs."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A reference of a pod, at a path, to a `ResourceClaim`, or to a `ResourceClaimTemplate` for a claim of its own."""

    kind: str
    name: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """A pod or a pod template of an object."""

    resource: Resource
    meta: View
    spec: View
    label: str = ""  # the name of the template in its object; empty if there is only one
    # A whole spec; `part`: some fields, such as overrides; `container`, `trainer`: a container without a spec around
    # it.
    form: Form | Literal["trainer"] = "pod"
    container: View = field(default_factory=lambda: View(None))  # for these two, its map
    resources: str = "resources"  # the field of it with its resources

    @property
    def place(self) -> str:
        """The object, and the name of the template."""
        return f"{self.resource.place}, {self.label}" if self.label else self.resource.place

    @property
    def kind(self) -> str:
        """API group and kind of its object: `batch:Job`."""
        return self.resource.object_kind

    @property
    def containers(self) -> list["Container"]:
        """Containers and init containers; for a TrainJob, its trainer."""
        if self.form in {"container", "trainer"}:
            return [Container(self, self.container, self.form, self.resources)]
        return [
            Container(self, view, field)
            for field in CONTAINER_LISTS
            for view in self.spec.items(field)
            if isinstance(view.value, (dict, Unknown))
        ]

    def value_at(self, path: str) -> View:
        """The value at a path of its object, as in `PODS_IN`: of its template, else of all; else a view of None."""
        views = {".".join(names): view for names, view in views_at(self.resource.props, path)}
        return views.get(self.label, views.get("", View(None)))

    @property
    def claims(self) -> list[Claim]:
        """Its claims: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/."""
        return [
            Claim(kind, reference.text(key), (*reference.path, key))
            for reference in self.spec.items("resourceClaims")
            for kind, key in _CLAIMS.items()
            if reference.has(key)
        ]

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """Requested GPUs by resource name: the sum over containers, or the maximum of an init container if higher.

        https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
        """
        return self.resource.once((self, *settings.gpus), lambda: self._gpus(settings))

    def _gpus(self, settings: Gpus) -> dict[str, Decimal]:
        running, before = defaultdict[str, Decimal](Decimal), defaultdict[str, Decimal](Decimal)
        for container in self.containers:
            for name, count in container.gpus(settings).items():
                if container.is_long_running:
                    running[name] += count
                else:
                    before[name] = max(before[name], count)
        gpus = {name: max(running[name], before[name]) for name in sorted({*running, *before})}
        return {name: count for name, count in gpus.items() if count > 0}


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A container of a pod."""

    pod: Pod
    view: View
    within: str = "containers"  # the list of the pod spec; `trainer` of a TrainJob; `container` without a list
    field: str = "resources"  # with its resources

    @property
    def resource(self) -> Resource:
        """The object that contains it."""
        return self.pod.resource

    @property
    def place(self) -> str:
        """The pod's place, and the name of the container."""
        if self.within == "container":
            return self.pod.place
        return f"{self.pod.place}, container {self.view.text('name') or self.view.path[-1]}"

    @property
    def is_long_running(self) -> bool:
        """Whether it runs as long as the pod, as containers and sidecars do."""
        return self.within != "initContainers" or self.view.text("restartPolicy") == "Always"

    @property
    def resources(self) -> View:
        """Its requests and limits."""
        return self.view.at(self.field)

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """Requested GPUs by resource name, from limits or, without these, from requests."""
        amounts = {**self.resources.entries("requests"), **self.resources.entries("limits")}
        if self.within == "container" and self.view.has("gpu", "quantity"):  # of the Spark operator
            amounts[self.view.text("gpu", "name")] = self.view.at("gpu", "quantity")
        return {name: view.number() or Decimal(0) for name, view in amounts.items() if settings.is_gpu(name)}


def namespace_of(part: Placed) -> str:
    """The namespace of an object or a part of one; `default` if it is not set."""
    resource = part.resource
    return resource.once("namespace", lambda: resource.props.text("metadata", "namespace", default="default"))


def holds_pods(resource: Resource) -> bool:
    """Whether an object can have pods: by the table, or by its shape."""
    return resource.object_kind in PODS_IN or is_searched(resource)


def is_searched(resource: Resource) -> bool:
    """Whether an object is searched for pods by shape, as those of operators and of dynamic providers are."""
    return resource.type.startswith(_DYNAMIC) or (bool(resource.group) and resource.group not in _WITHOUT_PODS)


def _pods_by_table(resource: Resource) -> Iterator[Pod]:
    for path in PODS_IN.get(resource.object_kind, ()):
        for names, view in views_at(resource.props.as_part(), path):
            parts = ("spec", "metadata") if resource.reads is not None else ("spec",)
            if any(view.at(part).value is not None for part in parts):
                yield Pod(resource, view.at("metadata"), view.at("spec"), ".".join(names))


def _pods_by_shape(resource: Resource, known: frozenset[tuple[str, ...]]) -> Iterator[Pod]:
    if not is_searched(resource):
        return
    if resource.object_kind == TRAIN_JOB:
        known |= {("spec", "trainer")}
    props = resource.props.as_part()
    if not resource.group and isinstance(props.value, dict):  # inputs of any kind, which may well be unknown
        props = View({key: value for key, value in props.value.items() if not isinstance(value, Unknown)})
    for found in find_pods(props, known):
        # In a known kind, what its table does not have overrides what it has.
        form = "part" if found.form == "pod" and known else found.form
        alone = found.form == "container"
        spec, container = (View(None, found.view.path), found.view) if alone else (found.view, View(None))
        yield Pod(resource, found.meta, spec, found.label, form, container, found.resources)


def _all_pods(resource: Resource) -> list[Pod]:
    """The pods of an object and parts of pods, by table and by shape; a patch has only parts."""

    def find() -> list[Pod]:
        pods = [*_pods_by_table(resource)]
        pods += _pods_by_shape(resource, frozenset(pod.spec.path for pod in pods))
        if resource.reads is None:
            return pods
        return [replace(pod, form="part") if pod.form == "pod" else pod for pod in pods]

    return resource.once("pods and parts", find)


def views_at(view: View, path: str) -> list[tuple[tuple[str, ...], View]]:
    """The values at a path as in `PODS_IN`, each with the names of the items and entries that `*` matched."""
    return list(_at(view, path.split(".") if path else [], ()))


def _at(view: View, keys: Sequence[str], names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], View]]:
    if not keys:
        yield names, view
    elif keys[0] != "*":
        yield from _at(view.at(keys[0]), keys[1:], names)
    elif isinstance(view.value, list):
        for item in view.items():
            if not isinstance(item.value, (dict, Unknown)):
                continue
            name = item.text("name") or item.text("groupName") or item.path[-1]
            yield from _at(item, keys[1:], (*names, name))
    else:
        for name, item in view.entries().items():
            if isinstance(item.value, (dict, Unknown)):
                yield from _at(item, keys[1:], (*names, name))


def _pod_parts(resource: Resource) -> Iterator[Pod]:
    yield from _all_pods(resource)
    if resource.object_kind == TRAIN_JOB and resource.props.has("spec", "trainer"):
        trainer = resource.props.at("spec", "trainer")
        yield Pod(resource, View(None), View(None, trainer.path), "", "trainer", trainer, "resourcesPerNode")


PODS: Final = Subject("pods", holds_pods, lambda resource: (pod for pod in _all_pods(resource) if pod.form == "pod"))
"""Whole pods: for rules about required fields."""
POD_PARTS: Final = Subject("pods and parts of pods", holds_pods, _pod_parts)
"""Pods, overrides and patches of pods, and the known part of TrainJobs' pods: for rules about requests and forbidden
fields."""
CONTAINERS: Final = Subject(
    "containers",
    holds_pods,
    lambda resource: (container for pod in resource.parts(POD_PARTS) for container in pod.containers),
)
