"""Resources that rules evaluate, and resources that no rule does: other clusters, and creators of GPU machines.

coverage.yaml has the types that no rule evaluates, and the properties of any resource that name machines or GPUs.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from cloud_rules import aws, azure, gcp, karpenter, tags
from cloud_rules.pools import Machines, MachineSource, NodePool, Nodes
from rule_engine import (
    Part,
    Resource,
    Stack,
    Subject,
    Unknown,
    UnknownValueError,
    UnknownValues,
    View,
    kubernetes,
    read_table,
    rule,
)

_POOLS: Final[Mapping[str, Callable[[Resource], Iterable[NodePool]]]] = {
    **dict.fromkeys((*tags.EKS_POOLS, *tags.ASGS), aws.groups),
    **dict.fromkeys((tags.GKE_POOL, tags.GKE_CLUSTER), gcp.pools),
    **dict.fromkeys((tags.AKS_POOL, tags.AKS_CLUSTER), azure.pools),
    tags.KARPENTER_POOL: karpenter.pools,
}
_NODES: Final[Mapping[str, Callable[[Resource], Iterable[Nodes]]]] = {
    **dict.fromkeys((*tags.EKS_POOLS, *tags.LAUNCH_TEMPLATES, tags.KARPENTER_CLASS), aws.nodes),
    **dict.fromkeys((tags.GKE_POOL, tags.GKE_CLUSTER), gcp.nodes),
}
_CLUSTERS: Final = (*tags.EKS_CLUSTERS, tags.GKE_CLUSTER, tags.AKS_CLUSTER)
EVALUATED: Final = frozenset({*_POOLS, *_NODES, *_CLUSTERS})  # types that rules evaluate
POOLS: Final = Subject(
    "node pools", tags.of_types(*_POOLS), lambda resource: _POOLS[tags.token(resource.type)](resource)
)
GKE_POOLS: Final = Subject("GKE node pools", tags.of_types(tags.GKE_POOL, tags.GKE_CLUSTER), gcp.pools)
AKS_POOLS: Final = Subject("AKS node pools", tags.of_types(tags.AKS_POOL, tags.AKS_CLUSTER), azure.pools)
MACHINE_SOURCES: Final[Subject[MachineSource]] = Subject(
    "node pools and launch templates",
    tags.of_types(*_POOLS, *tags.LAUNCH_TEMPLATES),
    lambda resource: (aws.TEMPLATES if aws.TEMPLATES.selects(resource) else POOLS).find(resource),
)
SERVERS: Final = Subject(
    "servers",
    kubernetes("apps:Deployment", "leaderworkerset.x-k8s.io:LeaderWorkerSet"),
    lambda one: [Part(one, one.props)],
)
SCALERS: Final = Subject("scalers", kubernetes("keda.sh:ScaledObject"), lambda one: [Part(one, one.props)])
NODES: Final = Subject(
    "node configurations", tags.of_types(*_NODES), lambda resource: _NODES[tags.token(resource.type)](resource)
)
TAGGED: Final = Subject(
    "clusters, node pools and node classes",
    tags.of_types(*_CLUSTERS, *tags.EKS_POOLS, tags.GKE_POOL, tags.AKS_POOL, tags.KARPENTER_CLASS),
    # A resource that a program only reads has no inputs to check.
    lambda resource: [resource] if resource.props.value else [],
)

NAMING: Final = ("machines", "families", "others", "attributes", "gpus", "texts", "templates")
"""Kinds of properties that name machines or GPUs, as in coverage.yaml."""
_WHOLE: Final = frozenset({"attributes", "gpus", "ignored"})
"""Kinds of properties whose parts are not read as properties."""
_SAGEMAKER: Final = "ml."  # prefix of EC2's machine types in SageMaker
_WORDS: Final = re.compile(r"[\w.-]+")


@cache
def table() -> Mapping[str, Any]:
    """The content of coverage.yaml: blocks of facts, each with source and date."""
    return read_table(Path(__file__).with_name("coverage.yaml"))


@dataclass(frozen=True, slots=True, eq=False)
class MachineReference:
    """A value, known or not, of a property; `kinds` is what that names: keys of `properties` in coverage.yaml."""

    kinds: frozenset[str]
    view: View

    def gpus(self, known: Machines) -> list[str]:
        """The machines with GPUs, or the GPUs, that it names; unknown only if its property names nothing else."""
        if "attributes" in self.kinds:
            machines = aws.machines_at(View({"instanceRequirements": self.view.value}, self.view.path[:-1]))
            return [machine.name for machine in machines if machine.gpus(known) != 0]
        if "gpus" in self.kinds:
            return list(_gpus(self.view))
        if isinstance(self.view.value, Unknown) and not self.kinds.isdisjoint({"machines", "texts"}):
            raise UnknownValueError(self.view.path, self.view.value.why)
        if not isinstance(self.view.value, str):
            return []
        if "texts" in self.kinds:
            return [word for word in _WORDS.findall(self.view.value) if known.gpus_of(word)]
        # Google Cloud has paths of machine types too.
        name = self.view.value.rpartition("/")[2].removeprefix(_SAGEMAKER)
        is_machine = not self.kinds.isdisjoint({"machines", "others", "named"}) and known.gpus_of(name) != 0
        is_family = "families" in self.kinds and any(known.has_gpus(f"{name}{end}") for end in (".*", "-*"))
        return [name] if is_machine or is_family else []


def named_values(view: View) -> Iterator[MachineReference]:
    """The values below that can name machines, in the order of paths; values of tags and labels cannot."""
    pending = [(frozenset[str](), view)]
    while pending:
        kinds, part = pending.pop()
        if kinds:
            yield MachineReference(kinds, part)
        if _WHOLE.isdisjoint(kinds):
            pending += reversed(list(_parts(kinds, part)))


def _parts(kinds: frozenset[str], view: View) -> Iterator[tuple[frozenset[str], View]]:
    """The entries of a map, each with the kinds of its property; the items of a list, with the list's kinds."""
    if isinstance(view.value, dict):
        for name, value in sorted(view.value.items()):
            describes_machine = name == "name" and "named" in kinds
            yield kinds if describes_machine else _kinds(name), View(value, (*view.path, name))
    elif isinstance(view.value, list):
        yield from ((kinds, View(value, (*view.path, str(index)))) for index, value in enumerate(view.value))


