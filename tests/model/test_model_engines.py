"""Defaults by a server's engine, and its facts, compared with the package that they were read from."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from builders import Data, errors, planned, server, stack, team
from originals import original
from repository import ROOT

from gpu_tenancy.model.catalogue.pods import engines
from gpu_tenancy.model.plan.workloads import PodPlan, ServerPlan
from gpu_tenancy.model.spec.serving import EngineName, ServerMetrics

VLLM = engines()["vllm"]


def sections(dispatch: Data | None = None, **fields: Any) -> Data:
    chat = {"engine": "vllm", "gpus": 8, "model": {"dataset": "weights", "path": "org/llama"}, **fields}
    storage = {"models": {"size": "500Gi", "mode": "shared", "storageClass": "files"}}
    of_team = team(gpus={"h100": {"guaranteed": 16}}, serving={"chat": server(**chat)}, storage=storage)
    more = {"operators": {"prometheus": "installed"}, **(dispatch or {})}
    return stack(teams={"a": of_team}, datasets={"weights": "s3://ml-weights"}, **more)


def chat(**fields: Any) -> ServerPlan:
    (plan,) = planned(sections(**fields)).teams[0].servers
    return plan


def flags(pod: PodPlan) -> dict[str, str]:
    """Values of arguments; an empty text for a switch."""
    _, *rest = pod.args
    pairs = zip(rest, [*rest[1:], ""], strict=True)
    return {name: "" if value.startswith("--") else value for name, value in pairs if name.startswith("--")}


def test_arguments_port_and_probe_follow_from_the_stack() -> None:
    plan = chat(args=["--max-model-len", "8192"])
    assert plan.pod.command == ("vllm", "serve")
    assert plan.pod.args[0] == "/model/org/llama"
    assert flags(plan.pod) == {
        "--port": "8000",
        "--served-model-name": "llama",
        "--tensor-parallel-size": "8",
        "--shutdown-timeout": "120",
        "--max-model-len": "8192",
    }
    assert (plan.spec.port, plan.spec.health) == (8000, "/health")
    assert plan.pod.env == dict(VLLM.env)
    assert plan.pod.shared_memory


def test_what_the_stack_sets_wins() -> None:
    plan = chat(port=9000, health="/ping", drain="30s", env={"HF_HUB_OFFLINE": "0"}, model={"volume": "models"})
    assert flags(plan.pod)["--port"] == "9000"
    assert flags(plan.pod)["--shutdown-timeout"] == "30"
    assert flags(plan.pod)["--served-model-name"] == "models"
    assert (plan.spec.health, plan.pod.env["HF_HUB_OFFLINE"]) == ("/ping", "0")
    assert plan.pod.args[0] == "/model"


def test_the_nodes_of_a_group_are_stages_of_one_pipeline() -> None:
    plan = chat(nodes=2, drain="1m")
    assert plan.worker
    leader, worker = flags(plan.pod), flags(plan.worker)
    assert worker.pop("--headless") == ""
    assert leader == worker
    assert (leader["--pipeline-parallel-size"], leader["--nnodes"]) == ("2", "2")
    assert (leader["--node-rank"], leader["--master-addr"]) == ("$(LWS_WORKER_INDEX)", "$(LWS_LEADER_ADDRESS)")
    assert (plan.pod.ends, plan.worker.ends) == ((15, 90), (75, 90)), "workers end after their leader has answered"


def test_a_model_is_read_where_its_source_is_mounted() -> None:
    (mount,) = chat().pod.volumes.mounts
    assert (mount.claim, mount.path, mount.read_only) == ("weights", "/model", True)
    elsewhere = chat(datasets={"weights": "/mnt/weights"})
    assert elsewhere.pod.args[0] == "/mnt/weights/org/llama"
    (claim,) = chat(model={"volume": "models"}).pod.volumes.mounts
    assert (claim.claim, claim.read_only) == ("models", True)
    image = chat(model={"image": "registry.example.com/ml/llama-8b:1.0"})
    assert image.pod.volumes.model == ("registry.example.com/ml/llama-8b:1.0", "/model")
    assert flags(image.pod)["--served-model-name"] == "llama-8b"


def test_a_large_model_has_more_time_to_start() -> None:
    assert chat().spec.starts_within == 600
    assert chat(model={"dataset": "weights", "size": "100Gi"}).spec.starts_within == 600 + 1024
    assert chat(model={"dataset": "weights", "size": "100Gi"}, startup="20m").spec.starts_within == 1200
    assert (chat().progress, chat(probes={"readyAfter": "10h"}).progress) == (900, 36_300)


def test_custom_servers_have_no_defaults_of_an_engine() -> None:
    plan = chat(engine="custom", command=["serve"], drain="1m", metrics={"waiting": "queue_length"})
    assert (plan.spec.port, plan.pod.command, plan.pod.args) == (8080, ("serve",), ())
    assert plan.pod.ends == (15, 90)
    assert plan.metrics == ServerMetrics(waiting="queue_length")
    assert chat(engine="custom").pod.ends is None


def test_prometheus_scrapes_an_engine_where_it_runs() -> None:
    assert getattr(chat().monitor, "port", 0) == 8000
    assert [chat(dispatch={"operators": none}).monitor for none in ({}, {"prometheus": "off"})] == [None, None]
    assert chat(metrics={"tokens": "own_tokens_total"}).metrics.tokens == "own_tokens_total"


def test_an_engine_scales_on_its_own_latency() -> None:
    scaled = chat(replicas={"min": 1, "max": 2}, gpus=4, scaleOn={"latencyP99": "2s"}).scaling
    assert scaled
    assert scaled.latency == ("vllm_e2e_request_latency_p99_seconds", 2.0)
    assert scaled.query
    assert 'vllm:e2e_request_latency_seconds_bucket{namespace="a",service="chat"}' in scaled.query.expression


def test_the_page_of_servers_shows_the_error_of_an_argument() -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (problem,) = errors(sections(gpus=4, args=["--max-model-len", "32768", "--tensor-parallel-size", "8"]))
    assert f"```text\n{problem.replace('teams.a.', 'teams.ml-production.')}\n```" in page


def test_every_engine_has_a_row() -> None:
    assert {"custom", *engines()} == set(get_args(EngineName))


# What follows compares the table with the package: `packages/vllm` of the folder of originals is its wheel, unpacked.


@pytest.fixture(scope="module")
def package() -> Path:
    return original("packages/vllm")


def _trees(folder: Path) -> Iterator[ast.Module]:
    for file in sorted(folder.rglob("*.py")):
        yield ast.parse(file.read_text(encoding="utf-8"))


def test_the_package_has_the_version_of_the_table(package: Path) -> None:
    (metadata,) = package.glob("vllm-*.dist-info/METADATA")
    assert f"\nVersion: {VLLM.version}\n" in metadata.read_text(encoding="utf-8")


def test_the_package_takes_each_argument_by_both_names(package: Path) -> None:
    known: dict[str, set[str]] = {}
    fields = set[str]()
    for tree in (*_trees(package / "vllm/engine"), *_trees(package / "vllm/entrypoints")):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                names = {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
                known |= dict.fromkeys(names, names)
            if isinstance(node, ast.ClassDef) and node.name == "FrontendArgs":
                fields = {
                    f"--{one.target.id}"
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
    for argument in VLLM.arguments:
        names = known.get(argument.name, {argument.name} & fields)
        assert argument.name in names, argument.name
        assert argument.short in {"", *names}, argument.short


def _default(folder: Path, owner: str, field: str) -> Any:
    for tree in _trees(folder):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == owner:
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") == field and one.value:
                        value = one.value
                        if isinstance(value, ast.Call):
                            value = next(keyword.value for keyword in value.keywords if keyword.arg == "default")
                        return ast.literal_eval(value)
    raise AssertionError((owner, field))


def test_package_has_the_port_and_memory_share_of_the_table(package: Path) -> None:
    assert _default(package / "vllm/entrypoints", "FrontendArgs", "port") == VLLM.port
    assert _default(package / "vllm/config", "CacheConfig", "gpu_memory_utilization") == VLLM.gpu_memory / 100


def test_the_package_answers_on_the_path_of_the_probe(package: Path) -> None:
    routes = {
        argument.value
        for tree in _trees(package / "vllm/entrypoints/serve/instrumentator")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "get"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    assert VLLM.health in routes


def test_the_package_has_each_metric_as_the_kind_that_its_key_is(package: Path) -> None:
    kinds = {"running": "gauge", "waiting": "gauge", "cache": "gauge", "tokens": "counter"}
    kinds |= {"firstToken": "histogram", "latency": "histogram"}
    text = (package / "vllm/v1/metrics/loggers.py").read_text(encoding="utf-8")
    made = {name: kind for kind, name in re.findall(r'self\._(\w+)_cls\(\s*name="(vllm:\w+)"', text)}
    for key, kind in kinds.items():
        name = VLLM.metrics[key]
        assert made[name.removesuffix("_total") if kind == "counter" else name] == kind, key
    counted = (package / "vllm/entrypoints/serve/instrumentator/metrics.py").read_text(encoding="utf-8")
    assert "Instrumentator(" in counted, "http_requests_total is its metric"
    assert {"requests", "failures", *kinds} == set(VLLM.metrics)


def test_the_package_has_the_bounds_of_the_histograms(package: Path) -> None:
    tree = ast.parse((package / "vllm/v1/metrics/buckets.py").read_text(encoding="utf-8"))
    bounds = {
        one.target.id: ast.literal_eval(one.value)
        for one in tree.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(one.value, ast.Tuple)
    }
    assert VLLM.buckets["firstToken"] == bounds["TIME_TO_FIRST_TOKEN_BUCKETS"]
    assert VLLM.buckets["latency"] == bounds["REQUEST_LATENCY_BUCKETS"]


def test_package_guards_the_paths_of_the_table(package: Path) -> None:
    folder = package / "vllm/entrypoints/serve/middleware"
    read = {node.attr for tree in _trees(folder) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert VLLM.api_key.env in read
    guarded = [
        ast.literal_eval(node.value)
        for tree in _trees(folder)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GUARDED_PREFIX"
    ]
    assert guarded
    assert set(VLLM.api_key.paths) <= set(guarded[0])
