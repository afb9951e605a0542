"""Node pools of Karpenter, on whichever cloud: https://karpenter.sh/docs/concepts/nodepools/."""

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.machines import HOURS, Machines, Prices
from cloud_rules.pools import Cloud, Machine, NodePool, Taint, dearest, most
from judge import CannotTellError, Resource, Stack, View

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
    """A node pool of Karpenter: machines that fit its requirements, up to its limits."""

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
        for each in self._requirements():
            if each.text("key") == "karpenter.sh/capacity-type":
                named = "spot" in each.texts("values")
                return named if each.text("operator") == "In" else not named
        return True  # any that fits: reserved first, then spot

    @property
    @override
    def taints(self) -> list[Taint]:
        found = [each.words() for each in self.view.items("spec", "template", "spec", "taints")]
        return [Taint(each.get("key", ""), each.get("effect", "")) for each in found]

    @override
    def machines(self) -> list[Machine]:
        found: list[Machine] = []
        for each in self._requirements():
            if each.text("operator") == "In" and each.text("key") in {_TYPE, *_FAMILIES}:
                end = "" if each.text("key") == _TYPE else ".*"
                found += [Machine(f"{value.text()}{end}", value.path) for value in each.items("values")]
        types = [each for each in found if "*" not in each.name]
        return types or found

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        if machines := self.machines():
            return most(known.gpus_of(each.name) for each in machines)
        for each in self._requirements():
            key, operator = each.text("key"), each.text("operator")
            if key in _COUNTS and operator == "In":
                return max((int(value) for value in each.texts("values") if value.isdecimal()), default=0)
            if key in _COUNTS | _GPU_KEYS and operator in _SOME:
                return None
            if key in _CATEGORIES and operator == "In":
                return most(known.gpus_of(f"{value}9.*") for value in each.texts("values"))
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
            raise CannotTellError(("spec", "limits"), "limit neither nodes nor GPUs")
        costs: list[Decimal] = []
        for each in self.machines():
            gpus = prices.gpus_of(each.name)
            if not gpus:
                raise CannotTellError(each.path, f"is {each.name}, which has no known number of GPUs")
            costs.append((limit / gpus).to_integral_value(ROUND_CEILING) * dearest([each], prices))
        if not costs:
            raise CannotTellError(("spec", "template", "spec", "requirements"), "select no machine type")
        return max(costs) * HOURS

    def _limit(self) -> Decimal | None:
        """GPUs that it may have, of all makers together."""
        limits = self.view.entries("spec", "limits")
        found = [each.number() or Decimal(0) for key, each in limits.items() if key in _GPUS]
        return sum(found, Decimal(0)) if found else None

    def _requirements(self) -> list[View]:
        return self.view.items("spec", "template", "spec", "requirements")


def pools(resource: Resource) -> Iterator[KarpenterPool]:
    """The pool that an object is."""
    yield KarpenterPool(resource, resource.props)
