"""EKS clusters, managed node groups, and Auto Scaling groups with nodes.

https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html,
https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.aws_nodes import TEMPLATES, LaunchTemplate
from cloud_rules.machines import Machines
from cloud_rules.pools import Cloud, Cluster, Endpoint, Machine, NodePool, Taint, highest
from cloud_rules.tags import tags
from cloud_rules.tokens import ignores
from rule_engine import Resource, Stack, UnknownValueError, View, elsewhere

_EFFECTS: Final = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_TAG_OF_TAINT: Final = "k8s.io/cluster-autoscaler/node-template/taint/"
_TAG_OF_SIZE: Final = "gpu-tenancy.dev/desired-size"
"""Tag of node groups whose program sends the number of nodes that it read from the cloud: `live`. EKS takes new bounds
only with a number."""
_TAGS_OF_POOLS: Final = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/", "eks:cluster-name", "aws:eks:")
_ELSEWHERE: Final = "is not in this stack or sets no instance type, and the group sets none"
_DEFAULT_MACHINE: Final = "t3.medium"
"""The default machine type of a managed node group."""
_IMAGES_WITH_GPUS: Final = ("_NVIDIA", "_GPU")
_REGISTERED: Final = re.compile(r"--register-with-taints[= \"']+([^\s\"']+)")


class NodeGroup(NodePool):
    """An EKS managed node group."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "aws"
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
    def minimum(self) -> Decimal:
        return self.view.number("scalingConfig", "minSize") or Decimal(0)

    @property
    @override
    def maximum(self) -> Decimal | None:
        return self.view.number("scalingConfig", "maxSize")

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("capacityType") == "SPOT"

    @property
    @override
    def taints(self) -> list[Taint]:
        taints = [taint.string_map() for taint in self.view.items("taints")]
        return [Taint(taint.get("key", ""), _EFFECTS.get(taint.get("effect", ""), "")) for taint in taints]

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
            return _machines(self.view.items("instanceTypes"))
        return [Machine(_DEFAULT_MACHINE, ("instanceTypes",))]

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        if machines := self.machines():
            return machines
        return _machines_of(template_of(self.resource, self.view, "launchTemplate", stack))

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        image = self.view.text("amiType", default="CUSTOM")
        if self.machines() or image == "CUSTOM":
            return NodePool.gpus(self, known, stack)
        if not image.endswith(_IMAGES_WITH_GPUS):
            return 0
        template = _template_by_dependency(self.resource, "launchTemplate", stack)
        return highest(known.gpus_of(machine.name) for machine in _machines_of(template)) if template else None


class AutoScalingGroup(NodePool):
    """Self-managed nodes of a cluster, in an Auto Scaling group."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "aws"
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
    def minimum(self) -> Decimal:
        return self.view.number("minSize") or Decimal(0)

    @property
    @override
    def maximum(self) -> Decimal | None:
        return self.view.number("maxSize")

    @property
    @override
    def spot(self) -> bool:
        path = ("mixedInstancesPolicy", "instancesDistribution", "onDemandPercentageAboveBaseCapacity")
        percent = self.view.number(*path)
        return percent is not None and percent < 100  # noqa: PLR2004 - all of them

    @property
    @override
    def taints(self) -> list[Taint]:
        taint_tags = {key: value for key, value in tags(self.resource).items() if key.startswith(_TAG_OF_TAINT)}
        return [
            Taint(key.removeprefix(_TAG_OF_TAINT), value.text().rsplit(":", 1)[-1]) for key, value in taint_tags.items()
        ]

    def all_taints(self, stack: Stack) -> list[Taint]:
        """The taints in the tags, else those in the kubelet arguments of the launch template's user data."""
        if taints := self.taints:
            return taints
        template = self._template(stack)
        if template is None:
            raise UnknownValueError(("launchTemplate",), "is not in this stack, and it sets the taints")
        with elsewhere(template):
            return [Taint(*_taint(text)) for text in _registered_taints(template.view)]

    @property
    @override
    def fixed_size(self) -> str:
        path = self.writes["size"]
        between = self.minimum != self.maximum
        return path if between and self.view.has(path) and not ignores(self.resource, path) else ""

    @override
    def machines(self) -> list[Machine]:
        overrides = self.view.items("mixedInstancesPolicy", "launchTemplate", "overrides")
        return _machines(entry.at("instanceType") for entry in overrides if entry.has("instanceType"))

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        if machines := self.machines():
            return machines
        return _machines_of(self._template(stack))

    def _template(self, stack: Stack) -> LaunchTemplate | None:
        mixed = ("mixedInstancesPolicy", "launchTemplate", "launchTemplateSpecification")
        if not self.view.has("mixedInstancesPolicy"):
            return template_of(self.resource, self.view, "launchTemplate", stack)
        return template_of(self.resource, self.view, ".".join(mixed), stack)


