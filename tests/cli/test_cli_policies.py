"""`tenancy preview --policy`, with our packs and a foreign pack that uses Pulumi's own SDK."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_builders import Project, small, tenancy
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.packs.configuration import LEVELS, PackChoice, RuleConfig, read_config, reconciled, violations
from gpu_tenancy.packs.evaluation import evaluate, resource_requests, stack_request, struct
from gpu_tenancy.packs.findings import Finding

pytestmark = pytest.mark.process

FOREIGN = """
from pulumi_policy import *

def named(args, report):
    account = args.resource_type == "kubernetes:core/v1:ServiceAccount"
    if account and args.props["metadata"]["name"] in args.get_config()["names"]:
        report(f"is called {args.props['metadata']['name']}")

def counted(args, report):
    pods = [each for each in args.resources if each.resource_type == "kubernetes:batch/v1:Job"]
    if len(pods) > args.get_config()["most"]:
        report(f"{len(pods)} jobs, the first under {pods[0].parent.resource_type}", pods[0].urn)

def labelled(args):
    if args.resource_type == "kubernetes:core/v1:ServiceAccount":
        args.props["metadata"]["labels"] = {"mended": "yes"}
        return args.props

PolicyPack("theirs", [
    ResourceValidationPolicy("account-name", "Accounts have other names.", [named], severity=Severity.LOW,
        config_schema=PolicyConfigSchema({"names": {"type": "array", "items": {"type": "string"}, "default": []}})),
    StackValidationPolicy("few-jobs", "There are few jobs.", counted, EnforcementLevel.MANDATORY,
        config_schema=PolicyConfigSchema({"most": {"type": "integer", "minimum": 0, "default": 99}})),
    ResourceValidationPolicy("account-labels", "Accounts have labels.", remediate=labelled),
])
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "__main__.py").write_text(FOREIGN, encoding="utf-8")
    (folder / "PulumiPolicy.yaml").write_text("{runtime: python, version: 2.0.0}", encoding="utf-8")
    return folder


def config(folder: Path, **rules: object) -> Path:
    file = folder.parent / "config.json"
    file.write_text(json.dumps({name.replace("_", "-"): rule for name, rule in rules.items()}), encoding="utf-8")
    return file


# The command.


def test_a_stack_that_keeps_all_mandatory_rules_is_fine(project: Project, theirs: Path) -> None:
    seen = tenancy("preview", "good", "--policy", theirs, project=project.folder)
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert seen.stdout.endswith("policies: 3 passed, no mandatory violations (theirs 0.0.1)\n")


def test_a_mandatory_violation_is_exit_code_3_and_comes_first(project: Project, theirs: Path) -> None:
    file = config(theirs, few_jobs={"most": 0}, account_name={"names": ["workload"]})
    seen = tenancy("preview", "good", "--policy", f"{theirs}={file}", project=project.folder)
    assert (seen.exit_code, seen.stderr) == (3, "")
    lines = seen.stdout[seen.stdout.index("✗ 1 jobs") :].splitlines()
    assert lines[:2] == ["✗ 1 jobs, the first under gpu-tenancy:tenancy:TrainingJob", "  few-jobs, unspecified, theirs"]
    assert lines[2:4] == ["! is called workload", "  account-name, low, theirs"]
    assert lines[-1] == "policies: 1 passed, 1 mandatory violation, 2 advisory (theirs 0.0.1)"


@pytest.mark.slow
def test_shipped_packs_use_the_settings_of_the_environment(project: Project) -> None:
    project.write("named", small(environment="prod"))
    seen = tenancy("preview", "named", "--policy", "workloads", "--policy", "clouds", project=project.folder)
    assert seen.exit_code in {0, 3}
    assert "gpu-workloads 0.1.0, " in seen.stdout
    assert "(gpu-workloads 0.1.0, gpu-clouds 0.1.0)" in seen.stdout


def test_a_breach_of_our_own_pack_names_place_value_and_mend(project: Project, theirs: Path) -> None:
    file = config(theirs, image_pinned={"enforcementLevel": "mandatory", "mutable": ["*"]})
    seen = tenancy("preview", "good", "--policy", f"workloads={file}", project=project.folder)
    assert seen.exit_code == 3
    assert "✗ Deployment vision/api, container server: " in seen.stdout
    words = " ".join(seen.stdout.split())
    assert "has a mutable tag; set a version tag or a digest, in `image` of the job or server in the stack" in words
    assert "  image-pinned, medium, gpu-workloads" in seen.stdout


def test_invalid_configuration_reports_all_problems(project: Project, theirs: Path) -> None:
    file = config(theirs, few_job="mandatory", few_jobs={"most": -1}, account_name={"names": [1]})
    seen = tenancy("preview", "good", "--policy", f"{theirs}={file}", project=project.folder)
    assert seen.exit_code == 1
    words = " ".join(seen.stderr.split())
    assert "unknown rule 'few-job'; did you mean 'few-jobs'?" in words
    assert "few-jobs.most: -1 must be at least 0" in words
    assert "account-name.names.0: 1 must be of type string" in words


