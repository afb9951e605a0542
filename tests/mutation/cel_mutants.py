"""Mutants of the guards: one token, condition, validation or matched resource of a policy changed."""

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from components.guards import cel, sources
from gpu_tenancy.base.tables import read_table
from gpu_tenancy.model.plan.guards import GuardsPlan

FOLDER: Final = Path(sources.__file__).with_name("policies")
SHARED: Final = "shared"
_TOKEN: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\$\w+|\w+|==|!=|<=|>=|&&|\|\||.", re.DOTALL)
_TURNED: Final = {
    "==": "!=",
    "!=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "&&": "||",
    "||": "&&",
    "!": "",
    "true": "false",
    "false": "true",
}
_CALLED: Final = {"exists": "all", "all": "exists"}
_BEFORE, _AFTER = 24, 16


@dataclass(frozen=True, slots=True)
class GuardMutant:
    """One change of the guards.

    Attributes:
        name: file, place, the changed text with what is around it, and the change: the same as long as these are.
        policy: the policy that it changes; `shared` for what several policies read, and for a kind left out.
        source: the changed file.
        matching: whether it changes which requests the policy is about.
        without: group and kind of a kind that the guards do not know.
    """

    name: str
    policy: str
    source: Mapping[str, Any]
    matching: bool
    without: str = ""

    def spec(self, policy: str, guards: GuardsPlan, original: Mapping[str, Any]) -> dict[str, Any] | None:
        """The changed spec of a policy of a stack; None if it is the original."""
        with changed({self.policy: self.source}, self.without):
            spec = sources.spec(policy, guards)
        return None if spec == original else spec


@contextmanager
def changed(found: Mapping[str, Mapping[str, Any]], without: str = "") -> Generator[None]:
    """Has the guards be read from other sources, and without a kind."""
    read, kinds = vars(sources)["_source"], cel.KINDS

    def source(name: str, folder: str = "policies") -> Mapping[str, Any]:
        return found[name] if folder == "policies" and name in found else read(name, folder)

    rest = tuple(kind for kind in kinds if cel.key(kind) != without)
    with patch.multiple(sources, _source=source, KINDS=rest), patch.object(cel, "KINDS", rest):
        yield


def all_mutants() -> list[GuardMutant]:
    """The mutants of all policies, of what they share, and of the description of kinds."""
    found: list[GuardMutant] = []
    for file in sorted(FOLDER.glob("*.yaml")):
        source = read_table(file)
        found += _named(file.stem, source, _of_shared(source) if file.stem == SHARED else _of_policy(source))
    shared = read_table(FOLDER / f"{SHARED}.yaml")
    found += [
        GuardMutant(f"kinds: without {cel.key(kind)}", SHARED, shared, matching=True, without=cel.key(kind))
        for kind in cel.KINDS
    ]
    return found


_Change = tuple[tuple[str | int, ...], str, Any]
"""Path of the changed value in the file, what changes, and the new value; None removes it."""


def _named(stem: str, source: Mapping[str, Any], changes: Iterator[_Change]) -> Iterator[GuardMutant]:
    seen: dict[str, int] = {}
    for path, what, value in changes:
        name = f"{stem} {'.'.join(map(str, path))}: {what}"
        seen[name] = seen.get(name, 0) + 1
        found = deepcopy(dict(source))
        part: Any = found
        for key in path[:-1]:
            part = part[key]
        if value is None:
            del part[path[-1]]
        else:
            part[path[-1]] = value
        matching = path[0] in {"resources", "conditions"}
        yield GuardMutant(name if seen[name] == 1 else f"{name} ({seen[name]})", stem, found, matching)


def _of_shared(source: Mapping[str, Any]) -> Iterator[_Change]:
    """Changes of what guards read; what only the defaults read is left out."""
    files = [file.read_text(encoding="utf-8") for file in FOLDER.glob("*.yaml") if file.stem != SHARED]
    read = re.sub(r"#.*", "", "\n".join(files))
    sections = ("conditions", "expressions", "variables")
    texts = {(section, name): text for section in sections for name, text in source[section].items()}
    used: dict[tuple[str, str], str] = {}
    while more := {key: text for key, text in texts.items() if key not in used and re.search(rf"\b{key[1]}\b", read)}:
        used |= more
        read += " ".join(more.values())
    for key, text in texts.items():
        if key in used:
            yield from _of_text(key, text)


def _of_policy(source: Mapping[str, Any]) -> Iterator[_Change]:
    for index, rule in enumerate(source["resources"]):
        yield from _of_resources(("resources", index), rule, alone=len(source["resources"]) == 1)
    for index, condition in enumerate(source["conditions"]):
        yield ("conditions", index), f"{condition} left out", None
    if "onlyIf" in source:
        yield ("onlyIf",), "left out", "true"
        yield from _of_text(("onlyIf",), source["onlyIf"])
    for name, text in source.get("variables", {}).items():
        yield from _of_text(("variables", name), text)
    for name, text in source["violations"].items():
        if len(source["violations"]) > 1:
            yield ("violations", name), "left out", None
        yield from _of_text(("violations", name), text)


def _of_resources(path: tuple[str | int, ...], rule: Mapping[str, Any], *, alone: bool) -> Iterator[_Change]:
    if not alone:
        yield path, "left out", None
    for field in ("names", "groups"):
        for at, value in enumerate(rule.get(field, [])):
            if len(rule[field]) > 1:
                yield (*path, field, at), f"{value} left out", None
    operations: list[str] = rule.get("operations", ["CREATE", "UPDATE"])
    for operation in operations if len(operations) > 1 else []:
        yield (*path, "operations"), f"{operation} left out", [one for one in operations if one != operation]


def _of_text(path: tuple[str, ...], text: str) -> Iterator[_Change]:
    found = [*_TOKEN.finditer(text)]
    tokens = [match.group() for match in found]
    solid = [index for index, token in enumerate(tokens) if token.strip()]
    for at, index in enumerate(solid):
        before = [tokens[other] for other in solid[max(0, at - 2) : at]]
        after = tokens[solid[at + 1]] if at + 1 < len(solid) else ""
        for new in _replaced(tokens[index], before, after):
            start, end = found[index].span()
            around = " ".join(f"{text[:start][-_BEFORE:]}«{tokens[index]}»{text[end:][:_AFTER]}".split())
            yield path, f"{around} → {new or 'nothing'}", f"{text[:start]}{new}{text[end:]}"


def _replaced(token: str, before: list[str], after: str) -> Iterator[str]:
    """What a token becomes, each alone."""
    last = before[-1] if before else ""
    if token in _TURNED:
        yield _TURNED[token]
    elif token in _CALLED and last == "." and after == "(":
        yield _CALLED[token]
    elif token.isdigit():
        if not (last == "[" and after == "]") and last != ".":
            yield str(int(token) + 1)
    elif token.startswith("'"):
        # Texts with spaces, and parts of sums, are parts of messages.
        if len(token) > 2 and " " not in token and "+" not in {last, after}:
            yield f"{token[:-1]}_'"
    elif token.startswith("$") and last == "in":
        yield "[]"
    elif before[-2:] == [".", "?"] and after != "(":
        yield f"{token}_"
