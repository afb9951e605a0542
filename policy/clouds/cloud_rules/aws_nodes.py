"""Node configurations on AWS: launch templates, node groups without one, and Karpenter's node classes.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html,
https://karpenter.sh/docs/concepts/nodeclasses/.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules import aws_attributes
from cloud_rules.pools import Machine, MachineSource, Nodes
from cloud_rules.tokens import KARPENTER_CLASS, LAUNCH_TEMPLATES, NATIVE_LAUNCH_TEMPLATE, of_types, token
from rule_engine import Resource, Stack, Subject, UnknownValueError, View, located_at

NO_MACHINE: Final = "is not in this stack or sets no instance type, and the group sets none"
_WRITE: Final = "metadataOptions: {{httpTokens: required, httpPutResponseHopLimit: {hops}}}"


class LaunchTemplate(MachineSource, Nodes):
    """An EC2 launch template."""

    __slots__ = ()
    writes: ClassVar = {"machines": "instanceType", "spot": "no instanceMarketOptions.marketType: spot"}
    keys: ClassVar[Mapping[str, str]] = {"id": "id", "name": "name"}
    """Properties by which groups refer to it."""

    def identifier(self, key: str) -> str:
        """Its id or name in the cloud.

        Args:
            key: `id` or `name`.
        """
        return self.resource.props.text(self.keys[key])

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("instanceMarketOptions", "marketType") == "spot"

    @override
    def machines(self) -> list[Machine]:
        return aws_attributes.machines(self.view, self)

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


def _templates(resource: Resource) -> Iterator[LaunchTemplate]:
    if token(resource.type) == NATIVE_LAUNCH_TEMPLATE:
        yield NativeLaunchTemplate(resource, resource.props.at("launchTemplateData"))
    else:
        yield LaunchTemplate(resource, resource.props)


def nodes(resource: Resource) -> Iterator[Nodes]:
    """The node configurations of an AWS resource."""
    kind = token(resource.type)
    if kind == KARPENTER_CLASS:
        yield NodeClass(resource, resource.props.at("spec"))
    elif kind in LAUNCH_TEMPLATES:
        yield from TEMPLATES.find(resource)
    elif not resource.props.has("launchTemplate"):
        yield GroupWithoutTemplate(resource, resource.props)


TEMPLATES: Final = Subject("launch templates", of_types(*LAUNCH_TEMPLATES), _templates)


def template_of(resource: Resource, view: View, path: str, stack: Stack) -> LaunchTemplate | None:
    """The launch template of a group, if the stack creates it.

    It is looked up by the dependency of the property, which a preview knows too, else by id or name.
    """
    keys = path.split(".")
    if not view.has(*keys):
        return None
    if template := template_by_dependency(resource, keys[0], stack):
        return template
    return template_named(view.at(*keys), stack)


def template_named(reference: View, stack: Stack) -> LaunchTemplate | None:
    """The launch template that a reference names by id or name, if the stack creates it."""
    named = reference.entries()
    for key in ("id", "launchTemplateId", "name", "launchTemplateName"):
        if key in named:
            wanted, field = named[key].text(), "id" if key.lower().endswith("id") else "name"
            known_templates = stack.known_values(TEMPLATES, lambda template, field=field: template.identifier(field))
            return next((template for template, value in known_templates if value == wanted), None)
    return None


def template_by_dependency(resource: Resource, key: str, stack: Stack) -> LaunchTemplate | None:
    """The launch template that a property depends on; None if there is not exactly one."""
    needed = resource.needs.get(key, ())
    templates = [
        template
        for template, urn in stack.known_values(TEMPLATES, lambda template: template.resource.urn)
        if urn in needed
    ]
    return templates[0] if len(templates) == 1 else None


def machines_of(template: LaunchTemplate | None) -> list[Machine]:
    """The machines of a launch template; empty if it sets none.

    Raises:
        UnknownValueError: the stack does not create the template.
    """
    if template is None:
        raise UnknownValueError(("launchTemplate",), NO_MACHINE)
    with located_at(template):
        return list(template.machines())
