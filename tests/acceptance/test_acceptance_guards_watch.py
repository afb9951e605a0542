"""`tenancy cluster doctor --live`: guards that are missing or weakened are found by attempts and by their specs."""

import re
import ssl
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.client import HTTPSConnection
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import pytest
import yaml
from acceptance_builders import Waves, flat
from acceptance_guards import EXPERIMENTS, RESEARCH, Door, Person
from builders import Data, planned
from repository import ROOT

from gpu_tenancy.doctor.live import live_rows
from gpu_tenancy.doctor.results import Row
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.observability.expressions import Expressions
from gpu_tenancy.model.plan import Plan

METRICS: Final = ROOT / "tests" / "observability" / "metrics.yaml"
API = "admissionregistration.k8s.io/v1"
NAME = "gpu-tenancy-scheduling"
BINDING = ("ValidatingAdmissionPolicyBinding", NAME)
POLICY = ("ValidatingAdmissionPolicy", NAME)
GUARD = ("guard", f"scheduling in {RESEARCH}")


@pytest.fixture(scope="module")
def plan(sections: Data) -> Plan:
    return planned(sections)


def missing(rows: list[Row]) -> dict[tuple[str, str], str]:
    return {(row.check, row.subject): row.available for row in rows if row.verdict == "missing"}


def asked(cluster: Cluster, plan: Plan, deployed: Waves, team: str = RESEARCH) -> list[Row]:
    return [*live_rows(cluster, plan, flat(deployed), team)]


def test_guards_that_are_in_force_are_ok_in_every_namespace(cluster: Cluster, plan: Plan, deployed: Waves) -> None:
    rows = asked(cluster, plan, deployed, "")
    assert missing(rows) == {}
    tried = {row.subject.partition(" ")[0]: row for row in rows if row.check == "guard" and row.verdict == "OK"}
    assert {"accounts", "amount", "devices", "queue", "release", "scheduling", "secrets", "tokens"} <= tried.keys()
    by_rbac, by_guard = (f"not asked: denied first by {who}; policy as in the stack" for who in ("RBAC", NAME))
    assert {row.available for row in tried.values()} <= {"denied", by_rbac, by_guard}
    assert tried["scheduling"].available == "denied"
    assert tried["disruption"].available == tried["expose"].available == by_rbac


@contextmanager
def changed(cluster: Cluster, deployed: Waves, kind: str, patch: Any, name: str = NAME) -> Generator[None]:
    """A policy or binding that somebody changed by hand, or deleted, for a while."""
    own = next(one for one in flat(deployed) if (one["kind"], one["metadata"]["name"]) == (kind, name))  # type: ignore[index]
    if patch is None:
        cluster.delete(Reference.of(own))
    else:
        cluster.patch(Reference.of(own), patch)
    try:
        yield
    finally:
        cluster.delete(Reference.of(own))  # an apply would merge lists with those of the patch
        cluster.apply(own)


