from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders import Data, job, server, stack, team
from jsonschema import Draft202012Validator
from repository import ROOT

from gpu_tenancy.model.schema import file_schema, known_keys, meaning
from gpu_tenancy.model.spec import NAMESPACE

STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def complaints(content: Any) -> list[str]:
    validator = cast("Any", Draft202012Validator(file_schema()))
    return [error.message for error in validator.iter_errors(content)]


def as_file(sections: Data) -> Data:
    return {"config": {f"{NAMESPACE}:{key}": value for key, value in sections.items()}}


def test_the_schema_itself_is_one() -> None:
    cast("Any", Draft202012Validator).check_schema(file_schema())


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_the_schema_accepts_every_stack_of_the_repository(file: Path) -> None:
    assert complaints(yaml.safe_load(file.read_text())) == []


def test_the_schema_accepts_secrets_where_the_state_hides_them_and_other_programs_keys() -> None:
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
    """Every property with its place; those of `secure: …` are Pulumi's own."""
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
    """A property's own words, or those of what it refers to, as editors show them."""
    branches = [schema, *schema.get("anyOf", []), *schema.get("allOf", [])]
    names = [branch["$ref"].rpartition("/")[2] for branch in branches if "$ref" in branch]
    described = [each for each in (schema, *(file_schema()["$defs"][name] for name in names)) if "description" in each]
    return described[0] if described else schema


def test_the_words_of_an_error_come_from_the_schema() -> None:
    assert "gpus" in known_keys(("teams", "any"))
    assert known_keys(("teams", "any", "containers", "max")) == ["cpu", "gpu", "memory"]
    assert meaning(("pools", "any", "nodes", "max")) == "Maximum number of nodes with an autoscaler"
    assert meaning(("nothing", "there")) == ""
