"""Karpenter NodePools on any cloud: https://karpenter.sh/docs/concepts/nodepools/."""

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.karpenter_requirements import CAPACITY_TYPE, FAMILIES, INSTANCE_TYPE, TYPES, Requirements
from cloud_rules.machines import HOURS, Machines, Prices
from cloud_rules.pools import Cloud, Machine, NodePool, Taint, highest, highest_price
from rule_engine import Resource, Stack, UnknownValueError

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_BY_REQUIREMENTS: Final = "a machine by requirements"


class KarpenterPool(NodePool):
    """A Karpenter NodePool: machines that match its requirements, up to its limits."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "aws"
    writes: ClassVar = {
        "maximum": "spec.limits.nodes (or a limit of nvidia.com/gpu)",
        "minimum": "spec.replicas",
        "machines": f"a requirement of {INSTANCE_TYPE}",
        "spot": "the requirement {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}",
        "taint": "spec.template.spec.taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]",
    }

    @property
    @override
    def maximum(self) -> Decimal | None:
        limit = self.view.number("spec", "limits", "nodes")
        return self.view.number("spec", "replicas") if limit is None else limit

    @property
    @override
    def bounded(self) -> bool:
        return self.maximum is not None or bool(self.view.entries("spec", "limits"))

    @property
    @override
    def spot(self) -> bool:
        # Without a requirement, Karpenter prefers reserved, then spot.
        return self._requirements.admit(CAPACITY_TYPE, "spot")

    @property
    @override
    def taints(self) -> list[Taint]:
        taints = [taint.string_map() for taint in self.view.items("spec", "template", "spec", "taints")]
        return [Taint(taint.get("key", ""), taint.get("effect", "")) for taint in taints]

    @override
    def machines(self) -> list[Machine]:
        requirements = self.view.at("spec", "template", "spec", "requirements")
        return self._named_machines() or [Machine(_BY_REQUIREMENTS, requirements.path)]

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        return self._named_machines()

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        requirements = self._requirements
        gpu_machines = requirements.gpu_machines(known)
        if not gpu_machines:
            return 0
        if requirements.listed(TYPES):
            return highest(known.gpus_of(name) for name in gpu_machines)
        most = requirements.most_gpus()
        return None if most is None else int(most)

    @override
    def has_cpu_nodes(self, known: Machines, stack: Stack) -> bool:
        return bool(self._requirements.cpu_machines(known))

    @override
    def taint_fix(self, known: Machines, stack: Stack) -> str:
        add = self.writes["taint"]
        if not self.has_cpu_nodes(known, stack):
            return add
        key = f"{self._requirements.prefix}gpu-count"
        return f"{add}; or exclude GPU machines with the requirement {{key: {key}, operator: DoesNotExist}}"

    @override
    def maximum_gpus(self, known: Machines, stack: Stack) -> Decimal | None:
        if self.gpus(known, stack) == 0:
            return Decimal(0)
        limit = self._limit()
        return NodePool.maximum_gpus(self, known, stack) if limit is None and self.maximum is not None else limit

    @override
    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        limit = self._limit()
        if self.maximum is not None:
            return NodePool.monthly(self, prices, stack)
        if limit is None:
            raise UnknownValueError(("spec", "limits"), "limit neither nodes nor GPUs")
        costs: list[Decimal] = []
        for machine in self._named_machines():
            gpus = prices.gpus_of(machine.name)
            if not gpus:
                raise UnknownValueError(machine.path, f"is {machine.name}, which has no known number of GPUs")
            costs.append((limit / gpus).to_integral_value(ROUND_CEILING) * highest_price([machine], prices))
        if not costs:
            raise UnknownValueError(("spec", "template", "spec", "requirements"), "select no machine type")
        return max(costs) * HOURS

    def _limit(self) -> Decimal | None:
        """Limit of GPUs, of all vendors together; None without."""
        limits = self.view.entries("spec", "limits")
        gpu_limits = [
            number for key, limit in limits.items() if key in _GPUS and (number := limit.number()) is not None
        ]
        return sum(gpu_limits, Decimal(0)) if gpu_limits else None

    def _named_machines(self) -> list[Machine]:
        """The machine types that it lists, else the families."""
        types = self._requirements.listed(TYPES)
        if types:
            return [Machine(value.text(), value.path) for value in types]
        return [Machine(f"{value.text()}.*", value.path) for value in self._requirements.listed(FAMILIES)]

    @property
    def _requirements(self) -> Requirements:
        template = self.view.at("spec", "template", "spec")
        return Requirements(template.items("requirements"), template.text("nodeClassRef", "group"))


def pools(resource: Resource) -> Iterator[KarpenterPool]:
    """The pool of a NodePool object."""
    yield KarpenterPool(resource, resource.props)
