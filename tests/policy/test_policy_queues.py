"""Rules about queues, servers and charts that cases cannot express: remedies, unknown values, a whole tenancy."""

from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import pytest
from google.protobuf import json_format, struct_pb2
from kit_builders import remediate
from policy_builders import UNKNOWN, Sample, doubt, findings, messages, secret, with_field
from pulumi.runtime.proto import analyzer_pb2 as wire
from samples import shared

from rule_engine import rules_of
from rule_engine.rules import AnyRule
from workload_rules import PACK, images, priorities, quotas, scaling

RULES = rules_of(quotas, priorities, scaling, images)
TENANCY = {
    name: shared(name)
    for name in (
        *("server", "rank", "hpa", "budget", "quota", "scoped-quota", "limits", "critical-class", "low-class"),
        *("queue-class", "flavor", "cluster-queue", "local-queue", "groups-cohort", "org-cohort"),
    )
}


def mended(given: Sample, autoscaled: list[str]) -> dict[str, Any] | None:
    """A resource after the rule's remedy, over the wire; None if it is unchanged."""
    response = remediate(PACK, scaling.replicas_left_out.name, given, {"autoscaled": autoscaled})
    if not response.remediations:
        return None
    (remediation,) = cast("list[wire.Remediation]", response.remediations)
    return json_format.MessageToDict(remediation.properties)


def with_replicas(count: object) -> Sample:
    return with_field(shared("server"), "spec.replicas", count)


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in RULES])
def test_a_consistent_tenancy_has_no_findings(rule: AnyRule) -> None:
    assert findings(rule, TENANCY) == []


@pytest.mark.parametrize("count", [10.0, UNKNOWN])
def test_remedy_removes_replicas_and_nothing_else(count: object) -> None:
    inputs = with_field(with_replicas(count), "spec.template.spec.containers.0.image", UNKNOWN)
    inputs = with_field(inputs, "metadata.annotations", {"token": secret("hunter2")})
    wanted = deepcopy(inputs.props)
    del wanted["spec"]["replicas"]
    sent = struct_pb2.Struct()
    sent.update(wanted)
    assert mended(inputs, ["ml-serving/*"]) == json_format.MessageToDict(sent)


@pytest.mark.parametrize(
    ("given", "autoscaled"),
    [
        pytest.param(with_replicas(10), [], id="it is not listed"),
        pytest.param(with_replicas(10), ["ml-research/*"], id="another namespace is listed"),
        pytest.param(shared("server"), ["*"], id="it has none"),
        pytest.param(replace(with_replicas(10), type="kubernetes:apps/v1:DaemonSet"), ["*"], id="another kind"),
        pytest.param(replace(with_replicas(10), type="aws:ecs/service:Service"), ["*"], id="another provider"),
        pytest.param(replace(with_replicas(10), props={"spec": UNKNOWN}), ["*"], id="nothing is known of it"),
    ],
)
def test_remedy_changes_listed_workloads_only(given: Sample, autoscaled: list[str]) -> None:
    assert mended(given, autoscaled) is None


def test_replicas_without_a_field_manager_are_unknown() -> None:
    server = with_replicas(3)
    server.props["metadata"]["managedFields"] = [
        {"operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]
    diagnostics = findings(scaling.replicas_left_out, {"server": server, "hpa": shared("hpa")})
    assert messages(diagnostics, "unknown") == (
        doubt("Deployment ml-serving/chat", "spec.replicas", "may be set by the program or by the API server"),
    )


@pytest.mark.parametrize("version", ["v3", "v4"])
def test_chart_without_inputs_is_unknown(version: str) -> None:
    diagnostics = findings(images.charts_pinned, {"chart": Sample(f"kubernetes:helm.sh/{version}:Chart", {}, "kueue")})
    assert messages(diagnostics, "unknown") == (
        doubt("Chart kueue", "chart", "is an input of a component, which policies cannot read during a deployment"),
    )
