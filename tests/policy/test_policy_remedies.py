"""Remedies: what is mended, and that all else goes back to the engine as it came."""

from copy import deepcopy
from typing import Any, cast

import grpc
import pytest
from google.protobuf import json_format, struct_pb2
from kit_builders import Refusal, remediate
from policy_builders import TODAY, UNKNOWN, Sample, secret
from pulumi.runtime.proto import analyzer_pb2 as wire

import workload_rules
from rule_engine.evaluator import Evaluator
from rule_engine.reading import SIGNATURE
from rule_engine.server import Analyzer

JOB = "kubernetes:batch/v1:Job"
RULE = "gpu-toleration"
MENDED = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
CONTEXT = cast("grpc.ServicerContext", Refusal())


def output(value: object) -> dict[str, object]:
    """An output that is known, as the engine sends it."""
    return {SIGNATURE: "d0e6a833031e9bbcd3f4e8bde6ca49a4", "value": value, "secret": False, "dependencies": ["urn:x"]}


def job() -> dict[str, Any]:
    """A Job whose pods miss a toleration, with secrets and unknown values in it."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nightly", "namespace": "ml-research", "annotations": {"built": UNKNOWN}},
        "spec": {
            "backoffLimit": 3.0,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "train",
                            "image": UNKNOWN,
                            "env": [{"name": "TOKEN", "value": secret("hunter2")}, {"name": "URL", "value": UNKNOWN}],
                            "resources": {"limits": {"nvidia.com/gpu": 8.0}},
                        }
                    ],
                    "hostIPC": None,
                }
            },
        },
    }


def pod(props: dict[str, Any]) -> dict[str, Any]:
    return props["spec"]["template"]["spec"]


def remedied(props: dict[str, Any], type_: str = JOB, settings: dict[str, Any] | None = None) -> wire.RemediateResponse:
    return remediate(workload_rules.PACK, RULE, Sample(type_, props), settings)


def mended(props: dict[str, Any], type_: str = JOB, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """The properties that go back to the engine."""
    (remediation,) = remedied(props, type_, settings).remediations
    assert (remediation.policyName, remediation.policyPackName, remediation.diagnostic) == (RULE, "gpu-workloads", "")
    return json_format.MessageToDict(remediation.properties)


def test_a_missing_toleration_is_added_and_nothing_else_changes() -> None:
    expected = job()
    pod(expected)["tolerations"] = [MENDED]
    assert mended(job()) == expected


def test_existing_tolerations_stay() -> None:
    own = {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}
    props = job()
    pod(props)["tolerations"] = [own]
    assert pod(mended(props))["tolerations"] == [own, MENDED]


@pytest.mark.parametrize("mark", [secret, output], ids=["secret", "output"])
def test_a_secret_or_output_is_changed_within_its_wrapper(mark: Any) -> None:
    own = {"key": "dedicated", "operator": "Exists"}
    props = job()
    pod(props)["tolerations"] = mark([own])
    props["spec"]["template"] = mark(props["spec"]["template"])
    expected = deepcopy(props)
    expected["spec"]["template"]["value"]["spec"]["tolerations"]["value"].append(MENDED)
    assert mended(props) == expected


def test_only_templates_that_request_gpus_are_changed() -> None:
    def task(name: str, limits: dict[str, object]) -> dict[str, Any]:
        spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        return {"name": name, "template": {"spec": spec}}

    props: dict[str, Any] = {
        "metadata": {"name": "gang", "namespace": "ml-research"},
        "spec": {"tasks": [task("worker", {"nvidia.com/gpu": 1.0}), task("master", {"cpu": "1"})]},
    }
    expected = deepcopy(props)
    expected["spec"]["tasks"][0]["template"]["spec"]["tolerations"] = [MENDED]
    assert mended(props, "kubernetes:batch.volcano.sh/v1alpha1:Job") == expected


def test_tolerations_are_added_for_the_taints_in_settings() -> None:
    tolerations = pod(mended(job(), settings={"taints": ["sku", "nvidia.com/gpu"]}))["tolerations"]
    assert tolerations == [MENDED, {**MENDED, "key": "sku"}]


def test_a_changed_resource_has_no_violation() -> None:
    props = struct_pb2.Struct()
    props.update(mended(job()))
    answer = Analyzer(Evaluator(workload_rules.PACK, TODAY)).Analyze(
        wire.AnalyzeRequest(type=JOB, urn="urn:x", name="nightly", properties=props), CONTEXT
    )
    assert RULE not in {finding.policyName for finding in answer.diagnostics}


def test_a_resource_without_a_violation_is_not_changed() -> None:
    props = job()
    pod(props)["tolerations"] = [MENDED]
    assert list(remedied(props).remediations) == []


def test_a_pod_in_a_system_namespace_is_not_changed() -> None:
    props = job()
    props["metadata"]["namespace"] = "gpu-operator"
    assert list(remedied(props).remediations) == []


def test_an_exempted_object_is_not_changed() -> None:
    props = job()
    props["metadata"]["annotations"] = {f"exempt.gpu-rules/{RULE}": "2026-12-31 its nodes have no taint"}
    response = remedied(props)
    assert list(response.remediations) == []
    assert [skipped.policy_name for skipped in response.not_applicable] == [RULE]


def test_unknown_tolerations_are_reported_and_not_changed() -> None:
    props = job()
    pod(props)["tolerations"] = UNKNOWN
    (remediation,) = remedied(props).remediations
    assert not remediation.HasField("properties")
    assert remediation.diagnostic == "spec.template.spec.tolerations is unknown until deployment"


def test_nothing_is_changed_without_the_level_remediate() -> None:
    response = Analyzer(Evaluator(workload_rules.PACK, TODAY)).Remediate(Sample(JOB, job()).request(), CONTEXT)
    assert (list(response.remediations), list(response.not_applicable)) == ([], [])
