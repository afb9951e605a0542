"""Tables of cases in YAML: a change of a stack, and the fields of the resources that the stack becomes.

The file is a mapping with `program` (tenancy, cluster or platform), `stack`, `places` (short names of places of the
stack), `with` (named changes) and `cases` by name. A `stack` is the name of a stack of the repository, a stack, or,
without a cluster, a change of `builders.stack`.

The keys of a case are places or sections of the stack, whose values are JSON merge patches (RFC 7396), or:
    with: the names of changes that are made first.
    KIND, KIND NAME or KIND NAMESPACE/NAME: expected values by path, of the only such resource. `each KIND` is all of
        the resources, `read KIND` one that is read, `provider NAME` a provider. Kinds and names are patterns.
    names: the names of all resources by kind.
    none: resources that do not exist.
    needs: resources by the resource that depends on them.
    refused: the problems of the stack: a part of each, or several parts with ` ... ` between them. `refused among
        others` names some of the problems.

A path has keys, `[0]`, `[KEY=VALUE]`, `[KEY]` for keys with dots, and `[]` for each item. `pods` are all pod specs,
`pod` and `template` the value that all pods or their templates have, `@NAME` an attribute of the registration. Texts
are parsed where a path goes on. Expected values are compared, or checked by tag: `!absent`, `!has`, `!lacks`, `!keys`,
`!count`, and `!grants` for an IAM policy: requests that it allows (`allow`) and does not (`deny`), each an action, a
resource, and perhaps values of condition keys.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from builders import PROVIDED, Data, errors
from builders import stack as smallest
from components_builders import Graph, Program, cluster, platform, tenancy
from repository import ROOT

from gpu_tenancy.engine.recording import UNKNOWN, Registration
from gpu_tenancy.model.source import read_file

_PROGRAMS: Final[Mapping[str, Callable[[Data], Program]]] = {
    "cluster": cluster,
    "platform": platform,
    "tenancy": tenancy,
}
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
# Inputs that are the name of a resource.
_NAMES: Final = ("name", "agentPoolName", "nodeGroupName", "addonName", "configName")
_ABSENT: Final = object()
_NONE: Final = object()  # a null that stays in the stack; a null of a patch removes the key
_WORDS: Final = {"with", "names", "none", "needs", "refused", "refused among others", "slow"}
_SELECTORS: Final = ("each ", "read ", "provider ")


@dataclass(frozen=True)
class Check:
    """A tagged value: an expectation other than equality."""

    kind: str
    value: Any = None

    def holds(self, found: Any) -> bool:
        if self.kind == "absent" or found is _ABSENT:
            return found is _ABSENT and self.kind in {"absent", "lacks"}
        if self.kind == "count":
            return len(found) == self.value
        if self.kind == "keys":
            return sorted(found) == sorted(self.value)
        if self.kind == "grants":
            rows = [(row, word == "allow") for word, requests in self.value.items() for row in requests]
            return all(allowed(found, *row) is may for row, may in rows)
        if self.kind == "has":
            return self._has(found)
        return not any(part in found for part in self._parts)

    def _has(self, found: Any) -> bool:
        if isinstance(self.value, dict):
            return cast("Data", self.value).items() <= found.items()
        return all(part in found for part in self._parts)

    @property
    def _parts(self) -> list[Any]:
        return cast("list[Any]", self.value) if isinstance(self.value, list) else [self.value]


class _Loader(yaml.SafeLoader):
    """YAML with tags for checks, `!unknown` for a value that only a cloud knows, and `!none` for a null of a stack."""


def _check(kind: str, loader: yaml.SafeLoader, node: yaml.Node) -> Check:
    if isinstance(node, yaml.MappingNode):
        return Check(kind, loader.construct_mapping(node, deep=True))
    if isinstance(node, yaml.SequenceNode):
        return Check(kind, loader.construct_sequence(node, deep=True))
    text = str(node.value)
    return Check(kind, text if cast("Any", node).style else yaml.safe_load(text))


def _unknown(loader: yaml.SafeLoader, node: yaml.Node) -> str:
    del loader, node
    return UNKNOWN


def _none(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    del loader, node
    return _NONE


for _kind in ("absent", "has", "lacks", "keys", "count", "grants"):
    _Loader.add_constructor(f"!{_kind}", partial(_check, _kind))
_Loader.add_constructor("!unknown", _unknown)
_Loader.add_constructor("!none", _none)


def patched(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return None if patch is _NONE else deepcopy(patch)
    result: Data = dict(cast("Data", value)) if isinstance(value, dict) else {}
    for key, inner in cast("Data", patch).items():
        if inner is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), inner)
    return result


@dataclass(frozen=True)
class Case:
    program: str
    sections: Data
    expected: Data

    def verify(self) -> Program | None:
        """Renders the stack and compares; returns the program, None for a stack that is refused."""
        for word in self.expected.keys() & {"refused", "refused among others"}:
            texts: str | list[str] = self.expected[word]
            _refused([texts] if isinstance(texts, str) else texts, errors(self.sections), every=word == "refused")
            return None
        program = _PROGRAMS[self.program](self.sections)
        for word, value in self.expected.items():
            _compare(program, word, value)
        return program


def _compare(program: Program, word: str, value: Any) -> None:
    match word:
        case "names":
            for kind, names in value.items():
                assert sorted(map(name_of, resources(program, kind))) == sorted(names), kind
        case "none":
            assert [one.urn for selector in value for one in resources(program, selector)] == []
        case "needs":
            for selector, needed in value.items():
                urns = {resources(program, other)[0].urn for other in needed}
                graph = Graph(program.rendered)
                assert all(urns <= graph.all_needs(one) for one in resources(program, selector)), selector
        case _:
            found = resources(program, word.removeprefix("each "))
            assert len(found) == 1 or (found and word.startswith("each ")), f"{len(found)} of {word}"
            for one in found:
                for path, wanted in value.items():
                    compare(f"{word}: {path}", look(one, path), wanted)


def compare(place: str, found: Any, wanted: Any) -> None:
    if isinstance(wanted, Check):
        assert wanted.holds(found), f"{place} is {found}, expected {wanted}"
    else:
        assert found == wanted, place


def _refused(texts: list[str], problems: list[str], *, every: bool) -> None:
    assert len(problems) == len(texts) or not every, problems
    for text in texts:
        assert any(all(part in problem for part in text.split(" ... ")) for problem in problems), problems


def name_of(one: Registration) -> str:
    inputs = cast("Data", one.inputs)
    name = inputs.get("metadata", {}).get("name")
    return str(name or next((inputs[key] for key in _NAMES if key in inputs), one.name))


def resources(program: Program, selector: str) -> list[Registration]:
    """The resources of a kind, and of a name or namespace and name."""
    reads = selector.startswith("read ")
    kind, _, pattern = selector.removeprefix("read ").removeprefix("provider ").partition(" ")
    return [
        one
        for one in program.rendered.registrations
        if one.custom
        and fnmatchcase(one.type.rpartition(":")[2], kind)
        and bool(one.external_id) == reads
        and (not pattern or any(fnmatchcase(name, pattern) for name in _known_as(one)))
    ]


def _known_as(one: Registration) -> Iterator[str]:
    inputs = cast("Data", one.inputs)
    yield one.name
    yield from (str(inputs[key]) for key in _NAMES if key in inputs)
    metadata = inputs.get("metadata", {})
    yield str(metadata.get("name"))
    yield f"{metadata.get('namespace', '')}/{metadata.get('name')}"


def look(one: Registration, path: str) -> Any:
    steps: list[tuple[str, str]] = _STEP.findall(path)
    (first, _), *rest = steps
    if first.startswith("@"):
        value: Any = getattr(one, first.removeprefix("@"))
        return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
    if first in {"pod", "pods", "template"}:
        templates = list(pod_templates(one.inputs))
        pods = [template["spec"] for template in templates]
        if first == "pods":
            return _follow(pods, rest)
        values = [_follow(start, rest) for start in (templates if first == "template" else pods)]
        return values[0] if all(value == values[0] for value in values) else values
    return _follow(one.inputs, steps)


def pod_templates(value: Any) -> Iterator[Data]:
    if isinstance(value, dict):
        entries = cast("Data", value)
        spec = entries.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            yield entries
        for inner in entries.values():
            yield from pod_templates(inner)
    for inner in cast("list[Any]", value) if isinstance(value, list) else ():
        yield from pod_templates(inner)


def _follow(value: Any, steps: list[tuple[str, str]]) -> Any:
    if not steps:
        return value
    (step, bracket), *rest = steps
    value = yaml.safe_load(value) if isinstance(value, str) else value
    if not step and not bracket:
        items = list(cast("Data", value).values()) if isinstance(value, dict) else cast("list[Any]", value)
        return [found for found in (_follow(item, rest) for item in items) if found is not _ABSENT]
    inner = _item(value, step or bracket)
    return _ABSENT if inner is _ABSENT else _follow(inner, rest)


def _item(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return cast("Data", value).get(key, _ABSENT)
    if not isinstance(value, list):
        return _ABSENT
    items = cast("list[Any]", value)
    name, is_match, wanted = key.partition("=")
    if is_match:
        return next((item for item in items if str(item.get(name)) == wanted), _ABSENT)
    return items[int(key)] if key.lstrip("-").isdigit() and int(key) < len(items) else _ABSENT


def _placed(place: str, patch: Any) -> Any:
    first, _, rest = place.partition(".")
    return {first: _placed(rest, patch) if rest else patch}


def cases(folder: Path) -> list[Any]:
    """The cases of all files of a folder as parameters of a test."""
    return [param for file in sorted(folder.glob("*.yaml")) for param in _of_file(file)]


def _of_file(file: Path) -> Iterator[Any]:
    table: Data = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    base: Any = table.get("stack", {})
    if isinstance(base, str):
        base = dict(read_file(ROOT / "stacks" / f"Pulumi.{base}.yaml").sections)
    sections = base if "cluster" in base else patched(smallest(), base)
    if "provides" not in sections["cluster"]:
        sections = {**sections, "cluster": {**PROVIDED, **sections["cluster"]}}
    places: dict[str, str] = table.get("places", {})
    rows: dict[str, Data] = table["cases"]
    for name, row in rows.items():
        made, expected = sections, dict[str, Any]()
        named: str | list[str] = row.get("with", [])
        for change in [named] if isinstance(named, str) else named:
            made = patched(made, table["with"][change])
        for key, value in row.items():
            if key in _WORDS or key[0].isupper() or key.startswith(_SELECTORS):
                expected[key] = value
            else:
                made = patched(made, _placed(places.get(str(key), str(key)), value))
        slow = [pytest.mark.slow] if expected.pop("slow", False) else []
        expected.pop("with", None)
        yield pytest.param(Case(table["program"], made, expected), id=f"{file.stem}: {name}", marks=slow)


# IAM policies as AWS evaluates them: an evaluator of its own, which shares nothing with the code that writes policies


_EVERYONE: Final = {"AWS": "*"}


def allowed(policy: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Whether a policy (a JSON document) allows an action such as `s3:GetObject` on an ARN.

    `context` has the request's values of condition keys. Raises KeyError for an element or operator unknown here.
    """
    effects = [
        statement["Effect"]
        for statement in json.loads(policy)["Statement"]
        if statement.get("Principal", _EVERYONE) == _EVERYONE and _is_about(statement, action, resource, context or {})
    ]
    return "Allow" in effects and "Deny" not in effects


def _is_about(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    if unknown := statement.keys() - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}:
        raise KeyError(*unknown)
    return (
        any(_matches_pattern(pattern.lower(), action.lower()) for pattern in _listed(statement["Action"]))
        and any(_matches_pattern(pattern, resource) for pattern in _listed(statement["Resource"]))
        and all(
            key in context and any(OPERATORS[name](value, context[key]) for value in _listed(values))
            for name, of_operator in statement.get("Condition", {}).items()
            for key, values in of_operator.items()
        )
    )


def _matches_pattern(pattern: str, text: str) -> bool:
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(char, re.escape(char)) for char in pattern), text) is not None


OPERATORS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "Bool": operator.eq,
    "StringEquals": operator.eq,
    "StringLike": _matches_pattern,
}


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