Weaker: TypeAlias = tuple[str, Any, dict[tuple[str, str], str]]
"""A kind, what is changed (None for a deletion), and what is missing then."""
WEAKER: list[Weaker] = [
    (BINDING[0], None, {BINDING: "missing", GUARD: "accepted"}),
    (
        BINDING[0],
        {"spec": {"validationActions": ["Audit"]}},
        {BINDING: "spec.validationActions[0] differs", GUARD: "accepted"},
    ),
    (
        BINDING[0],
        {"spec": {"validationActions": ["Warn"]}},
        {BINDING: "spec.validationActions[0] differs", GUARD: "warning"},
    ),
    (POLICY[0], None, {POLICY: "missing", GUARD: "accepted"}),
    (
        POLICY[0],
        {
            "spec": {
                "matchConstraints": {
                    "excludeResourceRules": [
                        {"apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["*"], "resources": ["jobs"]}
                    ]
                }
            }
        },
        {POLICY: "spec.matchConstraints.excludeResourceRules differs", GUARD: "accepted"},
    ),
]


@pytest.mark.parametrize("weaker", WEAKER)
def test_a_guard_that_was_deleted_or_weakened_is_found_by_its_spec_and_by_its_attempt(
    cluster: Cluster, plan: Plan, deployed: Waves, weaker: Weaker
) -> None:
    kind, patch, expected = weaker
    with changed(cluster, deployed, kind, patch):
        seen: dict[tuple[str, str], str] = {}

        def found() -> bool:
            seen.clear()
            seen.update(missing(asked(cluster, plan, deployed)))
            return seen == expected

        with suppress(WaitTimeoutError):
            cluster.wait_for(found, timeout=20)
        assert seen == expected
    cluster.wait_for(lambda: not missing(asked(cluster, plan, deployed)), what="the guard to be in force again")


def test_a_guard_that_rbac_denies_first_is_told_by_its_policy_alone(
    cluster: Cluster, plan: Plan, deployed: Waves
) -> None:
    with changed(cluster, deployed, POLICY[0], {"spec": {"failurePolicy": "Ignore"}}, "gpu-tenancy-expose"):
        rows = asked(cluster, plan, deployed)
    assert missing(rows) == {(POLICY[0], "gpu-tenancy-expose"): "spec.failurePolicy differs"}
    (row,) = (row for row in rows if row.subject == f"expose in {RESEARCH}")
    assert (row.available, row.verdict) == ("not asked: denied first by RBAC", "unknown")


def test_the_api_server_counts_changes_of_guards_with_the_labels_that_the_alert_reads(
    cluster: Cluster, door: Door, deployed: Waves
) -> None:
    with changed(cluster, deployed, BINDING[0], {"spec": {"validationActions": ["Audit"]}}):
        pass
    with door.let_in("prometheus", "cluster-admin") as prometheus:
        lines = [line for line in metrics_of(prometheus) if line.startswith("apiserver_request_total{")]
    series = [dict[str, str](re.findall(r'(\w+)="([^"]*)"', line)) for line in lines]
    (table,) = (row for row in yaml.safe_load(METRICS.read_bytes()) if row["from"] == "kube-apiserver")
    assert {name for labels in series for name in labels} == {*table["metrics"]["apiserver_request_total"]}
    matchers = re.findall(r'(\w+)=~?"([^"]*)"', Expressions.policy_changes())
    counted = [one for one in series if all(re.fullmatch(value, one[name]) for name, value in matchers)]
    changes = {("PATCH", "validatingadmissionpolicybindings"), ("DELETE", "validatingadmissionpolicybindings")}
    assert {(one["verb"], one["resource"]) for one in counted} >= changes


def metrics_of(person: Person) -> list[str]:
    trust = ssl.create_default_context(cadata=person.authority)
    connection = HTTPSConnection(urlsplit(person.cluster.server).netloc, context=trust)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {person.token}"})
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return lines


def test_who_may_not_impersonate_is_told_so_and_no_guard_is_called_missing(
    door: Door, plan: Plan, deployed: Waves
) -> None:
    with door.let_in("watcher", "view", RESEARCH, home="test-watcher") as watcher:
        rows = asked(watcher.cluster, plan, deployed)
    assert missing(rows) == {}
    assert {row.subject for row in rows if row.verdict != "unknown"} <= {"queue-objects in 1 namespace"}
    fixes = {row.fix for row in rows}
    assert "grant get on validatingadmissionpolicy in admissionregistration.k8s.io" in fixes
    assert "run it as somebody who may impersonate users and groups, on a stack whose teams have members" in fixes


def test_a_namespace_that_lost_its_label_is_found(cluster: Cluster, plan: Plan, deployed: Waves) -> None:
    namespace = Reference("v1", "Namespace", EXPERIMENTS)
    label = "app.kubernetes.io/managed-by"
    cluster.patch(namespace, {"metadata": {"labels": {label: "somebody"}}})
    try:
        subject = ("guard", f"scheduling in {EXPERIMENTS}")
        cluster.wait_for(
            lambda: missing(asked(cluster, plan, deployed, EXPERIMENTS)).get(subject) == "accepted", what="no guard"
        )
    finally:
        cluster.patch(namespace, {"metadata": {"labels": {label: "gpu-tenancy"}}})
    cluster.wait_for(lambda: not missing(asked(cluster, plan, deployed, EXPERIMENTS)), what="the guards to be back")
