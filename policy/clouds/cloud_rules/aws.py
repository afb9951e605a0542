"""Machines, configurations of nodes and node pools on AWS.

Launch templates, node groups without one, and Karpenter's node classes:
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html,
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceRequirementsRequest.html,
https://karpenter.sh/docs/concepts/nodeclasses/.
EKS managed node groups, and Auto Scaling groups with nodes:
https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html.
"""

import base64
import binascii
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.pools import Machine, Machines, MachineSource, NodePool, Nodes, Taint, cloud_taints, highest, matches
from cloud_rules.tags import EKS_POOLS, KARPENTER_CLASS, LAUNCH_TEMPLATES, NATIVE_LAUNCH_TEMPLATE, of_types, tags, token
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
    """Any machine that meets requirements, by the pattern of allowed machine types if there is one."""

    requirements: View
    template: Placed | None  # the launch template that sets the requirements; None if the evaluated resource does

    @override
    def gpus(self, known: Machines) -> int | None:
        with nullcontext() if self.template is None else located_at(self.template):
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
        return any(self.requirements.items(key) for key in keys) or any(
            self.requirements.number(key, "min") for key in ("acceleratorCount", "acceleratorTotalMemoryMib")
        )

    def _may_cost_anything(self, known: Machines) -> bool:
        """Whether price protection is off, so that EC2 can select GPU machines that nobody requests."""
        percentages = [self.requirements.number(key) or 0 for key in _PRICE_PROTECTION]
        if not any(percentage >= _NO_PRICE_PROTECTION for percentage in percentages):
            return False
        excluded = self.requirements.texts("excludedInstanceTypes")
        return not all(any(matches(name, pattern) for pattern in excluded) for name in known.gpu_machines("aws"))


def machines_at(view: View, template: Placed | None = None) -> list[Machine]:
    """The machines of a launch template or an override: its type, or all that meet its requirements; else none."""
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

    writes: ClassVar = {
        "machines": "launchTemplateData.instanceType",
        "spot": "no launchTemplateData.instanceMarketOptions.marketType: spot",
    }
    keys: ClassVar = {"id": "launchTemplateId", "name": "launchTemplateName"}


class GroupWithoutTemplate(Nodes):
    """A node group without a launch template: its node configuration is the default."""

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield f"has no launch template, so IMDSv2 is not enforced; add one with {_WRITE.format(hops=hops)}"


class NodeClass(Nodes):
    """An EC2NodeClass of Karpenter. Its default is IMDSv2 with one hop."""

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
    """The machines of a launch template; empty if it sets none, unknown if the stack does not create it."""
    if template is None:
        raise UnknownValueError(("launchTemplate",), NO_MACHINE)
    with located_at(template):
        return list(template.machines())


# Node pools.

_TAG_OF_TAINT: Final = "k8s.io/cluster-autoscaler/node-template/taint/"
_TAG_OF_SIZE: Final = "gpu-tenancy.dev/desired-size"
"""Tag of node groups whose program sends the number of nodes that it read from the cloud: `live`. EKS takes new bounds
only with a number."""
_TAGS_OF_POOLS: Final = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/", "eks:cluster-name", "aws:eks:")
_DEFAULT_MACHINE: Final = Machine("t3.medium", ("instanceTypes",))  # the default machine type of a managed node group
_IMAGES_WITH_GPUS: Final = ("_NVIDIA", "_GPU")
_REGISTERED: Final = re.compile(r"--register-with-taints[= \"']+([^\s\"']+)")

SUBNETS: Final = Subject(
    "subnets", of_types("aws:ec2/subnet:Subnet", "aws-native:ec2:Subnet"), lambda resource: (resource,)
)


class Group(NodePool):
    """A node group of EKS or EC2, with a launch template."""

    @abstractmethod
    def _template(self, stack: Stack) -> LaunchTemplate | None:
        """Its launch template; None without, or if the stack does not create it."""

    def _of_template(self, stack: Stack, fact: Callable[[View], bool]) -> bool:
        """A fact of its launch template; False without one."""
        if not any(self.view.has(key) for key in ("launchTemplate", "mixedInstancesPolicy")):
            return False
        template = self._template(stack)
        if template is None:
            raise UnknownValueError(("launchTemplate",), "is not in this stack")
        with located_at(template):
            return fact(template.view)

    @override
    def fabric(self, stack: Stack) -> str:
        return "EFA" if self._of_template(stack, _has_efa) else ""

    @override
    def zones(self, stack: Stack) -> int:
        for key in ("subnetIds", "subnets", "vpcZoneIdentifiers", "vpcZoneIdentifier"):
            if count := len(self.view.items(key)):
                urns = self.resource.needs.get(key, ())
                known = stack.known_values(SUBNETS, lambda subnet: subnet.props.text("availabilityZone"))
                zones = [zone for subnet, zone in known if subnet.urn in urns and zone]
                return len(set(zones)) if len(zones) == count else count
        return 0


def _has_efa(template: View) -> bool:
    return any(interface.text("interfaceType").startswith("efa") for interface in template.items("networkInterfaces"))


