"""Wrong forms of each key of a stack: accepted, or refused at their place after few rounds of validation."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final, cast

import pytest
import yaml
from builders import Data, stack
from jsonschema import Draft202012Validator
from repository import ROOT

from gpu_tenancy.base.problems import Path, Problem, StackError, dotted
from gpu_tenancy.cli.stack_reference import Reference
from gpu_tenancy.model.load import draft, load
from gpu_tenancy.model.schema import file_schema
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.model.spec import NAMESPACE, Stack

STACKS: Final = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
MOST_ROUNDS: Final = 8  # one for each level at which a placeholder is wrong too
_PLAIN: Final = ("text", "", 7, -1, 1.5, True, None)
FORMS: Final[tuple[Any, ...]] = (*_PLAIN, [], ["text"], [[]], [{}], {}, {"x": {}}, {"x": 7})
SOME: Final = 16  # the quick layer takes one of so many, other forms at each place


class Place:
    """A place of the schema, with the sections and constants around it that make the rest of the stack valid."""

    def __init__(self, path: Path, schema: Data, around: tuple[tuple[Path, Data], ...]) -> None:
        self.path, self.schema, self.around = path, schema, around

    def forms(self) -> list[Any]:
        """Forms of any kind, and the names of the branches of a union as plain values."""
        words = {key["const"] for branch in branches(self.schema) for key in keys(branch).values() if "const" in key}
        return [*FORMS, *sorted(words)]

    def written(self, form: Any) -> Data:
        sections = stack()
        for path, section in self.around:
            put(sections, path, deepcopy(section))
        put(sections, self.path, deepcopy(form))
        return sections

    def named_by(self, problem: Problem) -> bool:
        """Whether a problem is at the place; that of a union's key, or of `secure`, is at what is around it."""
        around = self.path[:-1] if "const" in self.schema or self.path[-1] == "secure" else self.path
        return problem.path[: len(around)] == around

    def accepts(self, form: Any) -> bool:
        validator: Any = Draft202012Validator({**self.schema, "$defs": DEFINITIONS})
        return validator.is_valid(form)


SCHEMA: Final = file_schema()
DEFINITIONS: Final[Mapping[str, Data]] = SCHEMA["$defs"]


def branches(schema: Data) -> Iterator[Data]:
    if "$ref" in schema:
        yield from branches(DEFINITIONS[schema["$ref"].rpartition("/")[2]])
    elif "anyOf" in schema or "oneOf" in schema:
        for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from branches(branch)
    else:
        yield schema


def keys(branch: Data) -> Data:
    return branch.get("properties", {})


def put(sections: Any, path: Path, value: Any) -> None:
    """Writes a value; mappings on the way are kept, and lists are replaced."""
    for part, below in zip(path, (*path[1:], None), strict=True):
        new: Any = value if below is None else [None] if isinstance(below, int) else {}
        old = cast("Data", sections).get(cast("str", part)) if isinstance(sections, dict) else None
        if below is None or not isinstance(old, type(new)):
            sections[part] = new
        sections = cast("Any", sections[part])


@cache
def places() -> tuple[Place, ...]:
    """Each key of each section once, and the values of lists and mappings."""
    configs = [
        {key.removeprefix(f"{NAMESPACE}:"): value for key, value in yaml.safe_load(file.read_text())["config"].items()}
        for file in STACKS
    ]
    reference = Reference(SCHEMA, configs)
    names = {id(definition): name for name, definition in DEFINITIONS.items()}
    waiting = [Place((key,), dict(schema), ()) for key, schema in reference.top.items()]
    seen: set[int] = set()
    for place in waiting:
        for branch in branches(place.schema):
            if id(branch) in seen:
                continue
            seen.add(id(branch))
            section = names.get(id(branch), "")
            required = {key: reference.examples.get((section, key)) for key in branch.get("required", ())}
            constant = {key: schema["const"] for key, schema in keys(branch).items() if "const" in schema}
            around = (*place.around, (place.path, {**required, **constant}))
            of_names = [branch.get("additionalProperties"), *branch.get("patternProperties", {}).values()]
            below: list[tuple[str | int, Any]] = [
                *keys(branch).items(),
                *(("x", schema) for schema in of_names),
                (0, branch.get("items")),
            ]
            found = [(key, cast("Data", schema)) for key, schema in below if isinstance(schema, dict)]
            waiting += [Place((*place.path, key), schema, around) for key, schema in found]
    return tuple(waiting)


def problems_of(sections: Data) -> tuple[Problem, ...]:
    try:
        load(Source(sections))
    except StackError as error:
        return error.problems
    return ()


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the validations of a stack, and ends them above the bound."""
    counted, validate = [0], Stack.model_validate

    def bounded(data: Any) -> Stack:
        counted[0] += 1
        assert counted[0] <= MOST_ROUNDS, "the validation of a stack does not end"
        return validate(data)

    monkeypatch.setattr(Stack, "model_validate", bounded)
    return counted


def wrong_forms(*, every: int) -> Iterator[tuple[Place, Any]]:
    for at, place in enumerate(places()):
        forms = place.forms()
        yield from (
            (place, form) for number, form in enumerate(forms) if number >= len(FORMS) or (at + number) % every == 0
        )


@pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.slow)])
def test_wrong_forms_are_refused_at_their_place(every: int, rounds: list[int]) -> None:
    silent: list[str] = []
    for place, form in wrong_forms(every=every):
        rounds[0] = 0
        problems = problems_of(place.written(form))
        if not any(place.named_by(problem) for problem in problems) and not place.accepts(form):
            silent.append(f"{dotted(place.path)}: {form!r}: {problems}")
    assert silent == []


def written(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    known: Any = value
    below: Any = known.items() if isinstance(value, dict) else enumerate(known) if isinstance(value, list) else ()
    for key, entry in below:
        yield from written(entry, (*path, key))


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
@pytest.mark.parametrize("every", [SOME, pytest.param(1, marks=pytest.mark.slow)])
def test_errors_silence_what_depends_on_them(every: int, file: FilePath) -> None:
    """The stack is valid, so each other problem follows from the wrong form."""
    sections, others = read_file(file).sections, list[str]()
    for path in list(written(sections))[::every]:
        changed = deepcopy(sections)
        around: Any = changed
        for part in path[:-1]:
            around = around[part]
        around[path[-1]] = [[]]
        problems = problems_of(changed)
        if problems and draft(Source(changed)).problems:
            others += [
                f"{dotted(path)}: {problem}"
                for problem in problems
                if any(one != other for one, other in zip(problem.path, path, strict=False))
            ]
    assert others == []
