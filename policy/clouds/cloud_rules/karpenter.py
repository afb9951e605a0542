"""Karpenter NodePools on any cloud: https://karpenter.sh/docs/concepts/nodepools/."""

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.machines import HOURS, Machines, Prices
from cloud_rules.pools import Cloud, Machine, NodePool, Taint, highest, highest_price
from rule_engine import Resource, Stack, UnknownValueError, View

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
_TYPE: Final = "node.kubernetes.io/instance-type"
_FAMILIES: Final = frozenset({"karpenter.k8s.aws/instance-family"})
_CATEGORIES: Final = frozenset({"karpenter.k8s.aws/instance-category"})
_COUNTS: Final = frozenset({"karpenter.k8s.aws/instance-gpu-count", "karpenter.azure.com/sku-gpu-count"})
_GPU_KEYS: Final = frozenset(
    {
        "karpenter.k8s.aws/instance-gpu-name",
        "karpenter.k8s.aws/instance-gpu-manufacturer",
        "karpenter.k8s.aws/instance-gpu-memory",
        "karpenter.azure.com/sku-gpu-name",
        "karpenter.azure.com/sku-gpu-manufacturer",
    }
)
_SOME: Final = frozenset({"In", "Exists", "Gt", "Gte"})


class KarpenterPool(NodePool):
    """A Karpenter NodePool: machines that match its requirements, up to its limits."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "aws"
    writes: ClassVar = {
        "maximum": "spec.limits.nodes (or a limit of nvidia.com/gpu)",
        "minimum": "spec.replicas",
        "machines": f"a requirement of {_TYPE}",
        "spot": "the requirement {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}",
        "taint": "spec.template.spec.taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]",
    }

    @property
    @override
    def minimum(self) -> Decimal:
        return self.view.number("spec", "replicas") or Decimal(0)

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
        for requirement in self._requirements():
            if requirement.text("key") == "karpenter.sh/capacity-type":
                includes_spot = "spot" in requirement.texts("values")
                return includes_spot if requirement.text("operator") == "In" else not includes_spot
        return True  # without a requirement, Karpenter prefers reserved, then spot

    @property
    @override
    def taints(self) -> list[Taint]:
        taints = [taint.string_map() for taint in self.view.items("spec", "template", "spec", "taints")]
        return [Taint(taint.get("key", ""), taint.get("effect", "")) for taint in taints]

    @override
    def machines(self) -> list[Machine]:
        machines: list[Machine] = []
        for requirement in self._requirements():
            if requirement.text("operator") == "In" and requirement.text("key") in {_TYPE, *_FAMILIES}:
                suffix = "" if requirement.text("key") == _TYPE else ".*"
                machines += [Machine(f"{value.text()}{suffix}", value.path) for value in requirement.items("values")]
        exact = [machine for machine in machines if "*" not in machine.name]
        return exact or machines

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        if machines := self.machines():
            return highest(known.gpus_of(machine.name) for machine in machines)
        for requirement in self._requirements():
            key, operator = requirement.text("key"), requirement.text("operator")
            if key in _COUNTS and operator == "In":
                return max((int(value) for value in requirement.texts("values") if value.isdecimal()), default=0)
            if key in _COUNTS | _GPU_KEYS and operator in _SOME:
                return None
            if key in _CATEGORIES and operator == "In":
                return highest(known.gpus_of(f"{value}9.*") for value in requirement.texts("values"))
        return 0

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
        for machine in self.machines():
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
        gpu_limits = [limit.number() or Decimal(0) for key, limit in limits.items() if key in _GPUS]
        return sum(gpu_limits, Decimal(0)) if gpu_limits else None

    def _requirements(self) -> list[View]:
        return self.view.items("spec", "template", "spec", "requirements")


def pools(resource: Resource) -> Iterator[KarpenterPool]:
    """The pool of a NodePool object."""
    yield KarpenterPool(resource, resource.props)
