"""The plugin for programs in other languages: its schema, components, unknown and secret inputs, errors."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import grpc
import psutil
import pytest
from builders import PROVIDED, Data, errors, job, server, team
from builders import stack as stack_of_file
from package_schema import misfits
from plugin_process import BUCKET, PLUGIN, PROJECT, STACK, Constructed, Plugin, output, plugin, secret
from rendered_stacks import stack_of_repository
from repository import ROOT
from starts import GUARD

from components.provider.inputs import filled, property_path
from components.provider.package import TENANCY_SECTIONS
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.source import read_file
from gpu_tenancy.model.spec import Stack

pytestmark = [pytest.mark.process, pytest.mark.slow]

PROVIDER: Final = f"urn:pulumi:{STACK}::{PROJECT}::pulumi:providers:kubernetes::gpus"
STACKS: Final = sorted(file.name.split(".")[1] for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))


@pytest.fixture(scope="module")
def running() -> Iterator[Plugin]:
    with plugin() as started:
        yield started


@pytest.fixture(scope="module")
def package(running: Plugin) -> Any:
    return json.loads(running.schema())


def sections_of(name: str) -> Data:
    return dict(read_file(ROOT / "stacks" / f"Pulumi.{name}.yaml").sections)


def for_tenancy(sections: Data) -> Data:
    """A stack's sections as a program passes them to Tenancy, which has its provider's cluster."""
    kept = {key: value for key, value in sections.items() if key in TENANCY_SECTIONS}
    cluster = sections.get("cluster", {})
    said = {"provider": cluster.get("provider") or cluster.get("cloud"), "version": cluster.get("version")}
    known = {key: value for key, value in said.items() if value not in {None, "existing"}}
    return {**kept, "cluster": {**PROVIDED, **known}}


def stack(**sections: Any) -> Data:
    return stack_of_file(**sections) | {"cluster": sections.get("cluster", dict(PROVIDED))}


def with_server(**fields: Any) -> Data:
    return stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"chat": server(**fields)})})


# The process


@pytest.mark.slow
def test_it_listens_on_loopback_only_and_ends_with_its_process() -> None:
    with plugin() as started:
        (listener,) = (
            connection
            for connection in psutil.Process(started.process.pid).net_connections()
            if connection.status == psutil.CONN_LISTEN
        )
        assert listener.laddr.ip.removeprefix("::ffff:") == "127.0.0.1"
        assert listener.laddr.port == started.port
        assert started.version() == version("gpu-tenancy")
    assert started.process.returncode is not None
    assert not psutil.pid_exists(started.process.pid)


def test_a_second_construction_does_not_wait_for_the_first(running: Plugin) -> None:
    names = ["one", "two", "three"]

    def construct(name: str) -> Constructed:
        return running.construct("Tenancy", stack(), name=name)

    with ThreadPoolExecutor() as threads:
        made = list(threads.map(construct, names))
    assert [one.urn.rpartition("::")[2] for one in made] == names
    first, second, third = ({registration.urn for registration in one.registrations} for one in made)
    assert not first & second
    assert not second & third
    assert len(first) == len(second) == len(third)


# The schema


@pytest.mark.slow
def test_two_processes_return_the_same_bytes(running: Plugin) -> None:
    with plugin(PYTHONHASHSEED="1") as other:
        assert other.schema() == running.schema()


def test_it_names_the_package_its_version_and_two_components(package: Any) -> None:
    assert (package["name"], package["version"]) == ("gpu-tenancy", version("gpu-tenancy"))
    assert sorted(package["resources"]) == ["gpu-tenancy:index:Platform", "gpu-tenancy:index:Tenancy"]
    for component in package["resources"].values():
        assert component["isComponent"]
        assert component["requiredInputs"] == ["pools"]
        assert sorted(component["properties"]) == ["environment", "gpuOperatorValues", "namespaces", "queues"]


def test_platform_has_all_sections_and_tenancy_those_of_objects(package: Any) -> None:
    of_model = set(Stack.model_json_schema(by_alias=True)["properties"]) - {"split"}  # which is of a Pulumi stack
    platform, tenancy = (package["resources"][f"gpu-tenancy:index:{kind}"] for kind in ("Platform", "Tenancy"))
    assert set(platform["inputProperties"]) == of_model
    assert of_model - set(tenancy["inputProperties"]) == {"prices"}


def test_each_section_is_a_type_with_keys_and_descriptions(package: Any) -> None:
    sections = Stack.model_json_schema(by_alias=True)["$defs"]
    assert set(sections) - {name.rpartition(":")[2] for name in package["types"]} == {"Split"}
    for name in set(sections) - {"Split"}:
        section = sections[name]
        spec = package["types"][f"gpu-tenancy:index:{name}"]
        assert set(spec["properties"]) == set(section["properties"]), name
        assert spec["required"] == section.get("required", []), name
        for key, value in spec["properties"].items():
            assert value["description"].strip(), f"{name}.{key}"


def specs(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every reference to a type below a property."""
    yield value
    for branch in (*value.get("oneOf", ()), value.get("items"), value.get("additionalProperties")):
        if branch:
            yield from specs(branch)


