"""Machines on AWS and their configurations: launch templates, node groups without one, and Karpenter's node classes.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html,
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceRequirementsRequest.html,
https://karpenter.sh/docs/concepts/nodeclasses/.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.machines import Machines, matches
from cloud_rules.pools import Machine, MachineSource, Nodes
from cloud_rules.tags import KARPENTER_CLASS, LAUNCH_TEMPLATES, NATIVE_LAUNCH_TEMPLATE, of_types, token
from rule_engine import Resource, Stack, Subject, UnknownValueError, View, located_at
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
    """Any machine that meets requirements, by the pattern of allowed machine types if there is one.

    `template` is the launch template that sets the requirements; None if the evaluated resource does.
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
            or (bool(names) and all(any(matches(name, other) for other in _OTHER_ACCELERATORS) for name in names))
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


def machines_at(view: View, template: Placed | None = None) -> list[Machine]:
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


NO_MACHINE: Final = "is not in this stack or sets no instance type, and the group sets none"
_WRITE: Final = "metadataOptions: {{httpTokens: required, httpPutResponseHopLimit: {hops}}}"


class LaunchTemplate(MachineSource, Nodes):
    """An EC2 launch template."""

    __slots__ = ()
    writes: ClassVar = {"machines": "instanceType", "spot": "no instanceMarketOptions.marketType: spot"}
    keys: ClassVar[Mapping[str, str]] = {"id": "id", "name": "name"}
    """Properties by which groups refer to it."""

    def identifier(self, key: str) -> str:
        """Its `id` or `name` in the cloud."""
        return self.resource.props.text(self.keys[key])

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("instanceMarketOptions", "marketType") == "spot"

    @override
    def machines(self) -> list[Machine]:
        return machines_at(self.view, self)

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield from _metadata(self.view, hops, tokens_default="optional")


class NativeLaunchTemplate(LaunchTemplate):
    """An EC2 launch template of AWS Cloud Control: https://www.pulumi.com/registry/packages/aws-native/."""

    __slots__ = ()
    writes: ClassVar = {
        "machines": "launchTemplateData.instanceType",
        "spot": "no launchTemplateData.instanceMarketOptions.marketType: spot",
    }
    keys: ClassVar = {"id": "launchTemplateId", "name": "launchTemplateName"}


class GroupWithoutTemplate(Nodes):
    """A node group without a launch template: its node configuration is the default."""

    __slots__ = ()

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield f"has no launch template, so IMDSv2 is not enforced; add one with {_WRITE.format(hops=hops)}"


class NodeClass(Nodes):
    """An EC2NodeClass of Karpenter. Its default is IMDSv2 with one hop."""

    __slots__ = ()

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        if self.view.has("metadataOptions"):
            yield from _metadata(self.view, hops, tokens_default="required")


def _metadata(view: View, hops: int, tokens_default: str) -> Iterator[str]:
    options = view.at("metadataOptions")
    if options.text("httpEndpoint") == "disabled":
        return
    if options.text("httpTokens", default=tokens_default) != "required":
        yield f"allows IMDSv1 requests without a token; set {_WRITE.format(hops=hops)}"
    hop_limit = options.number("httpPutResponseHopLimit")
    if hop_limit is not None and hop_limit > hops:
        yield (
            f"the metadata hop limit is {hop_limit}, so pods can reach the metadata service; set"
            f" metadataOptions.httpPutResponseHopLimit: {hops}"
        )


def _template(resource: Resource) -> LaunchTemplate:
    if token(resource.type) == NATIVE_LAUNCH_TEMPLATE:
        return NativeLaunchTemplate(resource, resource.props.at("launchTemplateData"))
    return LaunchTemplate(resource, resource.props)


def nodes(resource: Resource) -> Iterator[Nodes]:
    """The node configurations of an AWS resource."""
    kind = token(resource.type)
    if kind == KARPENTER_CLASS:
        yield NodeClass(resource, resource.props.at("spec"))
    elif kind in LAUNCH_TEMPLATES:
        yield _template(resource)
    elif not resource.props.has("launchTemplate"):
        yield GroupWithoutTemplate(resource, resource.props)


TEMPLATES: Final = Subject("launch templates", of_types(*LAUNCH_TEMPLATES), lambda resource: [_template(resource)])


def template_of(resource: Resource, view: View, path: str, stack: Stack) -> LaunchTemplate | None:
    """The launch template of a group, if the stack creates it.

    It is looked up by the dependency of the property, which a preview knows too, else by id or name.
    """
    keys = path.split(".")
    if not view.has(*keys):
        return None
    templates = templates_by_urn(resource.needs.get(keys[0], ()), stack)
    return templates[0] if len(templates) == 1 else template_named(view.at(*keys), stack)


def template_named(reference: View, stack: Stack) -> LaunchTemplate | None:
    """The launch template that a reference names by id or name, if the stack creates it."""
    named = reference.entries()
    for key in ("id", "launchTemplateId", "name", "launchTemplateName"):
        if key in named:
            wanted, field = named[key].text(), "id" if key.lower().endswith("id") else "name"
            known_templates = stack.known_values(TEMPLATES, lambda template, field=field: template.identifier(field))
            return next((template for template, value in known_templates if value == wanted), None)
    return None


def templates_by_urn(urns: Collection[str], stack: Stack) -> list[LaunchTemplate]:
    """The launch templates with these URNs."""
    known = stack.known_values(TEMPLATES, lambda template: template.resource.urn)
    return [template for template, urn in known if urn in urns]


def machines_of(template: LaunchTemplate | None) -> list[Machine]:
    """The machines of a launch template; empty if it sets none.

    Raises:
        UnknownValueError: the stack does not create the template.
    """
    if template is None:
        raise UnknownValueError(("launchTemplate",), NO_MACHINE)
    with located_at(template):
        return list(template.machines())
