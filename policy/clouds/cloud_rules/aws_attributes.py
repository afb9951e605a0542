"""Machines that EC2 selects by attributes: `instanceRequirements` of launch templates, groups and fleets.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceRequirementsRequest.html.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from cloud_rules.machines import Machines, matches
from cloud_rules.pools import Machine, highest
from rule_engine import View, located_at
from rule_engine.resources import Placed

_GPU_VENDORS: Final = frozenset({"nvidia", "amd"})
_OTHER_ACCELERATORS: Final = ("inferentia*", "trainium*", "gaudi*", "vu9p", "u30")
"""Names of accelerators that are not GPUs."""
_NO_PRICE_PROTECTION: Final = 999999
"""Percentage that turns price protection off. With it, EC2 selects machines that cost about as much as the cheapest
one without accelerators, unless accelerators are requested."""
_PRICE_PROTECTION: Final = ("onDemandMaxPricePercentageOverLowestPrice", "spotMaxPricePercentageOverLowestPrice")


@dataclass(frozen=True, slots=True)
class MachineByAttributes(Machine):
    """Any machine that meets requirements.

    Attributes:
        name: the allowed machine types, as a pattern; else that there is none.
        requirements: the attributes.
        template: the launch template that sets them; None if the evaluated resource does.
    """

    requirements: View
    template: Placed | None

    @override
    def gpus(self, known: Machines) -> int | None:
        with nullcontext() if self.template is None else located_at(self.template):
            return self._gpus(known)

    def _gpus(self, known: Machines) -> int | None:
        if self._without_accelerators():
            return 0
        if self.requirements.has("allowedInstanceTypes"):
            return known.gpus_of(self.name) if "*" not in self.name else (None if known.has_gpus(self.name) else 0)
        if not (self._asks_for_gpus() or self._may_cost_anything(known)):
            return 0
        maximum = self.requirements.number("acceleratorCount", "max")
        return None if maximum is None else int(maximum)

    def _without_accelerators(self) -> bool:
        """Whether it excludes accelerators, or requests others than GPUs."""
        types = self.requirements.texts("acceleratorTypes")
        vendors = self.requirements.texts("acceleratorManufacturers")
        names = self.requirements.texts("acceleratorNames")
        return (
            self.requirements.number("acceleratorCount", "max") == 0
            or (bool(types) and "gpu" not in types)
            or (bool(vendors) and _GPU_VENDORS.isdisjoint(vendors))
            or (bool(names) and all(_is_other(name) for name in names))
        )

    def _asks_for_gpus(self) -> bool:
        keys = ("acceleratorTypes", "acceleratorManufacturers", "acceleratorNames")
        if any(self.requirements.items(key) for key in keys):
            return True
        bounds = (("acceleratorCount", "min"), ("acceleratorTotalMemoryMib", "min"))
        return any(self.requirements.number(*bound) for bound in bounds)

    def _may_cost_anything(self, known: Machines) -> bool:
        """Whether price protection is off, so that EC2 can select GPU machines that nobody requests."""
        percentages = [self.requirements.number(key) or 0 for key in _PRICE_PROTECTION]
        if not any(percentage >= _NO_PRICE_PROTECTION for percentage in percentages):
            return False
        excluded = self.requirements.texts("excludedInstanceTypes")
        return not all(any(matches(name, pattern) for pattern in excluded) for name in known.gpu_machines("aws"))


def _is_other(name: str) -> bool:
    return any(matches(name, pattern) for pattern in _OTHER_ACCELERATORS)


def machines(view: View, template: Placed | None = None) -> list[Machine]:
    """The machines of a launch template or an override: its type, or those that meet its requirements.

    Args:
        view: properties with `instanceType` or `instanceRequirements`; without both, the list is empty.
        template: the launch template with these properties, if it is one.
    """
    instance_type = view.at("instanceType")
    if instance_type.value is not None:
        return [Machine(instance_type.text(), instance_type.path)]
    requirements = view.at("instanceRequirements")
    if requirements.value is None:
        return []
    allowed = requirements.items("allowedInstanceTypes")
    if allowed:
        return [MachineByAttributes(pattern.text(), pattern.path, requirements, template) for pattern in allowed]
    return [MachineByAttributes("a machine by instanceRequirements", requirements.path, requirements, template)]


def most_gpus(found: list[Machine], known: Machines) -> int | None:
    """GPUs of the machine that has most; None if one number is unknown."""
    return highest(machine.gpus(known) for machine in found)
