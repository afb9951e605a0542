"""Karpenter NodePools on any cloud, and the machines that meet their requirements.

Each machine type of the tables is compared by the labels that Karpenter gives it. Requirements of other labels
(architecture, zone, CPUs) are taken as met: the tables do not have these facts.
 https://karpenter.sh/docs/concepts/nodepools/#spectemplatespecrequirements (AWS),
 https://docs.aws.amazon.com/eks/latest/userguide/create-node-pool.html (EKS Auto Mode),
 https://learn.microsoft.com/azure/aks/node-auto-provisioning-node-pools (Azure).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from operator import ge, gt, le, lt
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.pools import HOURS, Machine, Machines, NodePool, Prices, Taint, highest, highest_price
from rule_engine import Resource, Stack, UnknownValueError, View, quantity

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
_AUTO_MODE: Final = "eks.amazonaws.com/instance-"
_AWS: Final = ("karpenter.k8s.aws/instance-", _AUTO_MODE)
_AZURE: Final = ("karpenter.azure.com/sku-",)
_AZURE_NAMES: Final = "standard_"
TYPES: Final = frozenset({INSTANCE_TYPE, *(f"{prefix}name" for prefix in _AZURE)})
"""Labels with the name of a machine type."""
FAMILIES: Final = frozenset(f"{prefix}family" for prefix in _AWS)
"""Labels with the part of a machine type before the dot (`g6`), on AWS."""
_CATEGORIES: Final = frozenset(f"{prefix}category" for prefix in _AWS)
COUNTS: Final = frozenset(f"{prefix}gpu-count" for prefix in (*_AWS, *_AZURE))
_GPU_LABELS: Final = frozenset(
    f"{prefix}gpu-{fact}" for prefix in (*_AWS, *_AZURE) for fact in ("count", "name", "manufacturer", "memory")
)
_ACCELERATORS: Final = frozenset(
    f"{prefix}accelerator-{fact}" for prefix in _AWS for fact in ("count", "name", "manufacturer")
)
"""Labels of AWS's own accelerators, which machines with GPUs do not have."""
_EC2_TYPE: Final = re.compile(r"(?P<family>(?P<category>[a-z]+)(-\d+tb)?(?P<generation>\d+)[^.]*)\.(?P<size>.+)")

_NUMBERS: Final[Mapping[str, Callable[[Decimal, Decimal], bool]]] = {"Gt": gt, "Gte": ge, "Lt": lt, "Lte": le}
"""Operators that compare numbers."""

Labels = Mapping[str, str | None]  # labels of a machine; None if it has the label with a value that is in no table