def test_every_type_is_of_one_kind_and_every_reference_resolves(package: Any) -> None:
    token = re.compile(r"[a-zA-Z][-a-zA-Z0-9_]*:index:[A-Z][a-zA-Z0-9]*")
    objects = [
        *(component[kind] for component in package["resources"].values() for kind in ("inputProperties", "properties")),
        *(spec["properties"] for spec in package["types"].values() if "properties" in spec),
    ]
    assert all(token.fullmatch(name) for name in (*package["types"], *package["resources"]))
    for properties in objects:
        for key, value in properties.items():
            # An SDK would send a default as if the user had set the key.
            assert "default" not in value, key
            for spec in specs(value):
                assert len({"$ref", "oneOf", "type"} & set(spec)) == 1, (key, spec)
                assert spec.get("type") in {None, "array", "boolean", "integer", "number", "object", "string"}
                target = spec.get("$ref", "pulumi.json#/Any")
                assert target == "pulumi.json#/Any" or target.removeprefix("#/types/") in package["types"], target


@pytest.mark.parametrize("name", STACKS)
def test_the_schema_accepts_every_stack_of_this_repository(package: Any, name: str) -> None:
    sections = sections_of(name)
    assert misfits(package, "gpu-tenancy:index:Platform", sections) == []
    assert misfits(package, "gpu-tenancy:index:Tenancy", for_tenancy(sections)) == []


def test_the_schema_refuses_wrong_keys_and_values(package: Any) -> None:
    sections = stack()
    sections["teams"]["a"] |= {"costCentre": "rd", "podSecurity": "odd"}
    del sections["teams"]["a"]["owner"]
    assert misfits(package, "gpu-tenancy:index:Tenancy", sections) == [
        ".teams.a.owner: required",
        ".teams.a.costCentre: unknown",
        ".teams.a.podSecurity: no value of the enum",
    ]


# What is constructed


def plain(text: str) -> str:
    """A URN, or a text with URNs, as in the program of this project: without the surrounding component."""
    kind, name = text.split("::")[-2:]
    kind = kind.rpartition("$")[2].replace("gpu-tenancy:index:Tenancy", "gpu-tenancy:tenancy:Tenancy")
    return f"{kind}::{name.removeprefix('ml.').removeprefix('ml-')}"


def inputs_of(one: Registration) -> str:
    """Inputs as JSON, with the sizes of notebooks in the order of their names: the wire has no order of keys."""
    inputs: Any = deepcopy(dict(one.inputs))
    if offer := inputs.get("data", {}).get("notebooks.json"):
        inputs["data"]["notebooks.json"] = json.dumps(json.loads(offer), sort_keys=True)
    return json.dumps(inputs)


