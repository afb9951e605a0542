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
                yield "assigns public addresses to nodes; set associatePublicIpAddress: false under networkInterfaces"

    @override
    def integrity(self, *, boot: bool) -> Iterator[str]:
        yield from ()


class BareGroup(Nodes):
    """A node group without a launch template: its node configuration is the default."""

    __slots__ = ()

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield f"has no launch template, so IMDSv2 is not enforced; add one with {_WRITE.format(hops=hops)}"

    @override
    def disks(self, asked: Disks) -> Iterator[str]:
        if asked.own or not asked.by_default:
            yield (
                "has no launch template, so disk encryption is not enforced; add one with"
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
            yield "assigns public addresses to nodes; set associatePublicIPAddress: false"

    @override
    def integrity(self, *, boot: bool) -> Iterator[str]:
        yield from ()


def _metadata(view: View, hops: int, tokens_default: str) -> Iterator[str]:
    options = view.at("metadataOptions")
    if options.text("httpEndpoint") == "disabled":
        return
    if options.text("httpTokens", default=tokens_default) != "required":
        yield f"allows IMDSv1 requests without a token; set {_WRITE.format(hops=hops)}"
    far = options.number("httpPutResponseHopLimit")
    if far is not None and far > hops:
        yield (
            f"the metadata hop limit is {far}, so pods can reach the metadata service; set"
            f" metadataOptions.httpPutResponseHopLimit: {hops}"
        )


def _disks(view: View, asked: Disks, key: str, kms: str, *, others: bool) -> Iterator[str]:
    """Disks that are not encrypted; `others`: whether unlisted disks are encrypted."""
    named = [each for each in view.items(key) if each.has("ebs")]
    for each in named:
        name = each.text("deviceName", default="a disk")
        if not each.flag("ebs", "encrypted", default=asked.by_default):
            yield f"{name} is not encrypted; set ebs.encrypted: true for it under {key}"
        elif asked.own and not each.has("ebs", kms):
            yield f"{name} is not encrypted with a customer-managed key; set ebs.{kms} for it under {key}"
    if named or (others and not asked.own) or (asked.by_default and not asked.own):
        return
    yield f"lists no disk, so disk encryption is not enforced; set ebs.encrypted: true for each disk under {key}"


def _templates(resource: Resource) -> Iterator[LaunchTemplate]:
    yield LaunchTemplate(resource, resource.props)


def nodes(resource: Resource) -> Iterator[Nodes]:
    """The node configurations of an AWS resource."""
    if resource.kind == "NodeGroup":
        if not resource.props.has("launchTemplate"):
            yield BareGroup(resource, resource.props)
    elif resource.kind == "EC2NodeClass":
        yield NodeClass(resource, resource.props.at("spec"))
    else:
        yield LaunchTemplate(resource, resource.props)


TEMPLATES: Final = Subject("launch templates", tokens(LAUNCH_TEMPLATE), _templates)
TYPES: Final = (LAUNCH_TEMPLATE, EKS_POOL, KARPENTER_CLASS)
