"""Packs as Pulumi runs them: processes, called by the analyzer protocol, about every stack of this project."""

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import grpc
import psutil
import pytest
import yaml
from google.protobuf.empty_pb2 import Empty
from kit_builders import Refusal, deployment
from policy_builders import UNKNOWN, Sample
from pulumi.runtime.proto import analyzer_pb2 as wire
from rendered_stacks import stack_of_repository
from repository import ROOT
from starts import GUARD

from document import PACKS
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.packs.configuration import choose, read_config
from gpu_tenancy.packs.evaluation import Session, resource_requests, stack_request
from gpu_tenancy.packs.findings import Outcome, PackResult, by_weight
from gpu_tenancy.packs.process import Client, pack_process
from rule_engine.evaluator import Evaluator
from rule_engine.server import Analyzer

pytestmark = pytest.mark.process

VERDICTS = Path(__file__).parent / "stack_verdicts.yaml"
"""Findings of each pack in each stack, under the set of the stack's environment: reviewed; by pin_verdicts.py."""
PINNED: dict[str, dict[str, list[str]]] = yaml.safe_load(VERDICTS.read_text(encoding="utf-8"))


def verdict(judged: PackResult) -> list[str]:
    return [f"{finding.kind} {finding.rule}: {finding.message}" for finding in by_weight(judged.findings)]


@cache
def previewed(stack: str) -> Preview:
    return stack_of_repository(stack)


def judged(client: Client, pack: str, stack: str) -> PackResult:
    rendered = previewed(stack)
    config = choose(pack, ROOT, production=rendered.stack.is_production).config
    session = Session.of(client, read_config(config) if config else {}, "", rendered.stack)
    assert pack == "clouds" or "monitoring" in str(session.config.policyConfig["no-privileged"].properties)
    client.open(rendered.rendered.project, stack)
    return session.evaluate(stack_request(rendered.rendered))


@pytest.mark.parametrize("pack", list(PACKS))
@pytest.mark.parametrize("stack", stack_names())
def test_findings_about_stacks_are_the_reviewed_ones(packs: dict[str, Client], stack: str, pack: str) -> None:
    evaluated = judged(packs[pack], pack, stack)
    assert evaluated.pack == PACKS[pack].name
    assert evaluated.rules > len(PACKS[pack].rules) // 2
    assert not [finding.message for finding in evaluated.findings if finding.outcome is Outcome.ERROR]
    assert [finding.message for finding in evaluated.findings if finding.kind == "broken"] == []
    assert verdict(evaluated) == PINNED.get(stack, {}).get(pack, [])


@pytest.mark.parametrize("pack", list(PACKS))
@pytest.mark.parametrize("stack", stack_names())
def test_a_first_preview_without_outputs_finds_the_same(stack: str, pack: str) -> None:
    """While the cluster does not exist, the engine has no outputs of its objects, and no kubeconfig of a provider."""
    analyzer, context = Analyzer(Evaluator(PACKS[pack])), cast("grpc.ServicerContext", Refusal())
    whole = stack_request(previewed(stack).rendered)
    for request in resource_requests(whole):
        analyzer.Analyze(request, context)

    def found() -> list[tuple[str, int, str]]:
        diagnostics = cast("list[wire.AnalyzeDiagnostic]", analyzer.AnalyzeStack(whole, context).diagnostics)
        return [(one.policyName, one.enforcementLevel, one.message) for one in diagnostics]

    later = found()
    for resource in whole.resources:
        if resource.type.startswith("kubernetes:"):
            resource.ClearField("properties")
    assert found() == later


def test_every_stack_and_pack_with_reviewed_findings_exists() -> None:
    assert set(PINNED) <= set(stack_names())
    assert {pack for stack in PINNED.values() for pack in stack} <= set(PACKS)


# A pack alone.

_TRAINER = {
    "name": "train",
    "image": "registry.example.com/ml/train:1",
    "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": 2}},
}
# For each pack, a resource that breaks a rule.
BROKEN: dict[str, tuple[Sample, str]] = {
    "workloads": (deployment(template={"spec": {"containers": [_TRAINER]}}), "gpu-request-equals-limit"),
    "clouds": (
        Sample(
            "gcp:container/nodePool:NodePool",
            {"cluster": "ml", "nodeConfig": {"machineType": "e2-standard-4", "spot": True}},
        ),
        "spot-outside-production",
    ),
}