class EksCluster(Cluster):
    """An EKS cluster."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "aws"

    @property
    @override
    def endpoint(self) -> Endpoint:
        public = self.view.flag("vpcConfig", "endpointPublicAccess", default=True)
        networks = self.view.items("vpcConfig", "publicAccessCidrs") if public else []
        write = "vpcConfig.endpointPublicAccess: false, or list the required networks under vpcConfig.publicAccessCidrs"
        return Endpoint(public, networks or None, write)

    @property
    @override
    def own_nodes(self) -> bool:
        return self.view.flag("computeConfig", "enabled")

    @override
    def name(self) -> str:
        return self.view.text("name")

    @override
    def identity(self) -> Iterator[str]:
        yield from ()  # checked by the rule pod-identity, because other resources of the stack set it

    @override
    def credentials(self) -> Iterator[str]:
        mode = self.view.text("accessConfig", "authenticationMode", default="CONFIG_MAP")
        if mode != "API":
            yield (
                f"authenticationMode is {mode}, so access is granted by the ConfigMap aws-auth, whose changes IAM"
                " does not log; set accessConfig.authenticationMode: API"
            )


def groups(resource: Resource) -> Iterator[NodeGroup | AutoScalingGroup]:
    """The pool of a resource; an Auto Scaling group is one only if its tags name a cluster."""
    if resource.kind == "NodeGroup":
        yield NodeGroup(resource, resource.props)
    elif _belongs_to_a_cluster(resource):
        yield AutoScalingGroup(resource, resource.props)


def _belongs_to_a_cluster(resource: Resource) -> bool:
    """Whether a tag names a cluster, or can: a tag key that is unknown in a preview contains the cluster's name."""
    read_tags = tags(resource)
    has_unknown_key = len(resource.props.items("tags")) > len(read_tags)
    return has_unknown_key or any(key.startswith(_TAGS_OF_POOLS) for key in read_tags)


def template_of(resource: Resource, view: View, path: str, stack: Stack) -> LaunchTemplate | None:
    """The launch template of a group, if the stack creates it.

    It is looked up by the dependency of the property, which a preview knows too, else by id or name.
    """
    keys = path.split(".")
    if not view.has(*keys):
        return None
    if template := _template_by_dependency(resource, keys[0], stack):
        return template
    named = view.at(*keys).entries()
    for key in ("id", "launchTemplateId", "name", "launchTemplateName"):
        if key in named:
            wanted, field = named[key].text(), "id" if key.lower().endswith("id") else "name"
            known_templates = stack.known_values(TEMPLATES, lambda template, field=field: template.view.text(field))
            return next((template for template, value in known_templates if value == wanted), None)
    return None


def _template_by_dependency(resource: Resource, key: str, stack: Stack) -> LaunchTemplate | None:
    """The launch template that a property depends on; None if there is not exactly one."""
    needed = resource.needs.get(key, ())
    templates = [
        template
        for template, urn in stack.known_values(TEMPLATES, lambda template: template.resource.urn)
        if urn in needed
    ]
    return templates[0] if len(templates) == 1 else None


def _machines_of(template: LaunchTemplate | None) -> list[Machine]:
    """The machine of a launch template.

    Raises:
        UnknownValueError: there is no template, or it sets no instance type.
    """
    if template is not None:
        with elsewhere(template):
            if machines := template.machines():
                return machines
    raise UnknownValueError(("launchTemplate",), _ELSEWHERE)


def _machines(views: Iterator[View] | Sequence[View]) -> list[Machine]:
    return [Machine(view.text(), view.path) for view in views]


def _registered_taints(template: View) -> list[str]:
    """Taints in the kubelet arguments of user data, plain or in base64: `key=value:effect`."""
    text = template.text("userData")
    with suppress(binascii.Error):
        text = base64.b64decode(text.encode(), validate=True).decode(errors="replace")
    return [taint for taints in _REGISTERED.findall(text) for taint in taints.split(",")]


def _taint(text: str) -> tuple[str, str]:
    key, _, effect = text.rpartition(":")
    return key.split("=", 1)[0], effect