def facts(registrations: tuple[Registration, ...], *, around: str = "") -> dict[str, tuple[object, ...]]:
    """Objects and components by type and name in the program of this project, with all their inputs and options."""
    return {
        plain(one.urn): (
            # The recording monitor makes ids of clouds' resources from their names; objects have their program's stack.
            re.sub(r'(?<="gpu-tenancy.dev/stack": )"[^"]*"', "", inputs_of(one)).replace('"ml-cluster-', '"cluster-'),
            "" if one.parent in {"", around} else plain(one.parent),
            sorted(plain(urn) for urn in one.dependencies),
            plain(one.provider.rpartition("::")[0]) if one.provider else "",
            one.custom,
            one.protect,
            one.retain_on_delete,
            one.ignore_changes,
            one.replace_on_changes,
        )
        for one in registrations
        if not one.type.startswith("pulumi:providers:") and one.urn != around
    }


@pytest.mark.parametrize("name", ["local", "prod-aws", "example-tree"])
def test_a_platform_registers_the_resources_of_the_program(running: Plugin, name: str) -> None:
    rendered = stack_of_repository(name).rendered
    made = running.construct("Platform", sections_of(name), preview=True)
    assert made.urn.endswith("::gpu-tenancy:index:Platform::ml")
    assert facts(made.registrations, around=made.urn) == facts(rendered.registrations)
    of_stack = {"cluster", "kubeconfig"}  # which only the stack of a deployment has
    assert made.outputs == {name: value for name, value in rendered.outputs.items() if name not in of_stack}
    assert made.warnings == ()


def test_a_tenancy_registers_the_tenancy_of_the_program(running: Plugin) -> None:
    rendered = stack_of_repository("local").rendered
    (root,) = (one for one in rendered.registrations if one.type == "gpu-tenancy:tenancy:Tenancy")
    expected = facts(tuple(one for one in rendered.registrations if "gpu-tenancy:tenancy:Tenancy$" in one.urn))
    providers = {"kubernetes": f"{PROVIDER.replace('::gpus', '::cluster')}::cluster"}
    made = running.construct("Tenancy", for_tenancy(sections_of("local")), providers=providers)
    (own,) = (one for one in made.registrations if one.urn == made.urn)
    assert facts(made.registrations).keys() - {plain(own.urn).replace("::ml", "::tenancy")} >= expected.keys()
    below = tuple(one for one in made.registrations if one.urn != made.urn)
    parents = {plain(root.urn): plain(made.urn)}
    assert facts(below) == {
        key: (fact[0], parents.get(str(fact[1]), fact[1]), *fact[2:]) for key, fact in expected.items()
    }
    assert made.outputs == rendered.outputs


def test_two_tenancies_of_one_program_have_no_name_in_common(running: Plugin) -> None:
    def urns(name: str, team_name: str) -> set[str]:
        sections = stack(teams={team_name: team(gpus={"h100": {"guaranteed": 8}})})
        return {one.urn for one in running.construct("Tenancy", sections, name=name).registrations}

    assert not urns("ml", "a-b") & urns("ml-a", "b")


# Options


def test_the_provider_of_the_options_deploys_every_object(running: Plugin) -> None:
    made = running.construct("Tenancy", stack(), providers={"kubernetes": f"{PROVIDER}::gpus"})
    objects = [one for one in made.registrations if one.custom]
    assert len(objects) > 10
    assert {one.provider for one in objects} == {f"{PROVIDER}::gpus"}


def test_without_a_provider_the_engine_chooses_the_default_one(running: Plugin) -> None:
    made = running.construct("Tenancy", stack())
    assert {one.provider for one in made.registrations} == {""}


