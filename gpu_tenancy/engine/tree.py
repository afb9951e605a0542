"""The resources of a stack as a tree for the terminal."""

from collections import defaultdict
from collections.abc import Mapping

from rich.text import Text
from rich.tree import Tree

from gpu_tenancy.base.texts import plural
from gpu_tenancy.engine.details import details
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.releases import helm_releases
from gpu_tenancy.engine.render import Rendered


def tree(rendered: Rendered) -> Tree:
    """Returns the resources of a stack under their parents, components with the number of their resources.

    Providers and resources that are only read are left out, because the stack does not create them.
    """
    return _Branches(rendered).tree()


class _Branches:
    def __init__(self, rendered: Rendered) -> None:
        self._rendered = rendered
        self._objects: Mapping[str, KubernetesObject] = {item.urn: item for item in kubernetes_objects(rendered)}
        self._releases = {release.urn: release for release in helm_releases(rendered)}
        parents = {registration.urn: registration.parent for registration in rendered.registrations}
        shown = [registration for registration in rendered.registrations if registration.will_exist]
        listed = {registration.urn for registration in shown}
        self._children: defaultdict[str, list[Registration]] = defaultdict(list)
        for registration in shown:
            parent = registration.parent
            while parent and parent not in listed:
                parent = parents.get(parent, "")
            self._children[parent].append(registration)

    def tree(self) -> Tree:
        branches = [self._branch(child, frozenset()) for child in self._sorted("")]
        total = sum(count for _, count in branches)
        root = Tree(
            Text.assemble(
                (f"{self._rendered.project}/{self._rendered.stack}", "bold"), (f"  {plural(total, 'resource')}", "dim")
            ),
            guide_style="dim",
        )
        root.children.extend(branch for branch, _ in branches)
        return root

    def _branch(self, registration: Registration, above: frozenset[str]) -> tuple[Tree, int]:
        """The resource with its descendants, and their number without components."""
        inside = above | {registration.urn}
        children = () if registration.urn in above else self._sorted(registration.urn)
        branches = [self._branch(child, inside) for child in children]
        beneath = sum(count for _, count in branches)
        label = self._label(registration)
        if not registration.custom:
            label.append(f"  {plural(beneath, 'resource')}", "dim")
        branch = Tree(label, guide_style="dim")
        branch.children.extend(child for child, _ in branches)
        return branch, beneath + registration.custom

    def _label(self, registration: Registration) -> Text:
        item = self._objects.get(registration.urn)
        if item is None:
            style = "cyan" if registration.custom else "bold"
            release = self._releases.get(registration.urn)
            title = (f"{_short_type(registration.type)} ", style), release.name if release else registration.name
            suffix = ((f"  {release.version}", "green"),) if release else ()
            return Text.assemble(*title, *suffix, no_wrap=True, overflow="ellipsis")
        name = item.name or f"({registration.name}: no name)"
        title = (f"{item.kind} ", "cyan"), name
        fields = details(item.shown)
        suffix = ((f"  {fields}", "green"),) if fields else ()
        return Text.assemble(*title, *suffix, no_wrap=True, overflow="ellipsis")

    def _sorted(self, parent: str) -> tuple[Registration, ...]:
        children = self._children.get(parent, ())
        return tuple(sorted(children, key=lambda child: (child.custom, _short_type(child.type), child.name)))


def _short_type(token: str) -> str:
    """The last part of a type token: `Team` of `gpu-tenancy:team:Team`."""
    return token.rpartition(":")[2]
