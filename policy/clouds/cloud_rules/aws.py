"""EKS managed node groups, and Auto Scaling groups with nodes.

https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.aws_nodes import NO_MACHINE, LaunchTemplate, machines_at, machines_of, template_named, template_of
from cloud_rules.machines import Machines
from cloud_rules.pools import Machine, NodePool, Taint, cloud_taints, highest
from cloud_rules.tags import EKS_POOLS, ignores, tags, token
from rule_engine import Resource, Stack, UnknownValueError, View, located_at

_TAG_OF_TAINT: Final = "k8s.io/cluster-autoscaler/node-template/taint/"
_TAG_OF_SIZE: Final = "gpu-tenancy.dev/desired-size"
"""Tag of node groups whose program sends the number of nodes that it read from the cloud: `live`. EKS takes new bounds
only with a number."""
_TAGS_OF_POOLS: Final = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/", "eks:cluster-name", "aws:eks:")
_DEFAULT_MACHINE: Final = Machine("t3.medium", ("instanceTypes",))
"""The default machine type of a managed node group."""
_IMAGES_WITH_GPUS: Final = ("_NVIDIA", "_GPU")
_REGISTERED: Final = re.compile(r"--register-with-taints[= \"']+([^\s\"']+)")


class NodeGroup(NodePool):
    """An EKS managed node group."""

    __slots__ = ()
    writes: ClassVar = {
        "maximum": "scalingConfig.maxSize",
        "minimum": "scalingConfig.minSize",
        "machines": "instanceTypes",
        "spot": "capacityType: ON_DEMAND",
        "taint": "taints: [{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}]",
        "size": "scalingConfig.desiredSize",
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
        path = self.writes["size"]
        between = self.minimum != self.maximum
        if not between or not self.view.has(*path.split(".")) or ignores(self.resource, path):
            return ""
        size = tags(self.resource).get(_TAG_OF_SIZE)
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

    def _template(self, stack: Stack) -> LaunchTemplate | None:
        return template_of(self.resource, self.view, "launchTemplate", stack)


class AutoScalingGroup(NodePool):
    """Self-managed nodes of a cluster, in an Auto Scaling group."""

    __slots__ = ()
    writes: ClassVar = {
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
        """The taints in the tags, else those in the kubelet arguments of the launch template's user data."""
        if taints := self.taints:
            return taints
        template = self._template(stack)
        if template is None:
            raise UnknownValueError(("launchTemplate",), "is not in this stack, and it sets the taints")
        with located_at(template):
            return [_taint(text) for text in _registered_taints(template.view)]

    @property
    @override
    def fixed_size(self) -> str:
        path = self.writes["size"]
        between = self.minimum != self.maximum
        return path if between and self.view.has(path) and not ignores(self.resource, path) else ""

    @override
    def machines(self) -> list[Machine]:
        return [machine for entry in self._overrides() for machine in machines_at(entry)]

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        """The machines of overrides and of their own templates, else those of the group's template."""
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


def _registered_taints(template: View) -> list[str]:
    """Taints in the kubelet arguments of user data, plain or in base64: `key=value:effect`."""
    text = template.text("userData")
    with suppress(binascii.Error):
        text = base64.b64decode(text.encode(), validate=True).decode(errors="replace")
    return [taint for taints in _REGISTERED.findall(text) for taint in taints.split(",")]


def _taint(text: str) -> Taint:
    key, _, effect = text.rpartition(":")
    return Taint(key.partition("=")[0], effect)