class Requirements:
    """The requirements of a NodePool, all of which a machine meets: entries with `key`, `operator` and `values`.

    `group` is the API group of its node class (`karpenter.azure.com`), which tells the cloud; empty if it is not set.
    """

    def __init__(self, views: Sequence[View], group: str) -> None:
        self._views = views
        self._group = group

    @property
    def prefix(self) -> str:
        """Prefix of the labels of its cloud: Azure or EKS Auto Mode if the node class or a label is theirs."""
        keys = " ".join((self._group, *(view.text("key") for view in self._views)))
        return next((prefix for prefix in (*_AZURE, _AUTO_MODE) if prefix.split("/")[0] in keys), _AWS[0])

    def listed(self, keys: frozenset[str]) -> list[View]:
        """The values that the operator `In` lists for one of these labels."""
        return [
            value
            for view in self._views
            if view.text("key") in keys and view.text("operator") == "In"
            for value in view.items("values")
        ]

    def gpu_machines(self, known: Machines) -> list[str]:
        """Machine types with GPUs that meet them, and families (`p9.*`) with a size that can."""
        candidates = [*known.gpu_machines(self._cloud), *(name for name in self._named() if known.gpus_of(name) != 0)]
        return [name for name in candidates if self._meets(_labels(name, known.gpus_of(name)))] or self._newer(known)

    def cpu_machines(self, known: Machines) -> list[str]:
        """Machine types without GPUs that meet them, and families with a size that can."""
        candidates = [*known.cpu_machines(self._cloud), *(name for name in self._named() if known.gpus_of(name) == 0)]
        return [name for name in candidates if self._meets(_labels(name, 0))]

    def most_gpus(self) -> Decimal | None:
        """Maximum number of GPUs of a machine by the labels for it; None if they set none."""
        bounds = [_upper_bound(view) for view in self._views if view.text("key") in COUNTS]
        return min((bound for bound in bounds if bound is not None), default=None)

    def admit(self, label: str, value: str) -> bool:
        """Whether the requirements of one label admit a value."""
        return all(_meets(view, {label: value}) for view in self._views if view.text("key") == label)

    @property
    def _cloud(self) -> str:
        return "azure" if self.prefix in _AZURE else "aws"

    def _named(self) -> list[str]:
        """Machine types and families that they list, also ones in no table."""
        return [value.text() for value in self.listed(TYPES)] + [f"{value.text()}.*" for value in self.listed(FAMILIES)]

    def _newer(self, known: Machines) -> list[str]:
        """A family of each category that they list, of any generation, for machines that are newer than the tables."""
        families = [f"{value.text()}9.*" for value in self.listed(_CATEGORIES) if not self._named()]
        of_category = {
            family: {label: value if label in _CATEGORIES else None for label, value in _labels(family, None).items()}
            for family in families
            if known.gpus_of(family) != 0
        }
        return [family for family, labels in of_category.items() if self._meets(labels)]

    def _meets(self, labels: Labels) -> bool:
        return all(_meets(view, labels) for view in self._views)


def _labels(name: str, gpus: int | None) -> Labels:
    """The labels of a machine type, or of a family (`p9.*`), whose size can be any; `gpus` is None if unknown."""
    labels: dict[str, str | None] = dict.fromkeys(TYPES, None if "*" in name else name)
    if match := _EC2_TYPE.fullmatch(name):
        facts = {fact: None if value == "*" else value for fact, value in match.groupdict().items()}
        labels |= {f"{prefix}{fact}": value for prefix in _AWS for fact, value in facts.items()}
    if name.lower().startswith(_AZURE_NAMES):
        labels |= {f"{prefix}family": name[len(_AZURE_NAMES)].upper() for prefix in _AZURE}
    if gpus == 0:
        return labels
    return labels | dict.fromkeys(_GPU_LABELS) | dict.fromkeys(COUNTS, None if gpus is None else str(gpus))


def _meets(requirement: View, labels: Labels) -> bool:
    """Whether a machine with these labels meets a requirement, or can, because the tables do not have the value."""
    key, operator = requirement.text("key"), requirement.text("operator")
    if key not in labels:
        return key not in _GPU_LABELS | _ACCELERATORS or operator in {"NotIn", "DoesNotExist"}
    value = labels[key]
    if operator == "DoesNotExist":
        return False
    if value is None:
        return True
    listed = [text.lower() for text in requirement.texts("values")]
    if operator in _NUMBERS:
        number, bound = quantity(value), next((quantity(text) for text in listed), None)
        return number is None or bound is None or _NUMBERS[operator](number, bound)
    return (value.lower() in listed) is (operator == "In")


def _upper_bound(requirement: View) -> Decimal | None:
    numbers = [number for text in requirement.texts("values") if (number := quantity(text)) is not None]
    match requirement.text("operator"):
        case "In" | "Lte":
            return max(numbers, default=None)
        case "Lt":
            return numbers[0] - 1 if numbers else None
        case _:
            return None


_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


class KarpenterPool(NodePool):
    """A Karpenter NodePool: machines that match its requirements, up to its limits."""

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
        return self._named_machines() or [Machine("a machine by requirements", requirements.path)]

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
    def taint_fix(self, known: Machines, stack: Stack) -> str:
        add = self.writes["taint"]
        if not self._requirements.cpu_machines(known):
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
