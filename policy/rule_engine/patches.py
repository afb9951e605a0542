"""Patches and lists of Kubernetes objects, as the objects that they leave or have."""

from collections.abc import Iterator
from typing import Final

from rule_engine.reading import Plain
from rule_engine.reads import is_whole

_KUBERNETES: Final = "kubernetes:"
_PATCH: Final = "Patch"
"""Suffix of the types of Pulumi's patches, which have a part of an object: `DeploymentPatch`.
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/"""
_LIST: Final = "List"


def object_type(type_: str) -> tuple[str, bool]:
    """The type of the object that a resource is or patches, and whether it is a patch."""
    token = type_.removesuffix(_PATCH)
    is_patch = type_.startswith(_KUBERNETES) and token != type_ and not token.endswith(":")
    return (token, True) if is_patch else (type_, False)


def item_type(type_: str, item: Plain) -> str:
    """The type of an item of a list: that of the list's type, or else what the item says; empty if it is no list.

    Args:
        type_: of the resource: `kubernetes:apps/v1:DeploymentList`.
        item: an item, which has its own kind in a list of any kinds (`kubernetes:core/v1:List`).
    """
    token = type_.removesuffix(_LIST)
    if not type_.startswith(_KUBERNETES) or token == type_:
        return ""
    if not token.endswith(":"):
        return token
    fields = item if isinstance(item, dict) else {}
    version, kind = fields.get("apiVersion"), fields.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return ""
    return f"{_KUBERNETES}{version if '/' in version else f'core/{version}'}:{kind}"


def merged(below: Plain, above: Plain, field: str = "") -> Plain:
    """What server-side apply makes of an object's value and of a patch's; `field` is the name of the field with it."""
    if isinstance(below, dict) and isinstance(above, dict) and not is_whole(field, is_list=False):
        both = {key: merged(below[key], above[key], key) for key in below if key in above}
        return {**below, **above, **both}
    if isinstance(below, list) and isinstance(above, list) and not is_whole(field, is_list=True):
        return [*_merged_items(below, above)]
    return above


def _merged_items(below: list[Plain], above: list[Plain]) -> Iterator[Plain]:
    named = {_name(item): item for item in above}
    known = {_name(item) for item in below}
    for item in below:
        yield merged(item, named[_name(item)]) if _name(item) in named else item
    yield from (item for item in above if _name(item) not in known)


def _name(item: Plain) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else ""
