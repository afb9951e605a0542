"""Errors of stacks (`refused.yaml`), their form, the schema for editors, and wrong forms of each key."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final, cast

import pytest
import yaml
from builders import Data, base, errors, job, patched, pool, refusals, server, stack, team
from jsonschema import Draft202012Validator
from repository import ROOT

from gpu_tenancy.base.problems import Path, Problem, StackError, dotted, listed, nearest, unknown
from gpu_tenancy.cli.stack_reference import Reference
from gpu_tenancy.model.load import draft, load
from gpu_tenancy.model.schema import file_schema, known_keys, meaning
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.model.spec import NAMESPACE, Stack

TABLE = refusals()


def cases(kind: str) -> list[Any]:
    return [pytest.param(name, case, id=f"{name}: {case}") for name in TABLE for case in TABLE[name].get(kind, ())]


@pytest.mark.parametrize("name", TABLE)
def test_the_stack_that_cases_change_is_valid(name: str) -> None:
    assert errors(base(name)) == []


@pytest.mark.parametrize(("name", "case"), cases("refused"))
def test_a_stack_is_refused_with_place_rule_and_fix(name: str, case: str) -> None:
    refused = TABLE[name]["refused"][case]
    problems = errors(patched(base(name), refused["patch"]))
    if "error" in refused:
        assert problems == [refused["error"]]
    elif "only" in refused:
        assert [problem[: len(refused["only"])] for problem in problems] == [refused["only"]]
    elif "errors" in refused:
        assert problems == refused["errors"]
    else:
        assert any(problem.startswith(refused["begins"]) for problem in problems), problems


@pytest.mark.parametrize(("name", "case"), cases("accepted"))
def test_a_stack_is_accepted(name: str, case: str) -> None:
    assert errors(patched(base(name), TABLE[name]["accepted"][case])) == []


# How errors are written.


def one(sections: Data) -> str:
    """The only error: a second one would be a consequence of the first."""
    (problem,) = errors(sections)
    return problem


def test_long_lists_of_names_show_the_nearest_five() -> None:
    flavors = [f"flavor-{letter}" for letter in "abcdefgh"]
    assert listed("flavor-h", flavors) == ", ".join(flavors)
    assert unknown("flavor", "flavour-h", flavors) == (
        "unknown flavor 'flavour-h' (did you mean 'flavor-h'?)",
        f"use one of: {', '.join(flavors)}",
    )
    many = [f"m{number}" for number in range(130)]
    shown, _, rest = listed("m77", many, "tenancy catalogue machines").partition(", …")
    assert shown.split(", ")[0] == "m77"
    assert len(shown.split(", ")) == 5
    assert rest == " (130 in total; list them with: `tenancy catalogue machines`)"
    assert listed("m77", many).endswith(", … (130 in total)")
    assert nearest("m777", many).startswith("did you mean 'm77'? Known: m77, ")


def test_an_unknown_name_without_candidates_is_reported() -> None:
    assert nearest("a", []) == "none exist"
    assert unknown("team", "a", []) == ("unknown team 'a'", "remove it: no team is defined")
    assert nearest("x", ["a100", "h100"]) == "known: a100, h100"


@pytest.mark.parametrize(
    ("cloud", "command"),
    [("aws", "tenancy catalogue machines --cloud aws"), (None, "tenancy catalogue machines")],
    ids=["aws", "existing"],
)
def test_unknown_machine_type_names_the_nearest(cloud: str | None, command: str) -> None:
    cluster = {"cloud": "existing", "provider": cloud} if cloud else {"cloud": "existing"}
    message = one(stack(cluster=cluster, pools={"h100": pool("p5.48xlarg")}, teams={}))
    assert message.startswith("pools.h100.machine: unknown machine type 'p5.48xlarg' (did you mean 'p5.48xlarge'?); ")
    assert message.endswith(f"; list them with: `{command}`), or add it under machines")
    assert len(message) < 300


# The schema for editors.

STACK_FILES = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def complaints(content: Any) -> list[str]:
    validator = cast("Any", Draft202012Validator(file_schema()))
    return [error.message for error in validator.iter_errors(content)]


def as_file(sections: Data) -> Data:
    return {"config": {f"{NAMESPACE}:{key}": value for key, value in sections.items()}}


def test_the_schema_itself_is_one() -> None:
    cast("Any", Draft202012Validator).check_schema(file_schema())


@pytest.mark.parametrize("file", STACK_FILES, ids=lambda file: file.stem)
def test_the_schema_accepts_every_stack_of_the_repository(file: FilePath) -> None:
    assert complaints(yaml.safe_load(file.read_text())) == []


def test_schema_accepts_secrets_and_keys_of_other_programs() -> None:
    secret = {"secure": "AAAB"}
    hidden = server(env={"TOKEN": secret}, args=["--key", secret], command=[secret], image=secret)
    trained = job(env={"TOKEN": secret})
    values = {"kueue": {"values": {"managerConfig": {"controllerManagerConfigYaml": secret}}}}
    content = as_file(stack(teams={"a": team(serving={"api": hidden}, training={"fit": trained})}, operators=values))
    content["config"]["aws:region"] = "eu-west-1"
    assert complaints(content) == []


@pytest.mark.parametrize("shown", [{"teams": {"secure": "AAAB"}}, {"environment": {"secure": "AAAB"}}])
def test_the_schema_refuses_secrets_that_objects_would_show(shown: Data) -> None:
    assert complaints(as_file(stack(**shown))) != []


@pytest.mark.parametrize(
    "sections",
    [
        stack(teem={}),
        stack(teams={"a": team(teir="critical")}),
        stack(teams={"a": team(gpus={"h100": {"guarantee": 1}})}),
        stack(teams={"a": team(compute={"requests": {"memory": "5K"}})}),
        {"teams": {}},
    ],
    ids=["section", "key", "key below", "suffix that no quantity has", "missing pools"],
)
def test_the_schema_refuses_what_the_program_refuses(sections: Data) -> None:
    assert complaints(as_file(sections)) != []


def test_every_key_has_a_description() -> None:
    assert [place for place, schema in properties(file_schema(), "") if "description" not in schema] == []


def properties(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property with its place, without `secure: …`, which are Pulumi's own."""
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            yield from properties(item, place)
    if not isinstance(schema, dict):
        return
    entries = cast("dict[str, Any]", schema)
    for key, value in entries.get("properties", {}).items():
        if key not in {"secure", "config"}:
            yield f"{place}.{key}", resolved(value)
    for key, value in entries.items():
        yield from properties(value, f"{place}.{key}")


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A property's own schema, or the referenced one, as editors show it."""
    branches = [schema, *schema.get("anyOf", []), *schema.get("allOf", [])]
    names = [branch["$ref"].rpartition("/")[2] for branch in branches if "$ref" in branch]
    described = [each for each in (schema, *(file_schema()["$defs"][name] for name in names)) if "description" in each]
    return described[0] if described else schema


def test_the_words_of_an_error_come_from_the_schema() -> None:
    assert "gpus" in known_keys(("teams", "any"))
    assert known_keys(("teams", "any", "containers", "max")) == ["cpu", "gpu", "memory"]
    assert meaning(("pools", "any", "nodes", "max")) == "Maximum number of nodes with an autoscaler"
    assert meaning(("nothing", "there")) == ""


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