def test_a_setting_that_the_pack_rejects_shows_its_message(project: Project, theirs: Path) -> None:
    file = config(theirs, image_pinned={"digest": True})
    seen = tenancy("preview", "good", "--policy", f"workloads={file}", project=project.folder)
    assert seen.exit_code == 1
    assert "rejected its configuration: image-pinned.digest: unknown setting; settings of this rule: " in " ".join(
        seen.stderr.split()
    )


def test_a_missing_pack_is_reported_first(project: Project) -> None:
    seen = tenancy("preview", "good", "--policy", "workload", project=project.folder)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "policy pack 'workload' does not exist; specify its folder, or one of: clouds, workloads" in seen.stderr


def test_a_remediation_is_reported_and_its_result_is_evaluated(project: Project, theirs: Path) -> None:
    file = config(theirs, account_labels="remediate", all="advisory")
    seen = tenancy("preview", "good", "--policy", f"{theirs}={file}", project=project.folder)
    assert seen.exit_code == 0
    assert seen.stdout.count(": remedy applied") == 2
    assert seen.stdout.endswith("policies: 2 passed, no mandatory violations, 2 fixed by remediation (theirs 0.0.1)\n")


# What is asked.

URN = "urn:pulumi:s::p::"


def registration(name: str, type_: str = "kubernetes:core/v1:ConfigMap", **more: Any) -> Registration:
    given: dict[str, Any] = {"custom": True, "inputs": {}, **more}
    return Registration(f"{URN}{type_}::{name}", type_, name, **given)


def test_resources_are_analyzed_as_by_the_engine() -> None:
    provider = registration("k8s", "pulumi:providers:kubernetes", inputs={"namespace": "ml"})
    first = registration("z-first")
    second = registration(
        "a-second",
        inputs={"data": {"key": "hunter2", "list": ["a", "b"]}, "__defaults": []},
        secret_paths=(("data", "key"), ("data", "list", 1), ("data",)),
        dependencies=(first.urn,),
        property_dependencies={"data": (first.urn,)},
        provider=f"{provider.urn}::id-1",
        protect=True,
        ignore_changes=("data.list",),
    )
    only_read = registration("read", external_id="ml/read")
    stack = stack_request(Rendered("p", "s", (second, first, provider, only_read), {}))
    root = f"{URN}pulumi:pulumi:Stack::p-s"
    asked = list(resource_requests(stack))
    assert [request.name for request in asked] == ["p-s", "z-first", "k8s", "a-second"]
    last = asked[-1]
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
    inner = {"key": {**secret, "value": "hunter2"}, "list": ["a", {**secret, "value": "b"}]}
    assert MessageToDict(last.properties) == {"data": {**secret, "value": inner}}
    assert (last.options.protect, list(last.options.ignoreChanges), last.options.parent) == (True, ["data.list"], root)
    assert (last.provider.name, MessageToDict(last.provider.properties)) == ("k8s", {"namespace": "ml"})
    (held,) = [resource for resource in stack.resources if resource.name == "a-second"]
    assert (held.parent, list(held.dependencies)) == (root, [first.urn])
    assert list(held.propertyDependencies["data"].urns) == [first.urn]
    assert held.properties == last.properties == struct(second)


def test_a_third_party_pack_gets_parents_and_the_whole_stack(theirs: Path) -> None:
    owner = registration("owner", "my:index:Owner", custom=False)
    work = registration("work", "kubernetes:batch/v1:Job", parent=owner.urn)
    rendered = Rendered("p", "s", (owner, work), {})
    (judged,) = evaluate(rendered, [PackChoice(theirs, config(theirs, few_jobs={"most": 0}))])
    assert judged.findings == (
        Finding("theirs", "few-jobs", "broken", "unspecified", work.urn, "1 jobs, the first under my:index:Owner"),
    )


# How a pack is configured.


def info() -> wire.AnalyzerInfo:
    info = wire.AnalyzerInfo(name="test", supportsConfig=True)
    one = info.policies.add(name="one", enforcementLevel=wire.ADVISORY)
    one.configSchema.properties.update({"most": {"type": "integer", "default": 3}, "names": {"type": "array"}})
    info.policies.add(name="two", enforcementLevel=wire.MANDATORY)
    return info


def told(given: dict[str, RuleConfig]) -> dict[str, tuple[int, object]]:
    request = reconciled(info(), given, "config.json")
    return {
        name: (rule.enforcementLevel, MessageToDict(rule.properties)) for name, rule in request.policyConfig.items()
    }


def test_every_rule_gets_its_defaults() -> None:
    assert told({}) == {"one": (wire.ADVISORY, {"most": 3.0}), "two": (wire.MANDATORY, {})}