class NodeGroup(Group):
    """An EKS managed node group."""

    writes: ClassVar = {
        "zone": "one subnet under subnetIds",
        "update": "updateConfig.updateStrategy: MINIMAL",
        "maximum": "scalingConfig.maxSize",
        "minimum": "scalingConfig.minSize",
        "machines": "instanceTypes",
        "spot": "capacityType: ON_DEMAND",
        "taint": "taints: [{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}]",
        "size": "scalingConfig.desiredSize",
        "labels": "labels",
    }

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("capacityType") == "SPOT"

    @property
    @override
    def taints(self) -> list[Taint]:
        return cloud_taints(self.view.items("taints"))

    @property
    @override
    def fixed_size(self) -> str:
        path = super().fixed_size
        size = tags(self.resource).get(_TAG_OF_SIZE) if path else None
        return "" if size is not None and size.text() == "live" else path

    @override
    def machines(self) -> list[Machine]:
        if self.view.has("instanceTypes") or self.view.has("launchTemplate"):
            return [Machine(view.text(), view.path) for view in self.view.items("instanceTypes")]
        return [_DEFAULT_MACHINE]

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        if machines := self.machines():
            return machines
        return machines_of(self._template(stack)) or [_DEFAULT_MACHINE]

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        image = self.view.text("amiType")
        if self.machines() or not any(part in image for part in _IMAGES_WITH_GPUS):
            return NodePool.gpus(self, known, stack)
        template = self._template(stack)
        machines = machines_of(template) if template else []
        return highest(machine.gpus(known) for machine in machines) if machines else None

    @override
    def reserved(self, stack: Stack) -> bool:
        target = ("capacityReservationSpecification", "capacityReservationTarget")
        block = self.view.text("capacityType") == "CAPACITY_BLOCK"
        return block or self._of_template(stack, lambda template: template.has(*target))

    @property
    @override
    def surges(self) -> bool:
        return self.view.text("updateConfig", "updateStrategy") != "MINIMAL"

    @override
    def _template(self, stack: Stack) -> LaunchTemplate | None:
        return template_of(self.resource, self.view, "launchTemplate", stack)


class AutoScalingGroup(Group):
    """Self-managed nodes of a cluster, in an Auto Scaling group."""

    writes: ClassVar = {
        "zone": "one subnet under vpcZoneIdentifiers",
        "maximum": "maxSize",
        "minimum": "minSize",
        "machines": "instanceType of the launch template",
        "spot": "mixedInstancesPolicy.instancesDistribution.onDemandPercentageAboveBaseCapacity: 100",
        "taint": (
            "--register-with-taints=nvidia.com/gpu=present:NoSchedule for the kubelet in the template's user data,"
            f" and the tag {_TAG_OF_TAINT}nvidia.com/gpu: present:NoSchedule"
        ),
        "size": "desiredCapacity",
    }

    @property
    @override
    def spot(self) -> bool:
        path = ("mixedInstancesPolicy", "instancesDistribution", "onDemandPercentageAboveBaseCapacity")
        percent = self.view.number(*path)
        return percent is not None and percent < 100  # noqa: PLR2004 - all of them

    @property
    @override
    def taints(self) -> list[Taint]:
        return [
            Taint(key.removeprefix(_TAG_OF_TAINT), value.text().rpartition(":")[2])
            for key, value in tags(self.resource).items()
            if key.startswith(_TAG_OF_TAINT)
        ]

    def all_taints(self, stack: Stack) -> list[Taint]:
        """The taints in the tags, else in the kubelet arguments of the launch template's user data."""
        if taints := self.taints:
            return taints
        template = self._template(stack)
        if template is None:
            raise UnknownValueError(("launchTemplate",), "is not in this stack, and it sets the taints")
        with located_at(template):
            return list(_registered_taints(template.view))

    @override
    def machines(self) -> list[Machine]:
        return [machine for entry in self._overrides() for machine in machines_at(entry)]

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        """The machines of overrides and of their own templates, else of the group's template."""
        of_own_templates = [
            machine
            for entry in self._overrides()
            if entry.has("launchTemplateSpecification") and not machines_at(entry)
            for machine in machines_of(template_named(entry.at("launchTemplateSpecification"), stack))
        ]
        if machines := [*self.machines(), *of_own_templates]:
            return machines
        if machines := machines_of(self._template(stack)):
            return machines
        raise UnknownValueError(("launchTemplate",), NO_MACHINE)

    def _overrides(self) -> list[View]:
        return self.view.items("mixedInstancesPolicy", "launchTemplate", "overrides")

    @override
    def _template(self, stack: Stack) -> LaunchTemplate | None:
        if not self.view.has("mixedInstancesPolicy"):
            return template_of(self.resource, self.view, "launchTemplate", stack)
        mixed = "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification"
        return template_of(self.resource, self.view, mixed, stack)


def groups(resource: Resource) -> Iterator[NodeGroup | AutoScalingGroup]:
    """The pool of a resource; an Auto Scaling group is one only if its tags name a cluster."""
    if token(resource.type) in EKS_POOLS:
        yield NodeGroup(resource, resource.props)
        return
    read_tags = tags(resource)
    # A tag key that is unknown in a preview contains the cluster's name.
    has_unknown_key = len(resource.props.items("tags")) > len(read_tags)
    if has_unknown_key or any(key.startswith(_TAGS_OF_POOLS) for key in read_tags):
        yield AutoScalingGroup(resource, resource.props)


def _registered_taints(template: View) -> Iterator[Taint]:
    """Taints in the kubelet arguments of user data, plain or in base64: `key=value:effect`."""
    text = template.text("userData")
    with suppress(binascii.Error):
        text = base64.b64decode(text.encode(), validate=True).decode(errors="replace")
    for taint in (taint for taints in _REGISTERED.findall(text) for taint in taints.split(",")):
        key, _, effect = taint.rpartition(":")
        yield Taint(key.partition("=")[0], effect)
