"""Whether a deployment would find nothing to do: all that the program registers is in the state as it is.

The engine of Pulumi asks the provider of each object whether it differs, which takes 30 ms of processor time each. For
a stack that has only objects of Kubernetes, the program tells all inputs without an engine, so they can be compared.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final

from gpu_tenancy.deploy.recovering import PROVIDERS, marked
from gpu_tenancy.deploy.states import ROOT, Entry, State, plain
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered

_PLUGIN: Final = "pulumi-kubernetes"
_OF_ENGINE: Final = frozenset({"__internal", "version"})
"""Inputs of a provider that the engine adds."""
_UNKNOWN: Final = "[unknown]"


def unchanged(rendered: Rendered, state: State, mark: str) -> bool:
    """Whether `pulumi up` of a stack would change none of its resources and outputs.

    False in doubt: where a value is known to an engine only, or another plugin made the objects.

    Args:
        rendered: the stack's program, with what other stacks tell it.
        state: of the stack, with secrets, without pending operations.
        mark: of the environment.
    """
    entries: list[Entry] = list(state.get("resources") or ())
    root = _root(entries)
    there = {str(one["urn"]): one for one in entries if one is not root}
    registered = {one.urn: one for one in rendered.registrations}
    if root is None or there.keys() != registered.keys() or len(there) + 1 != len(entries):
        return False
    top = str(root["urn"])
    return _outputs_same(rendered.outputs, root) and all(
        _is_same(one, there[urn], top, mark) for urn, one in registered.items()
    )


def outputs_of(state: State) -> dict[str, Any]:
    """The outputs of a stack, with secrets in clear text; empty if it was never deployed."""
    root = _root(state.get("resources") or ())
    return plain(root.get("outputs") or {}) if root else {}


def _root(entries: Iterable[Entry]) -> Entry | None:
    """The resource that represents the stack."""
    return next((one for one in entries if one["type"] == ROOT), None)


def _is_same(one: Registration, entry: Entry, top: str, mark: str) -> bool:
    around = (
        entry.get("parent") == (one.parent or top)
        and bool(entry.get("custom")) == one.custom
        and bool(entry.get("protect")) == one.protect
        and {*entry.get("dependencies", ())} == {*one.dependencies}
        and _urn(entry.get("provider", "")) == _urn(one.provider)
        and not entry.get("delete")
    )
    if not around or one.external_id:
        return around
    if one.unknown_paths:
        return False
    before = plain(entry.get("inputs") or {})
    if one.type.startswith(PROVIDERS):
        if before.get("version") != version(_PLUGIN):
            return False
        return {key: value for key, value in before.items() if key not in _OF_ENGINE} == plain(one.inputs)
    return not one.custom or before == plain(marked(one.inputs, mark))


def _outputs_same(outputs: Mapping[str, Any], root: Entry) -> bool:
    before = plain(root.get("outputs") or {}, hidden=True)
    return before.keys() == outputs.keys() and all(
        plain(value) in (_UNKNOWN, before[key]) for key, value in outputs.items()
    )


def _urn(provider: str) -> str:
    """The URN of a provider of which a resource has the URN and the ID."""
    return provider.rpartition("::")[0]