@cache
def _kinds(name: str) -> frozenset[str]:
    properties: Mapping[str, Any] = table()["properties"]
    return frozenset(
        kind
        for kind in (*NAMING, "named", "ignored")
        if any(fnmatchcase(name.lower(), pattern.lower()) for pattern in properties[kind])
    )


def _gpus(view: View) -> Iterator[str]:
    """The GPUs of a block with type and number, of a list of blocks, or a name of GPUs."""
    if isinstance(view.value, list):
        for item in view.items():
            yield from _gpus(item)
    elif isinstance(view.at().value, dict):
        counts = [view.number(key) for key in ("count", "acceleratorCount")]
        texts = [entry.value for entry in view.entries().values() if isinstance(entry.value, str)]
        if 0 not in counts:
            yield from (name for text in texts for name in _gpu_names(text, view))
    elif isinstance(view.value, str):
        yield from _gpu_names(view.value, view)


def _gpu_names(text: str, view: View) -> Iterator[str]:
    name = text.rpartition("/")[2]
    # Names of GPUs have their maker; those of other accelerators have none.
    if "nvidia" in name.lower() or any(key.lower() in {"gpu", "gpus"} for key in view.path[-2:]):
        yield name


def not_evaluated() -> Iterator[str]:
    """What no rule evaluates, as items of a list for documentation."""
    facts = table()
    for block, when in {"clusters": "always reported", "resources": "reported if they can have GPUs"}.items():
        for row in facts[block]:
            yield f"{row['title']}: {when} ({', '.join(f'`{pattern}`' for pattern in row['types'])})"
    names = dict.fromkeys(name for kind in NAMING for name in facts["properties"][kind])
    yield f"Properties that are read there: {', '.join(f'`{name}`' for name in names)}"
    yield "GKE Autopilot: always reported, because it creates GPU nodes for the pods that request them"
    yield "Providers and API groups that are not in this list: not reported"