def test_parent_and_dependencies_are_those_of_the_options(running: Plugin) -> None:
    parent = f"urn:pulumi:{STACK}::{PROJECT}::acme:index:Site::eu"
    made = running.construct("Tenancy", stack(), parent=parent, needs=[BUCKET])
    assert made.urn == f"urn:pulumi:{STACK}::{PROJECT}::acme:index:Site$gpu-tenancy:index:Tenancy::ml"
    component = made.one("index:Tenancy")
    assert (component.parent, component.dependencies) == (parent, (BUCKET,))
    assert made.one("tenancy:Queues").parent == made.urn


@pytest.mark.parametrize("nested", [True, False], ids=["nested output", "dependencies of the input"])
def test_the_component_depends_on_resources_of_its_inputs(running: Plugin, *, nested: bool) -> None:
    sections = stack()
    if nested:
        sections["teams"]["a"]["owner"] = output("research", needs=[BUCKET])
        made = running.construct("Tenancy", sections)
    else:
        made = running.construct("Tenancy", sections, input_needs={"teams": [BUCKET]})
    assert made.one("index:Tenancy").dependencies == (BUCKET,)
    assert made.one("v1:Namespace").inputs["metadata"]["labels"]["owner"] == "research"  # type: ignore[index, call-overload]


# Unknown values


def container(made: Constructed, kind: str = "v1:Deployment") -> Any:
    inputs: Any = made.one(kind).inputs
    return inputs["spec"]["template"]["spec"]["containers"][0]


def test_an_unknown_image_is_unknown_in_its_pods_alone(running: Plugin) -> None:
    known = running.construct("Tenancy", with_server(env={"A": "b"}), preview=True)
    made = running.construct("Tenancy", with_server(image=output(needs=[BUCKET]), env={"A": "b"}), preview=True)
    deployment = made.one("v1:Deployment")
    assert deployment.unknown_paths == (("spec", "template", "spec", "containers", 0, "image"),)
    assert deployment.property_dependencies == {"spec": (BUCKET,)}
    assert [one.urn for one in made.registrations] == [one.urn for one in known.registrations]
    others = [(one.urn, one.inputs) for one in made.registrations if one.urn != deployment.urn]
    assert others == [(one.urn, one.inputs) for one in known.registrations if one.urn != deployment.urn]
    assert made.warnings == ()


def test_a_deployment_uses_the_real_image_and_checks_it(running: Plugin) -> None:
    made = running.construct("Tenancy", with_server(image=output("registry.example.com/chat:2.0", needs=[BUCKET])))
    assert container(made)["image"] == "registry.example.com/chat:2.0"
    refused = running.refusal("Tenancy", with_server(image=output("registry.example.com/chat", needs=[BUCKET])))
    assert [path for path, _ in refused.problems] == ["teams.a.serving.chat.image"]


@pytest.mark.parametrize("unknown", [output(), "04da6b54-80e4-46f7-96ec-b56ff0331ba9"], ids=["output", "computed"])
def test_an_unknown_amount_leaves_out_objects_with_a_warning(running: Plugin, unknown: object) -> None:
    sections = stack()
    sections["pools"]["h100"]["nodes"] = unknown
    made = running.construct("Tenancy", sections, preview=True)
    assert [one.urn for one in made.registrations] == [made.urn]
    assert made.unknown_outputs == {"environment", "namespaces", "queues", "gpuOperatorValues"}
    (warning,) = made.warnings
    assert "a preview does not know pools.h100.nodes. " in warning
    assert "existing ones are listed as deleted" in warning


def test_a_whole_section_that_is_unknown_is_named(running: Plugin) -> None:
    made = running.construct("Platform", stack_of_file(teams=output()), preview=True)
    assert "does not know teams. " in made.warnings[0]
    assert [one.type for one in made.registrations] == ["gpu-tenancy:index:Platform"]


def test_an_unknown_value_is_an_error_in_a_deployment(running: Plugin) -> None:
    sections = stack()
    sections["pools"]["h100"]["nodes"] = output()
    refused = running.refusal("Tenancy", sections)
    assert refused.problems == [("pools.h100.nodes", "is unknown; pass a value that is known in a deployment")]
    sections["pools"]["a100"]["nodes"] = -1
    refused = running.refusal("Tenancy", sections, preview=True)
    assert [path for path, _ in refused.problems] == ["pools.a100.nodes"]


