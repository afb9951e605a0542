"""What nodes on AWS are made of: launch templates, node groups without one, and Karpenter's node classes.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html,
https://karpenter.sh/docs/concepts/nodeclasses/.
"""

from collections.abc import Iterator
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.pools import Bought, Disks, Machine, Nodes
from cloud_rules.tokens import EKS_POOL, KARPENTER_CLASS, LAUNCH_TEMPLATE, tokens
from judge import Resource, Subject, View

_WRITE: Final = "metadataOptions: {{httpTokens: required, httpPutResponseHopLimit: {hops}}}"


class LaunchTemplate(Bought, Nodes):
    """A launch template of EC2."""

    __slots__ = ()
    writes: ClassVar = {"machines": "instanceType", "spot": "no instanceMarketOptions.marketType: spot"}

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("instanceMarketOptions", "marketType") == "spot"

    @override
    def machines(self) -> list[Machine]:
        found = self.view.at("instanceType")
        return [Machine(found.text(), found.path)] if found.value is not None else []

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield from _metadata(self.view, hops, tokens_default="optional")

    @override
    def disks(self, asked: Disks) -> Iterator[str]:
        yield from _disks(self.view, asked, "blockDeviceMappings", "kmsKeyId", others=False)

    @override
    def addresses(self) -> Iterator[str]:
        for each in self.view.items("networkInterfaces"):
            if each.flag("associatePublicIpAddress"):
                yield "gives nodes public addresses; write associatePublicIpAddress: false under networkInterfaces"

    @override
    def integrity(self, *, boot: bool) -> Iterator[str]:
        yield from ()


class BareGroup(Nodes):
    """A node group without a launch template: what its nodes are made of is said nowhere."""

    __slots__ = ()

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield f"has no launch template, so nothing says IMDSv2; make one with {_WRITE.format(hops=hops)}"

    @override
    def disks(self, asked: Disks) -> Iterator[str]:
        if asked.own or not asked.by_default:
            yield (
                "has no launch template, so nothing says that its disks are encrypted; make one with"
                " blockDeviceMappings.0.ebs.encrypted: true"
            )

    @override
    def addresses(self) -> Iterator[str]:
        yield from ()  # its subnets decide

    @override
    def integrity(self, *, boot: bool) -> Iterator[str]:
        yield from ()


class NodeClass(Nodes):
    """An EC2NodeClass of Karpenter, whose own defaults are IMDSv2 with one hop and encrypted disks."""

    __slots__ = ()

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        if self.view.has("metadataOptions"):
            yield from _metadata(self.view, hops, tokens_default="required")

    @override
    def disks(self, asked: Disks) -> Iterator[str]:
        yield from _disks(self.view, asked, "blockDeviceMappings", "kmsKeyID", others=True)

    @override
    def addresses(self) -> Iterator[str]:
        if self.view.flag("associatePublicIPAddress"):
            yield "gives nodes public addresses; write associatePublicIPAddress: false"

    @override
    def integrity(self, *, boot: bool) -> Iterator[str]:
        yield from ()


def _metadata(view: View, hops: int, tokens_default: str) -> Iterator[str]:
    options = view.at("metadataOptions")
    if options.text("httpEndpoint") == "disabled":
        return
    if options.text("httpTokens", default=tokens_default) != "required":
        yield f"lets IMDSv1 answer without a token; write {_WRITE.format(hops=hops)}"
    far = options.number("httpPutResponseHopLimit")
    if far is not None and far > hops:
        yield (
            f"lets answers of the metadata service travel {far} hops, so into pods;"
            f" write metadataOptions.httpPutResponseHopLimit: {hops}"
        )


def _disks(view: View, asked: Disks, key: str, kms: str, *, others: bool) -> Iterator[str]:
    """Disks that are not encrypted; `others`: whether those that nobody names are."""
    named = [each for each in view.items(key) if each.has("ebs")]
    for each in named:
        name = each.text("deviceName", default="a disk")
        if not each.flag("ebs", "encrypted", default=asked.by_default):
            yield f"{name} is not encrypted; write ebs.encrypted: true for it under {key}"
        elif asked.own and not each.has("ebs", kms):
            yield f"{name} has no key of the organisation's; write ebs.{kms} for it under {key}"
    if named or (others and not asked.own) or (asked.by_default and not asked.own):
        return
    yield f"names no disk, so nothing says that its disks are encrypted; write ebs.encrypted: true for each under {key}"


def _templates(resource: Resource) -> Iterator[LaunchTemplate]:
    yield LaunchTemplate(resource, resource.props)


def nodes(resource: Resource) -> Iterator[Nodes]:
    """What of a resource says how nodes on AWS are made."""
    if resource.kind == "NodeGroup":
        if not resource.props.has("launchTemplate"):
            yield BareGroup(resource, resource.props)
    elif resource.kind == "EC2NodeClass":
        yield NodeClass(resource, resource.props.at("spec"))
    else:
        yield LaunchTemplate(resource, resource.props)


TEMPLATES: Final = Subject("launch templates", tokens(LAUNCH_TEMPLATE), _templates)
TYPES: Final = (LAUNCH_TEMPLATE, EKS_POOL, KARPENTER_CLASS)
