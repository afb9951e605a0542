"""The pools of a stack, as the nodes of a cluster's flavors show them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_tenancy.base.json import at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import CPU, MEMORY, amounts, format_amount
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.supply import accelerators
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, allocatable, find_gpu, find_machine, machines

_TYPE: Final = "node.kubernetes.io/instance-type"
_COUNT: Final = "nvidia.com/gpu.count"
"""Label of GPU feature discovery with the whole GPUs of a node, also if they are divided."""
_MIG: Final = "nvidia.com/mig-"
_WHOLE: Final = "nvidia.com/gpu"
_OF_CONTROLLERS: Final = "node.kubernetes.io/"
"""Taints that controllers set while a node is unavailable."""


@dataclass(slots=True)
class Drafted:
    """Entries of a section of a stack.

    Attributes:
        entries: by name.
        notes: what each comes from.
        left: what the section cannot express.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    left: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Shape:
    machine: str
    model: str
    resource: str
    gpus: int
    cpu: int
    memory: int


def pools(facts: Facts) -> tuple[Drafted, dict[str, str]]:
    """The pools, and the GPU resource of each flavor that has one; empty for flavors of CPU nodes."""
    drafted, resources = Drafted(), dict[str, str]()
    taken: set[str] = set()
    flavors = sorted(facts.state.of("ResourceFlavor"), key=lambda flavor: -len(texts_at(flavor, "spec", "nodeLabels")))
    for flavor in flavors:
        name = name_of(flavor)
        nodes = [node for node in _nodes(facts, flavor) if name_of(node) not in taken]
        if not nodes:
            drafted.left.append(f"ResourceFlavor {name}: no node shows its machine; add a pool for it by hand")
            continue
        taken.update(map(name_of, nodes))
        groups: dict[_Shape, list[Manifest]] = {}
        for node in nodes:
            groups.setdefault(_shape(node), []).append(node)
        resources[name] = next(iter(groups)).resource
        for number, (shape, group) in enumerate(groups.items(), 1):
            pool = name if len(groups) == 1 else f"{name}-{number}"
            drafted.entries[pool] = _pool(shape, group, flavor) | ({} if pool == name else {"flavor": name})
            seen = shape.machine or "without a machine type"
            drafted.notes[pool] = f"ResourceFlavor {name}: {plural(len(group), 'node')} {seen}"
    drafted.left += _without_flavor(facts, taken)
    return drafted, resources


def _without_flavor(facts: Facts, taken: Iterable[str]) -> Iterator[str]:
    others = [node.name for node in facts.nodes if node.name not in taken]
    if others:
        yield f"Nodes {facts.name.listed(others)}: GPUs of no flavor; add a pool if teams are to use them"


def _nodes(facts: Facts, flavor: Manifest) -> list[Manifest]:
    """The nodes with a flavor's labels; those with GPUs, if queues promise GPUs of it, else those without."""
    wanted = texts_at(flavor, "spec", "nodeLabels").items()
    nodes = [node for node in facts.state.of("Node") if wanted <= texts_at(node, "metadata", "labels").items()]
    promised = accelerators({res: amount for (name, res), amount in facts.promised.items() if name == name_of(flavor)})
    with_gpus: list[Manifest] = [node for node in nodes if accelerators(amounts(at(node, "status", "allocatable")))]
    if promised or (wanted and len(with_gpus) == len(nodes)):
        return with_gpus
    without: list[Manifest] = [node for node in nodes if node not in with_gpus]
    return without


def _shape(node: Manifest) -> _Shape:
    labels, offered = texts_at(node, "metadata", "labels"), amounts(at(node, "status", "allocatable"))
    resource, count = next(iter(sorted(accelerators(offered).items())), ("", 0))
    product = labels.get(PRODUCT_LABELS.get(resource.partition("/")[0], ""), "")
    rest = offered.get(CPU, 0), offered.get(MEMORY, 0)
    machine = labels.get(_TYPE) or _alike(product, resource, count, rest)
    return _Shape(machine, product, resource, count, *((0, 0) if find_machine(machine) else rest))


def _alike(product: str, resource: str, count: int, rest: tuple[int, int]) -> str:
    """The only machine type with these GPUs, CPUs and memory; empty if none or several have them."""
    row = find_gpu(product)
    profile = resource.removeprefix(_MIG) if resource.startswith(_MIG) else ""
    found = [
        machine.name
        for machine in machines().values()
        if find_gpu(machine.gpu or "") == row
        and machine.gpus * (row.mig.get(profile, 0) if row and profile else 1) == count
        and allocatable(machine) == rest
    ]
    return found[0] if len(found) == 1 else ""


def _pool(shape: _Shape, nodes: list[Manifest], flavor: Manifest) -> dict[str, Any]:
    labels = texts_at(flavor, "spec", "nodeLabels")
    of_product = PRODUCT_LABELS.get(shape.resource.partition("/")[0])
    own = {key: value for key, value in labels.items() if key != of_product}
    taints = [
        {key: taint[key] for key in ("key", "value", "effect") if text_at(taint, key)}
        for taint in maps_at(nodes[0], "spec", "taints")
        if text_at(taint, "key") not in {shape.resource, _WHOLE}
        and not text_at(taint, "key").startswith(_OF_CONTROLLERS)
    ]
    entry = {**_machine(shape, nodes[0]), "nodes": len(nodes)}
    return entry | ({"labels": own} if own else {}) | ({"taints": taints} if taints else {})


def _machine(shape: _Shape, node: Manifest) -> dict[str, Any]:
    """The machine type, or its amounts where the catalogue does not have it; with how its GPUs are divided."""
    known = find_machine(shape.machine)
    whole = known.gpus if known else int(texts_at(node, "metadata", "labels").get(_COUNT, shape.gpus))
    model = known.gpu if known else shape.model
    sharing = _sharing(shape, whole, model or "")
    if known and (shape.gpus == whole or sharing):
        return {"machine": shape.machine, **sharing}
    amount = amounts(map_at(node, "status", "allocatable"))
    entry: dict[str, Any] = {name: format_amount(name, amount.get(name, 0)) for name in (CPU, MEMORY)}
    if shape.gpus:
        entry |= {"gpu": shape.model or shape.machine or "unknown", "gpusPerNode": whole if sharing else shape.gpus}
        row = find_gpu(shape.model)
        if shape.resource != (row.resource if row else _WHOLE) and not sharing:
            entry["resource"] = shape.resource
    return entry | sharing


def _sharing(shape: _Shape, whole: int, model: str) -> dict[str, Any]:
    if not whole or shape.gpus % whole:
        return {}
    row, each = find_gpu(model), shape.gpus // whole
    if shape.resource.startswith(_MIG):
        profile = shape.resource.removeprefix(_MIG)
        partitions = {} if row and row.mig.get(profile) == each else {"partitions": each}
        return {"sharing": {"mig": {"profile": profile, **partitions}}}
    return {"sharing": {"timeSlicing": each}} if each > 1 else {}