def _row(type_: str, block: str) -> Mapping[str, Any] | None:
    """The row of a block of coverage.yaml that has a type; None without."""
    rows: list[Mapping[str, Any]] = table()[block]
    return next((row for row in rows if any(fnmatchcase(type_, pattern) for pattern in row["types"])), None)


def _selects(resource: Resource) -> bool:
    kind = tags.token(resource.type)
    if kind in EVALUATED:
        return kind in tags.ASGS or kind == tags.GKE_CLUSTER
    return any(_row(kind, block) for block in ("clusters", "resources"))


def _find(resource: Resource) -> Iterator[Resource]:
    kind = tags.token(resource.type)
    if not resource.props.value or (kind in tags.ASGS and any(aws.groups(resource))):
        return
    if kind != tags.GKE_CLUSTER or resource.props.flag("enableAutopilot"):
        yield resource


def _gpu_machines(resource: Resource, known: Machines, stack: Stack) -> tuple[list[str], UnknownValues]:
    """Machines with GPUs, and GPUs, that a resource's properties or launch templates name; and unknown values."""
    values = list(named_values(resource.props))
    names: dict[str, None] = {}
    unknown_values = UnknownValues()
    for read in (
        *(partial(value.gpus, known) for value in values),
        partial(_of_templates, resource, values, known, stack),
    ):
        with unknown_values.collected():
            names |= dict.fromkeys(read())
    return list(names), unknown_values


def _of_templates(resource: Resource, values: list[MachineReference], known: Machines, stack: Stack) -> list[str]:
    """Machines with GPUs of the launch templates that a resource refers to, by dependency, id or name."""
    references = [value.view for value in values if "templates" in value.kinds]
    references = [view for view in references if view.value and isinstance(view.value, (dict, Unknown))]
    templates: list[aws.LaunchTemplate] = []
    if references or any("texts" in value.kinds for value in values):
        templates = aws.templates_by_urn({urn for urns in resource.needs.values() for urn in urns}, stack)
    if not templates and not any(
        value.view.value is not None for value in values if not value.kinds.isdisjoint({"machines", "attributes"})
    ):
        for reference in references:
            template = aws.template_named(reference, stack)
            if template is None:
                raise UnknownValueError(reference.path, aws.NO_MACHINE)
            templates.append(template)
    return [machine.name for template in templates for machine in aws.machines_of(template) if machine.gpus(known) != 0]


@rule("gpu-machines-evaluated", Subject("resources that no rule evaluates", _selects, _find))
def gpu_machines_evaluated(resource: Resource, settings: Machines, stack: Stack) -> Iterator[str]:
    """Resources that can create GPU machines must be of types that this pack evaluates."""
    kind = tags.token(resource.type)
    if kind == tags.GKE_CLUSTER:
        yield (
            "Autopilot creates GPU nodes for the pods that request them, and no rule of this pack limits their number;"
            " limit the GPUs of each namespace with a ResourceQuota, and exempt the cluster"
        )
    elif cluster := _row(kind, "clusters"):
        yield f"{kind} is not evaluated by any rule of this pack; use {cluster['instead']}, or exempt the resource"
    else:
        names, unknown_values = _gpu_machines(resource, settings, stack)
        fix = "add the tag kubernetes.io/cluster/<name> if they are nodes" if kind in tags.ASGS else "use a node pool"
        if names:
            listed = ", ".join(names)
            yield f"{listed}: GPUs that no rule of this pack evaluates in {kind}; {fix}, or exempt the resource"
        else:
            unknown_values.raise_first()