def test_all_sets_the_level_of_rules_that_are_not_named() -> None:
    given = {"all": RuleConfig(wire.DISABLED), "one": RuleConfig(wire.MANDATORY, {"most": 5})}
    assert told(given) == {"one": (wire.MANDATORY, {"most": 5.0}), "two": (wire.DISABLED, {})}
    assert told({"all": RuleConfig(wire.DISABLED), "one": RuleConfig(None, {"names": ["a"]})})["one"] == (
        wire.DISABLED,
        {"most": 3.0, "names": ["a"]},
    )


def test_a_file_has_levels_objects_and_what_only_the_cli_opens(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"one": "remediate", "two": {"enforcementLevel": "disabled", "x": 1}, "environments": ["a/b"]}')
    assert read_config(file) == {
        "one": RuleConfig(LEVELS["remediate"]),
        "two": RuleConfig(LEVELS["disabled"], {"x": 1}),
    }
    file.write_text("  \n")
    assert read_config(file) == {}
    file.write_text("[1]")
    with pytest.raises(ConsoleError, match="not a JSON object; use rule names as keys"):
        read_config(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b'{"one": {"most": NaN}}', "not valid JSON: NaN is not a JSON number", id="number"),
        pytest.param(b'{"one": "\xff"}', "not valid JSON: .*; fix the JSON syntax", id="encoding"),
        pytest.param(b'{"environments": "a/b"}', "environments: not a list of strings; list names of",
            id="environments"),
        pytest.param(b'{"one": {"enforcementLevel": null}}', "one: None is not an enforcement level; set one of",
            id="level"),
        pytest.param(b'{"one": "strict"}', "one: 'strict' is not an enforcement level; set one of advisory, mandatory",
            id="word"),
        pytest.param(b'{"one": 3}', "one: 3 is not a level or an object; set a level, or an object with settings",
            id="form"),
    ],
)  # fmt: skip
def test_a_file_that_the_cli_refuses_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ConsoleError, match=words):
        read_config(file)


SCHEMA = yaml.safe_load("""
type: object
required: [a]
additionalProperties: false
properties:
  a: {type: integer, minimum: 1, maximum: 9}
  b: {type: string, enum: [x, yy], minLength: 1, pattern: "^[xy]+$"}
  c: {type: array, items: {type: [string, "null"]}, maxItems: 2}
  d: {type: object, additionalProperties: {anyOf: [{type: number, exclusiveMinimum: 0}, {type: boolean}]}}
  f: {type: string, minLength: 2, maxLength: 15, format: ipv4}
  g: {oneOf: [{type: number}, {type: integer}, {const: x}], multipleOf: 2, not: {enum: [6]}}
""")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1, "b": "yy", "c": ["x", None], "d": {"k": 0.5, "l": True}}, []),
        ({"a": 2.0}, []),
        ({}, ["a: required setting is missing"]),
        ({"a": 0}, ["a: 0 must be at least 1"]),
        ({"a": 10}, ["a: 10 must be at most 9"]),
        ({"a": True}, ["a: True must be of type integer"]),
        ({"a": 1.5}, ["a: 1.5 must be of type integer"]),
        ({"a": 1, "b": "y"}, ["b: 'y' must be one of x, yy"]),
        (
            {"a": 1, "c": ["x", 2, "z"]},
            ["c: ['x', 2, 'z'] must have at most 2 items", "c.1: 2 must be of type string or null"],
        ),
        ({"a": 1, "d": {"k": 0}}, ["d.k: 0 matches none of the allowed types"]),
        ({"a": 1, "e": 1}, ["e: unknown setting"]),
        ({"a": 1, "e": 1, "h": 1}, ["e: unknown setting", "h: unknown setting"]),
        ({"a": 1, "f": "x"}, ["f: 'x' must have at least 2 characters", "f: 'x' must match ipv4"]),
        ({"a": 1, "f": "1.2.3.4"}, []),
        ({"a": 1, "g": 4}, ["g: 4 matches more than one of the allowed types"]),
        ({"a": 1, "g": 2.5}, ["g: 2.5 is not a multiple of 2"]),
        ({"a": 1, "b": 1, "c": 1}, ["b: 1 must be of type string", "c: 1 must be of type array"]),
        ([], ["value: [] must be of type object"]),
    ],
)  # fmt: skip
def test_a_value_is_held_against_its_schema(value: object, words: list[str]) -> None:
    assert violations(SCHEMA, value) == words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        pytest.param({"type": "text"}, "'text' is not valid under any of the given schemas", id="type"),
        pytest.param({"pattern": "("}, "'(' is not a 'regex'", id="pattern"),
        pytest.param(
            {"$ref": "https://example.org/schema.json"}, "Unresolvable: https://example.org/schema.json", id="ref"
        ),
    ],
)
def test_an_invalid_schema_is_a_violation_and_nothing_is_fetched(schema: dict[str, object], words: str) -> None:
    assert violations(schema, "x", "rule.key") == [
        f"rule.key: the policy's schema is invalid: {words}; report it to the pack owner"
    ]