# Secrets

TOKEN: Final = "hunter-2-token"  # noqa: S105 - made up


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "deployment"])
def test_a_secret_of_a_workload_is_secret_in_its_pods_alone(running: Plugin, *, preview: bool) -> None:
    hidden = output(TOKEN, hidden=True)
    sections = with_server(env={"PLAIN": "x", "TOKEN": hidden}, args=["--key", hidden])
    sections["teams"]["a"]["training"] = {"fit": job(command=output(["run", TOKEN], hidden=True))}
    made = running.construct("Tenancy", sections, preview=preview)
    pod = ("spec", "template", "spec", "containers", 0)
    assert set(made.one("v1:Deployment").secret_paths) == {(*pod, "args", 1), (*pod, "env", 1, "value")}
    assert set(made.one("v1:Job").secret_paths) == {(*pod, "command", 0), (*pod, "command", 1)}
    assert container(made)["env"] == [{"name": "PLAIN", "value": "x"}, {"name": "TOKEN", "value": TOKEN}]
    assert container(made, "v1:Job")["command"] == ["run", TOKEN]
    for one in made.registrations:
        assert TOKEN not in json.dumps(one.shown), one.urn
        assert "late-" not in json.dumps(one.inputs), one.urn
    assert TOKEN not in json.dumps(made.outputs)


def test_a_secret_that_a_plan_would_show_is_refused(running: Plugin) -> None:
    sections = stack(environment=output(TOKEN, hidden=True))
    sections["pools"]["h100"]["nodes"] = output(987654, hidden=True)
    sections["pools"]["a100"]["flavor"] = output(TOKEN, hidden=True)
    refused = running.refusal("Tenancy", sections)
    reason = (
        "is secret, but the names and amounts of a plan are plain values; pass a plain value; only image, command, args"
        " and env of a server or job, and texts in the values of an operator, can be secret"
    )
    assert refused.message.splitlines() == [
        "Tenancy ml has 3 problems in its inputs:",
        *(f"\t\t- {place}: {reason}" for place in ("environment", "pools.a100.flavor", "pools.h100.nodes")),
    ]
    # The engine prints the value of each property that is named here.
    assert refused.problems == []
    assert TOKEN not in refused.text
    assert "987654" not in refused.text


def test_problems_at_a_map_with_a_secret_name_no_property(running: Plugin) -> None:
    sections = with_server(env={"TOKEN": output(TOKEN, hidden=True)})
    sections["teams"]["a"]["serving"]["chat"] |= {"replicas": {"min": 3, "max": 1}, "gpus": 99}
    refused = running.refusal("Tenancy", sections)
    assert all("teams.a.serving.chat.env".startswith(f"{path}.") is False for path, _ in refused.problems)
    assert "teams.a.serving.chat.replicas" in refused.text
    assert TOKEN not in refused.text


def test_a_secret_without_output_values_is_refused_by_section(running: Plugin) -> None:
    sections = stack()
    sections["teams"]["a"]["owner"] = secret(TOKEN)
    refused = running.refusal("Tenancy", sections)
    assert "\t\t- teams: is secret" in refused.message
    assert TOKEN not in refused.text


# Errors


def test_all_problems_are_reported_at_once_as_for_a_file(running: Plugin) -> None:
    sections = stack()
    sections["pools"]["h100"]["labels"] = {"example.com/a b": "x"}
    sections["teams"]["a"] |= {"gpus": {"h100": {"guaranted": 8}}, "priority": "none", "tier": "?", "owner": 5}
    sections["teams"]["b"] = team(gpus={"a100": {"guaranteed": 64}}, serving={"s": server(image="x")})
    refused = running.refusal("Platform", deepcopy(sections))
    expected = errors(sections)
    assert len(expected) > 5
    assert refused.code == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.message == f"Platform ml has {len(expected)} problems in its inputs:"
    reported = {f"{path}: {reason}" for path, reason in refused.problems}
    assert {text.replace('["example.com/a b"]', ".example.com/a b") for text in reported} == set(expected)


