"""Which machines meet the requirements of a Karpenter NodePool.

Each machine type of the tables is compared by the labels that Karpenter gives it. Requirements of other labels
(architecture, zone, CPUs) are taken as met: the tables do not have these facts.
 https://karpenter.sh/docs/concepts/nodepools/#spectemplatespecrequirements (AWS),
 https://docs.aws.amazon.com/eks/latest/userguide/create-node-pool.html (EKS Auto Mode),
 https://learn.microsoft.com/azure/aks/node-auto-provisioning-node-pools (Azure).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Final

from cloud_rules.machines import Machines
from rule_engine import View, quantity

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

Labels = Mapping[str, str | None]
"""Labels of a machine; None if it has the label with a value that is in no table."""


class Requirements:
    """The requirements of a NodePool, all of which a machine meets.

    Args:
        views: entries with `key`, `operator` and `values`.
        group: API group of the node class (`karpenter.azure.com`); empty if it is not set.
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
        """Machine types with GPUs that meet them, and families (`p9.*`) of which a size can."""
        candidates = [*known.gpu_machines(self._cloud), *(name for name in self._named() if known.gpus_of(name) != 0)]
        machines = [name for name in candidates if self._meets(_labels(name, known.gpus_of(name)))]
        return machines or [name for name in self._categories() if known.gpus_of(name) != 0 and self._admits(name)]

    def cpu_machines(self, known: Machines) -> list[str]:
        """Machine types without GPUs that meet them, and families of which a size can."""
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
        """Machine types and families that they list, of which the tables may not know all."""
        families = [f"{value.text()}.*" for value in self.listed(FAMILIES)]
        return [value.text() for value in self.listed(TYPES)] + families

    def _categories(self) -> list[str]:
        """A family of each category that they list, for machines that are newer than the tables."""
        if self._named():
            return []
        return [f"{value.text()}9.*" for value in self.listed(_CATEGORIES)]

    def _admits(self, family: str) -> bool:
        """Whether a family can meet them, of any generation."""
        labels = _labels(family, None)
        any_of_category = {label: value if label in _CATEGORIES else None for label, value in labels.items()}
        return self._meets(any_of_category)

    def _meets(self, labels: Labels) -> bool:
        return all(_meets(view, labels) for view in self._views)


def _labels(name: str, gpus: int | None) -> Labels:
    """The labels of a machine type, or of a family (`p9.*`), whose size can be any.

    Args:
        name: the machine type or family.
        gpus: its number of GPUs; None if it is unknown.
    """
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
