"""The launch templates that groups, fleets and instances of a stack refer to, and the machines that they set."""

from typing import Final

from cloud_rules.aws_nodes import TEMPLATES, LaunchTemplate
from cloud_rules.pools import Machine
from rule_engine import Resource, Stack, UnknownValueError, View, elsewhere

NO_MACHINE: Final = "is not in this stack or sets no instance type, and the group sets none"


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
    with elsewhere(template):
        return list(template.machines())
