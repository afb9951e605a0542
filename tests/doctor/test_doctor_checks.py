"""The command `doctor`, its live checks of guards, and checks before upgrades."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from builders import stack, team
from cli_builders import Project, small
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.cli.main import app
from gpu_tenancy.doctor import checks
from gpu_tenancy.doctor.guards import attempts, differences
from gpu_tenancy.doctor.results import DeniedError, NoAnswerError, Question, Row, answers
from gpu_tenancy.doctor.upgrades import upgrade_rows
from gpu_tenancy.kube.client import Cluster, Resource
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.model.catalogue.operators import Probe
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators import ReleasePlan, running
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    found.write("s", small())
    found.write("wrong", {"teams": {"a": team(gpus={"h100": {"guaranteed": 8}})}})
    return found


def doctor(project: Project, *arguments: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["cluster", "doctor", *arguments, "--project", str(project.folder)]
    )
    return done.exit_code, done.output


def missing_program(_: str) -> None:
    return None


def present_program(name: str) -> str:
    return f"/bin/{name}"


def ask(monkeypatch: pytest.MonkeyPatch, row: Row) -> None:
    def questions(*_: object) -> list[Question]:
        return [Question(row.check, row.subject, row.needed, lambda: [row])]

    monkeypatch.setattr(checks, "_questions", questions)


def test_a_missing_program_is_reported_with_its_fix(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", missing_program)
    code, words = doctor(project, "s")
    assert code == 3
    assert "program pulumi: not found; install it: https://www.pulumi.com/docs/install/" in words
    assert words.rstrip().endswith("1 OK, 1 missing, 0 unknown")


def test_unknown_rows_do_not_fail_and_missing_ones_do(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", present_program)
    ask(monkeypatch, Row("quota", "P", "8", "no permission to ask", "unknown", "grant x"))
    code, words = doctor(project, "s", "--cloud", "--json")
    assert (code, [row["verdict"] for row in json.loads(words)]) == (0, ["OK", "OK", "unknown"])
    ask(monkeypatch, Row("quota", "P", "8", "0", "missing", "raise it"))
    assert doctor(project, "s", "--cloud")[0] == 3


def test_a_stack_without_a_cloud_and_an_invalid_one_are_errors(project: Project) -> None:
    code, words = doctor(project, "s", "--cloud")
    assert (code, "cluster.cloud: existing has no cloud to ask" in words) == (1, True)
    assert doctor(project, "wrong")[0] == 1


def test_a_question_that_fails_does_not_hide_the_others() -> None:
    def denied() -> list[Row]:
        raise DeniedError("ec2:DescribeSubnets")

    def rejected() -> list[Row]:
        raise NoAnswerError("HTTP 500: busy")

    fine = Row("zones", "p5", "a", "a", "OK")
    questions = [
        Question("subnets", "s", "8", denied),
        Question("quota", "q", "8", rejected),
        Question("zones", "p5", "a", lambda: [fine]),
    ]
    rows = list(answers(questions))
    assert [(row.check, row.verdict, row.fix) for row in rows] == [
        ("subnets", "unknown", "grant ec2:DescribeSubnets"),
        ("quota", "unknown", "HTTP 500: busy"),
        ("zones", "OK", ""),
    ]


# The table of attempts, and the comparison of policies.


POLICIES: Path = ROOT / "components/guards/policies"


def test_each_guard_has_an_attempt_or_says_why_it_has_none() -> None:
    assert attempts().keys() == {file.stem for file in POLICIES.glob("*.yaml")} - {"shared"}
    for attempt in attempts().values():
        assert bool(attempt.untried) + bool(attempt.create) + bool(attempt.patch and attempt.change) == 1
        assert attempt.untried or attempt.by


@pytest.mark.parametrize(
    ("live", "paths"),
    [
        ({"validationActions": ["Deny"], "rules": [{"a": 1, "matchPolicy": "Equivalent"}], "objectSelector": {}}, []),
        ({"validationActions": ["Audit"], "rules": [{"a": 1}]}, ["spec.validationActions[0]"]),
        ({"validationActions": ["Deny"], "rules": []}, ["spec.rules"]),
        (
            {"validationActions": ["Deny"], "rules": [{"a": 1}], "objectSelector": {"matchLabels": {"x": "y"}}},
            ["spec.objectSelector.matchLabels"],
        ),
        ({"validationActions": ["Deny"], "rules": [{"a": 1}], "matchPolicy": "Exact"}, ["spec.matchPolicy"]),
        ({"validationActions": ["Deny"], "rules": [{"a": 1}], "paramKind": {"kind": "X"}}, ["spec.paramKind"]),
    ],
)
def test_only_defaults_of_the_api_server_are_no_difference(live: dict[str, object], paths: list[str]) -> None:
    wanted = {"validationActions": ["Deny"], "rules": [{"a": 1}]}
    assert [*differences(wanted, live, "spec")] == paths  # type: ignore[arg-type]


# Checks before operators are upgraded, on a cluster that has what each of them is for.


GROUP = "kueue.x-k8s.io"


@dataclass
class Installed:
    """A cluster with Kueue, as its API server answers."""

    image: str = "registry.k8s.io/kueue/kueue:v0.18.4"  # of the manager; empty without a Deployment
    labels: dict[str, str] = field(default_factory=lambda: {"helm.sh/chart": "kueue-0.18.4"})
    stored: tuple[str, ...] = ("v1beta2",)
    served: tuple[str, ...] = ("v1beta1", "v1beta2")
    refused: dict[str, str] = field(default_factory=dict[str, str])  # messages of dry runs, by kind
    unreadable: tuple[str, ...] = ()  # versions that are not converted
    status: int = 403

    def versions(self, group: str) -> tuple[str, ...]:
        return self.served if group == GROUP else ()

    def list(self, api_version: str, kind: str, **_: Any) -> tuple[dict[str, Any], ...]:
        if kind == "Deployment":
            spec = {"template": {"spec": {"containers": [{"image": self.image}]}}}
            return ({"metadata": {"labels": self.labels}, "spec": spec},) if self.image else ()
        if kind == "CustomResourceDefinition":
            versions = [{"name": name, "served": True, "storage": name == "v1beta2"} for name in self.served]
            spec = {"group": GROUP, "names": {"kind": "Workload"}, "versions": versions}
            converted = {**spec, "conversion": {"strategy": "Webhook"}}
            metadata = {"name": f"workloads.{GROUP}"}
            return ({"metadata": metadata, "spec": converted, "status": {"storedVersions": [*self.stored]}},)
        if api_version.rpartition("/")[2] in self.unreadable:
            raise ApiError(500, "InternalError", "conversion webhook failed: connection refused")
        return ()

    def resource(self, _: str, kind: str) -> Resource:
        return Resource(GROUP, kind, f"{kind.lower()}s", namespaced=kind in {"Pod", "TrainJob"})

    def create(self, manifest: dict[str, Any], *, dry_run: bool) -> None:
        assert dry_run
        namespaced = manifest["kind"] in {"Pod", "TrainJob"}
        assert bool(manifest["metadata"].get("namespace")) == namespaced
        if message := self.refused.get(manifest["kind"]):
            raise ApiError(self.status, "Forbidden", message)


def kueue() -> ReleasePlan:
    (found,) = running(Tree(load(Source(stack()))))["kueue"]
    return found


def rows(installed: Installed, release: ReleasePlan | None = None) -> dict[str, Row]:
    return {row.check: row for row in upgrade_rows(cast("Cluster", installed), [release or kueue()])}


def test_a_sample_is_created_in_the_namespace_of_the_operator() -> None:
    sample = Probe(resource="trainjobs", manifest={"apiVersion": "t/v1", "kind": "TrainJob", "metadata": {"name": "a"}})
    release = replace(kueue(), probe=sample)
    assert rows(Installed(), release)["webhooks"].verdict == "OK"
    gone = Installed(refused={"TrainJob": 'namespaces "kueue-system" not found'}, status=404)
    assert rows(gone, release)["webhooks"].verdict == "unknown"


def test_an_operator_of_the_minor_version_before_can_be_upgraded() -> None:
    found = rows(Installed())
    assert {check: row.verdict for check, row in found.items()} == dict.fromkeys(
        ("version", "pods", "definitions", "webhooks"), "OK"
    )
    assert (found["version"].available, found["version"].needed) == ("v0.18.4", kueue().version)


def test_an_operator_that_is_not_installed_has_no_rows() -> None:
    assert rows(Installed(image="", served=())) == {}


@pytest.mark.parametrize(
    ("tag", "verdict", "fix"),
    [
        ("v0.19.0", "OK", ""),
        ("v0.20.1", "missing", "an older version may not read what v0.20.1 has stored"),
        ("v0.14.3", "unknown", "read the release notes of every version between v0.14.3 and"),
        ("main", "unknown", "the version is not in the images"),
    ],
)
def test_the_step_between_versions(tag: str, verdict: str, fix: str) -> None:
    found = rows(Installed(image=f"registry.example.com/kueue:{tag}@sha256:0", labels={}))["version"]
    assert (found.verdict, fix in found.fix) == (verdict, True)


def test_unserved_stored_version_stops_the_upgrade() -> None:
    lost = rows(Installed(stored=("v1alpha1", "v1beta2"), served=("v1alpha1", "v1beta2")))["stored"]
    assert lost.verdict == "missing"
    assert "does not serve v1alpha1 and cannot be installed; run `tenancy cluster migrate`" in lost.fix
    old = rows(Installed(stored=("v1beta1", "v1beta2")))["stored"]
    assert (old.verdict, old.available) == ("unknown", "stored also as v1beta1")


def test_objects_that_are_not_converted_are_found() -> None:
    found = rows(Installed(unreadable=("v1beta1",)))["conversion"]
    assert (found.verdict, found.needed) == ("missing", "readable as v1beta1")
    assert "connection refused" in found.available
    assert "caBundle" in found.fix


@pytest.mark.parametrize(("kind", "check"), [("Pod", "pods"), ("ResourceFlavor", "webhooks")])
def test_rejected_sample_is_missing_without_rights_unknown(kind: str, check: str) -> None:
    rejected = rows(Installed(refused={kind: "exceeded quota: pods"}))[check]
    assert (rejected.verdict, rejected.available) == ("missing", "exceeded quota: pods")
    denied = rows(Installed(refused={kind: f'User "a" cannot create resource "{kind}"'}))[check]
    assert (denied.verdict, denied.available) == ("unknown", "no permission to ask")
