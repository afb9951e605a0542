"""Attempts to get a pod past the packs: random objects of any kind, with violations that the test puts there."""

from collections.abc import Sequence
from typing import Final

import pytest
from generated_pods import NAMESPACE, QUIET, VIOLATIONS, Json, Placed, placed, pods
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_builders import TODAY, Sample, all_findings, manifest

from rule_engine import EnforcementLevel
from rule_engine.evaluator import Evaluator, Finding, Outcome
from workload_rules import PACK

TEMPLATE: Final = manifest(f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: eight, namespace: {NAMESPACE}}}
spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com, count: 8}}}}]}}}}}}
""")
QUEUE: Final = {"kueue.x-k8s.io/queue-name": NAMESPACE}
EVALUATOR: Final = Evaluator(PACK, TODAY)
NAMES_OF_VIOLATIONS: Final = st.lists(st.sampled_from(sorted(VIOLATIONS)), min_size=1, max_size=3, unique=True)
STRICT: Final = Evaluator(PACK, TODAY)
STRICT.configure({rule.name: EnforcementLevel.MANDATORY for rule in PACK.rules}, {})


def found(sample: Sample, evaluator: Evaluator = EVALUATOR) -> list[Finding]:
    return all_findings(evaluator, [sample, TEMPLATE])


def broken(findings: Sequence[Finding]) -> set[str]:
    return {finding.rule.name for finding in findings if finding.outcome is Outcome.BROKEN}


@pytest.mark.slow
@settings(QUIET)
@given(where=placed(), pod=pods(), names=NAMES_OF_VIOLATIONS, at=st.integers(0, 9))
def test_each_violation_is_found_in_any_object_and_template(
    where: Placed, pod: Json, names: list[str], at: int
) -> None:
    for name in names:
        VIOLATIONS[name].put(pod, at)
    findings = found(where.holding(pod, QUEUE))
    # The last one wins where two write the same field.
    assert VIOLATIONS[names[-1]].rule in broken(findings)
    assert [finding.message for finding in findings if finding.outcome is Outcome.ERROR] == []


@pytest.mark.slow
@settings(QUIET)
@given(where=placed(), pod=pods())
def test_a_valid_pod_has_no_findings_in_any_object_and_template(where: Placed, pod: Json) -> None:
    findings = found(where.holding(pod, QUEUE), STRICT)
    # What is around the pod can look like a field of another type, which is named as not evaluated; so are rules that
    # need more than a patch has.
    messages = [finding.message for finding in findings if finding.outcome is not Outcome.UNKNOWN]
    assert [text for text in messages if not (where.kind.endswith("Patch") and ": not evaluated: " in text)] == []


@pytest.mark.slow
@settings(QUIET)
@given(where=placed(), pod=pods(), at=st.integers(0, 9), claimed=st.booleans())
def test_batch_work_with_gpus_and_without_a_queue_is_found(where: Placed, pod: Json, at: int, *, claimed: bool) -> None:
    VIOLATIONS["GPUs of a claim without a quota" if claimed else "GPUs without a quota"].put(pod, at)
    batch = where.kind.removesuffix("Patch") not in WITHOUT_QUEUE  # of a patch, the label is not known
    assert ("batch-names-queue" in broken(found(where.holding(pod, {})))) == batch
    if "CronJob" not in where.kind:  # it has the label in the template of its jobs
        assert "batch-names-queue" not in broken(found(where.holding(pod, QUEUE)))


WITHOUT_QUEUE: Final = frozenset(
    {
        "core/v1:Pod",
        "core/v1:PodTemplate",
        "core/v1:ReplicationController",
        "apps/v1:Deployment",
        "apps/v1:StatefulSet",
        "apps/v1:ReplicaSet",
        "ray.io/v1:RayCluster",
        "serving.kserve.io/v1beta1:InferenceService",
        "serving.kserve.io/v1alpha1:ServingRuntime",
        "apps.kruise.io/v1alpha1:CloneSet",
    }
)
"""Kinds that serve, or whose pods a quota alone limits."""