@pytest.mark.slow
def test_an_error_of_the_user_leaves_no_traceback() -> None:
    with plugin() as started:
        refused = started.refusal("Tenancy", stack(teams={"A": {}}))
        words = started.words()
    assert "Traceback" not in refused.text + words
    assert 'File "' not in refused.text + words


def test_invalid_inputs_register_nothing_and_end_no_plugin(running: Plugin) -> None:
    running.refusal("Tenancy", {})
    assert running.construct("Tenancy", stack()).outputs["namespaces"] == ["a"]


def test_an_unknown_component_is_refused_with_the_known_ones(running: Plugin) -> None:
    refused = running.refusal("Team", stack())
    assert refused.message == (
        "unknown component 'gpu-tenancy:index:Team'; use one of: gpu-tenancy:index:Platform, gpu-tenancy:index:Tenancy"
    )


def test_a_tenancy_refuses_what_only_a_platform_has(running: Plugin) -> None:
    sections = stack(
        cluster={**PROVIDED, "cloud": "existing", "kubeconfig": "/root/.kube/config", "provider": "aws"},
        prices={"p5.48xlarge": {"onDemand": 1.0}},
        operators={"kueue": "here", "volcano": {"install": "here"}, "keda": "installed"},
    )
    refused = running.refusal("Tenancy", sections)
    assert [path for path, _ in refused.problems] == [
        "cluster.cloud", "cluster.kubeconfig", "operators.kueue", "operators.volcano.install", "prices",
    ]  # fmt: skip
    assert dict(refused.problems)["operators.kueue"] == (
        "here installs an operator, which Tenancy does not; set installed, or use Platform"
    )


@pytest.mark.slow
def test_a_missing_sdk_of_a_cloud_is_an_error_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "pulumi_aws.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pulumi_aws'\", name='pulumi_aws')\n", encoding="utf-8"
    )
    with plugin(PYTHONPATH=str(tmp_path)) as started:
        refused = started.refusal("Platform", sections_of("prod-aws"))
        assert "pulumi-aws, which is not installed; run `make ready-clouds`" in refused.message
        assert "Traceback" not in refused.text + started.words()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("teams", "ml", "training", "fit", "args", 0), "teams.ml.training.fit.args[0]"),
        (("pools", "a100", "labels", "example.com/pool"), 'pools.a100.labels["example.com/pool"]'),
        (("env", 'a "b"'), 'env["a \\"b\\""]'),
    ],
)
def test_a_place_is_written_as_pulumi_reads_it(path: tuple[str | int, ...], text: str) -> None:
    assert property_path(path) == text


def test_a_text_without_placeholders_is_left_as_it_is() -> None:
    properties = {"a": ["x", 1, True, None, {"b": "late-0.invalid"}]}
    assert filled(properties, {}) == properties


# The CLI


@pytest.mark.slow
@pytest.mark.pulumi
@pytest.mark.official
def test_the_cli_reads_the_schema_of_the_folder(running: Plugin, tmp_path: Path) -> None:
    for part in ("provider", "components", "gpu_tenancy", "policy", "pyproject.toml", "README.md"):
        place = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        place(ROOT / part, tmp_path / part)
    folder = tmp_path / PLUGIN.name
    done = subprocess.run(
        ["pulumi", "package", "get-schema", str(folder)], capture_output=True, text=True, check=False, timeout=GUARD
    )
    assert done.returncode == 0, done.stderr
    start = done.stdout.index("{\n")
    assert json.loads(done.stdout[start:])["resources"].keys() == json.loads(running.schema())["resources"].keys()
