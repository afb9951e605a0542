"""Errors of stacks (`refused.yaml`), their form, and the schema for editors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders import Data, base, errors, job, patched, pool, refusals, server, stack, team
from jsonschema import Draft202012Validator
from repository import ROOT

from gpu_tenancy.base.problems import listed, nearest, unknown
from gpu_tenancy.model.schema import file_schema, known_keys, meaning
from gpu_tenancy.model.spec import NAMESPACE

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


def test_a_valid_stack_has_no_errors() -> None:
    assert errors(stack()) == []


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
def test_the_schema_accepts_every_stack_of_the_repository(file: Path) -> None:
    assert complaints(yaml.safe_load(file.read_text())) == []


def test_schema_accepts_secrets_and_keys_of_other_programs() -> None:
    secret = {"secure": "AAAB"}
    hidden = server(env={"TOKEN": secret}, args=["--key", secret], command=[secret], image=secret)
    trained = job(env={"TOKEN": secret})
    values = {"kueue": {"values": {"managerConfig": {"controllerManagerConfigYaml": secret}}}}
    sections = stack(teams={"a": team(serving={"api": hidden}, training={"fit": trained})}, operators=values)
    content = as_file(sections)
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
    named = entries.get("properties", {})
    for key, value in named.items():
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
