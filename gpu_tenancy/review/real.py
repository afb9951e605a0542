"""Changes from the output of `pulumi preview --json`, which knows the cloud and the stack's state."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.bounds import read_json
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.engine.recording import STACK_TYPE, Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.engine.wire import SIGNATURE, UNKNOWN
from gpu_tenancy.review.changes import Action, Change, FieldChange, Groups, changed, in_order, short
from gpu_tenancy.review.review import Real

# The operations of a step: https://github.com/pulumi/pulumi/blob/master/pkg/display/json.go and sdk/go/common/display.
_ACTIONS: Final[Mapping[str, Action]] = {
    "create": "create",
    "import": "create",
    "update": "update",
    "delete": "delete",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "import-replacement": "replace",
}
_SAME: Final = frozenset({"same", "refresh", "read", "read-replacement", "read-discard"})


def read_real(file: Path, after: Rendered, before: Rendered | None, pools: tuple[str, ...]) -> Real:
    """Reads a saved Pulumi preview.

    Args:
        file: output of `pulumi preview --json`.
        after: the stack's offline rendering, which assigns resources to teams and pools.
        before: the same at the base, for resources that are deleted.
        pools: names of the stack's node pools, at the base and now.

    Raises:
        ConsoleError: the file cannot be read or is not a Pulumi preview.
    """
    try:
        preview = read_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConsoleError(f"{file}: cannot read the file: {error.strerror}", _FIX) from error
    except ValueError as error:
        raise ConsoleError(f"{file}: not valid JSON", _FIX) from error
    steps = _map(preview).get("steps")
    if not isinstance(steps, list):
        raise ConsoleError(f"{file}: missing key 'steps'", _FIX)
    known = _Known(after, before, pools)
    changes: dict[str, Change] = {}
    same = 0
    for step in cast("list[Mapping[str, Any]]", steps):
        urn, operation = str(step.get("urn", "")), str(step.get("op", ""))
        state = _map(step.get("newState") or step.get("oldState"))
        if not state.get("custom") or urn.split("::")[-2:-1] == [STACK_TYPE] or ":providers:" in urn:
            continue
        if operation in _SAME:
            same += 1
        elif operation in _ACTIONS and not (urn in changes and changes[urn].fields):
            changes[urn] = known.change(_ACTIONS[operation], urn, step, state)
    return Real(in_order(changes.values()), same)


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


_FIX: Final = "specify a file written by `pulumi preview --json`"


class _Known:
    """Resources by the part of their URN after the stack, since a preview may use the fully qualified stack name."""

    def __init__(self, after: Rendered, before: Rendered | None, pools: tuple[str, ...]) -> None:
        self._by_urn: dict[str, tuple[Registration, Groups]] = {}
        for rendered in (before, after):
            if rendered is not None:
                groups = Groups(rendered, pools)
                self._by_urn |= {
                    _after_stack(registration.urn): (registration, groups) for registration in rendered.registrations
                }

    def change(self, action: Action, urn: str, step: Mapping[str, Any], state: Mapping[str, Any]) -> Change:
        """The change that a step of the preview makes."""
        fields = tuple(_fields(step))
        if known := self._by_urn.get(_after_stack(urn)):
            registration, groups = known
            protected = bool(_map(step.get("oldState")).get("protect"))
            return replace(changed(registration, action, fields, groups, protected=protected), urn=urn)
        kind = str(state.get("type", "")).rpartition(":")[2]
        return Change(action, "not in the stack file", kind, urn.rpartition("::")[2], urn, fields)


def _after_stack(urn: str) -> str:
    return urn.partition("::")[2]


def _fields(step: Mapping[str, Any]) -> Iterator[FieldChange]:
    old, new = _map(_map(step.get("oldState")).get("inputs")), _map(_map(step.get("newState")).get("inputs"))
    forcing = tuple(str(reason) for reason in step.get("replaceReasons") or ())
    for path in sorted(_map(step.get("detailedDiff"))):
        keys = _keys(path)
        replaces = bool(keys) and (keys[0] in forcing or path in forcing)
        yield FieldChange(".".join(keys), _at(old, keys), _at(new, keys), replaces=replaces)


def _keys(path: str) -> list[str]:
    """The keys of a property path: `spec.containers[0].resources["nvidia.com/gpu"]`."""
    keys: list[str] = []
    rest = path
    while rest:
        if rest.startswith('["'):
            key, _, rest = rest[2:].partition('"]')
        elif rest.startswith("["):
            key, _, rest = rest[1:].partition("]")
        else:
            end = min((i for i in (rest.find("."), rest.find("[")) if i >= 0), default=len(rest))
            key, rest = rest[:end], rest[end:]
        keys.append(key)
        rest = rest.removeprefix(".")
    return keys


def _at(value: Any, keys: list[str]) -> str:
    for key in keys:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            value = items[int(key)] if key.isdigit() and int(key) < len(items) else None
        elif isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(key)
        else:
            value = None
        if value is None:
            return ""
    return short(_shown(value))


def _shown(value: Any) -> Any:
    """A value with its secrets and unknown values replaced by placeholders."""
    if value == UNKNOWN:
        return "[unknown]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return "[secret]" if SIGNATURE in items else {key: _shown(item) for key, item in items.items()}
    if isinstance(value, list):
        return [_shown(item) for item in cast("list[Any]", value)]
    return value