LAUNCHER = """
import importlib.util, runpy, sys
sys.path.insert(0, {packages!r})
for module in ("gpu_tenancy", "components", "rule_engine", "workload_rules", "cloud_rules"):
    assert importlib.util.find_spec(module) is None, module
sys.argv = ["pulumi.policy", *sys.argv[4:]]
runpy.run_module("pulumi.policy", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(params=list(PACKS))
def alone(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Client]]:
    """A pack's folder with its links followed, as `pulumi policy publish` archives it, and nothing else of ours."""
    name: str = request.param
    folder = tmp_path / "package"
    shutil.copytree(ROOT / "policy" / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert not [file for file in folder.rglob("*") if file.is_symlink()]
    (folder / "venv" / "bin").mkdir(parents=True)
    launcher = folder / "venv" / "launch.py"
    launcher.write_text(LAUNCHER.format(packages=str(Path(grpc.__file__).parents[1])), encoding="utf-8")
    interpreter = folder / "venv" / "bin" / "python"
    # -I and -S: neither this folder, nor PYTHONPATH, nor the file by which the virtual environment knows this project.
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S -u "{launcher}" "$@"\n', encoding="utf-8")
    interpreter.chmod(0o755)
    with pack_process(folder) as client:
        yield name, client


def test_a_pack_runs_from_a_copy_of_its_folder(alone: tuple[str, Client]) -> None:
    name, client = alone
    session = Session.of(client, read_config(ROOT / "policy" / "config" / f"{name}-prod.json"))
    assert session.info.name == PACKS[name].name
    assert {policy.name for policy in session.info.policies} == {
        *(rule.name for rule in PACKS[name].rules),
        "exemptions-in-order",
    }
    given, rule = BROKEN[name]
    assert rule in [diagnostic.policyName for diagnostic, _ in client.analyze(given.request())]
    assert client.analyze(wire.AnalyzeRequest(type="random:index/randomId:RandomId")) == []


# Processes.


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def pack_folder(at: Path, program: str, described: object = None) -> Path:
    at.mkdir(exist_ok=True)
    (at / "__main__.py").write_text(program, encoding="utf-8")
    text = yaml.safe_dump(described or {"runtime": "python", "description": "A test."})
    (at / "PulumiPolicy.yaml").write_text(text, encoding="utf-8")
    return at


def test_a_process_ends_with_its_context_on_failure_too() -> None:
    before = children()
    with suppress(ZeroDivisionError), pack_process(ROOT / "policy" / "workloads"):
        assert len(children() - before) == 1
        raise ZeroDivisionError
    assert children() <= before


def test_a_pack_exits_when_the_engine_cancels_it() -> None:
    before = children()
    with pack_process(ROOT / "policy" / "workloads") as client:
        (pid,) = children() - before
        stub: Any = client.stub
        stub.Handshake(wire.AnalyzerHandshakeRequest(engine_address="127.0.0.1:1"), timeout=GUARD)
        stub.Cancel(Empty(), timeout=GUARD)
        assert psutil.Process(pid).wait(20) == 0


@pytest.mark.parametrize(
    ("program", "described", "words"),
    [
        pytest.param("import nothing_of_that_name\n", None, "did not start: .*nothing_of_that_name", id="broken"),
        pytest.param("print('hello')\n", None, "printed 'hello' before its port", id="noise"),
        pytest.param(
            "", {"runtime": "nodejs"}, "runtime nodejs is not supported; use a pack in Python", id="another language"
        ),
        pytest.param("", {"runtime": {"name": "python"}}, "did not start: no output", id="silent"),
    ],
)
def test_pack_that_does_not_start_shows_its_log_and_ends(
    tmp_path: Path, program: str, described: object, words: str
) -> None:
    before = children()
    with pytest.raises(ConsoleError, match=words), pack_process(pack_folder(tmp_path / "pack", program, described)):
        pass
    assert children() <= before


def test_a_folder_without_a_pack_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ConsoleError, match=r"is not a policy pack: PulumiPolicy\.yaml is missing"),
        pack_process(tmp_path),
    ):
        pass


def test_the_pack_refuses_an_unknown_rule(packs: dict[str, Client]) -> None:
    request = wire.ConfigureAnalyzerRequest()
    request.policyConfig["gpu-models-named"].enforcementLevel = wire.MANDATORY
    with pytest.raises(grpc.RpcError) as refused:
        packs["workloads"].configure(request)
    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "unknown rule 'gpu-models-named' (did you mean 'gpu-model-named'?)"


def test_each_resource_is_sent_once() -> None:
    rendered = stack_of_repository("local").rendered
    stack = stack_request(rendered)
    urns = [request.urn for request in resource_requests(stack)]
    assert sorted(urns[1:]) == sorted(
        registration.urn for registration in rendered.registrations if not registration.external_id
    )
    at = {urn: index for index, urn in enumerate(urns)}
    for resource in stack.resources:
        for needed in (resource.parent, *resource.dependencies):
            assert not needed or at[needed] < at[resource.urn], (needed, resource.urn)


def test_the_outcome_of_each_diagnostic_reaches_the_client(packs: dict[str, Client]) -> None:
    inputs = deployment(template={"spec": {"containers": [{**_TRAINER, "image": UNKNOWN}]}})
    reported = packs["workloads"].analyze(inputs.request())
    outcomes = {diagnostic.policyName: outcome for diagnostic, outcome in reported}
    assert outcomes["image-pinned"] is Outcome.UNKNOWN
    assert outcomes["gpu-request-equals-limit"] is Outcome.BROKEN


class CountingStub:
    """A pack's stub that counts the resources that are sent one by one, by type."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self.sent = Counter[str]()

    @property
    def Analyze(self) -> Any:  # noqa: N802 - the protocol's name
        return self

    def with_call(self, request: wire.AnalyzeRequest, **options: Any) -> Any:
        self.sent[request.type] += 1
        return self._stub.Analyze.with_call(request, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)


@pytest.mark.parametrize("pack", list(PACKS))
def test_of_a_type_that_no_rule_checks_only_one_resource_is_sent(packs: dict[str, Client], pack: str) -> None:
    stub = CountingStub(packs[pack].stub)
    judged(Client(cast("Any", stub)), pack, "local")
    resources = Counter(request.type for request in stack_request(previewed("local").rendered).resources)
    checks = Evaluator(PACKS[pack]).covers
    assert stub.sent == {type_: count if checks(type_) else 1 for type_, count in resources.items()}
