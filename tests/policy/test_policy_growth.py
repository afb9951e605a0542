"""Rules over a whole stack: the number of parts that they visit grows as the number of resources does.

Times would depend on the machine, so parts are counted; `make bench` measures the times.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import pytest
import yaml
from policy_builders import Sample, manifest

from rule_engine import Resource, Subject
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule
from rule_engine.stacks import Among, Stack
from workload_rules import PACK

WHOLE: Final = [rule for rule in PACK.rules if rule.whole]
FEW: Final = 6
TIMES: Final = 4

# Objects that a namespace has once.
ONCE: Final = """
{apiVersion: v1, kind: Namespace, metadata: {name: NAMESPACE}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: NAMESPACE},
 spec: {podSelector: {}, policyTypes: [Ingress]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota, namespace: NAMESPACE}, spec: {hard:
 {requests.nvidia.com/gpu: 100000, requests.nvidia.com/gpu.shared: 100000, limits.memory: 1Ti,
  gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 8}}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: scoped, namespace: NAMESPACE}, spec: {hard: {pods: 8},
 scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [class-NUMBER]}]}}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: limits, namespace: NAMESPACE},
 spec: {limits: [{type: Container, default: {memory: 1Gi}}]}}
"""
MANY: Final = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: queue-NUMBER, namespace: NAMESPACE},
 spec: {clusterQueue: queue-NUMBER}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: queue-NUMBER}, spec: {cohortName:
 cohort-NUMBER, resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: flavor-NUMBER, resources:
 [{name: nvidia.com/gpu, nominalQuota: 1, borrowingLimit: 0}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: flavor-NUMBER}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: cohort-NUMBER}, spec: {parentName: cohort-NEXT}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: class-NUMBER}, value: 1, globalDefault: true}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: class-NUMBER}, value: 1000}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: server-NUMBER, namespace: NAMESPACE},
 spec: {replicas: 2, template: {metadata: {labels: {app: server-NUMBER, tier: serving}}, spec: {priorityClassName:
 class-NUMBER, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: server-NUMBER, namespace: NAMESPACE},
 spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: server-NUMBER}, minReplicas: 2, maxReplicas: 4}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: server-NUMBER, namespace: NAMESPACE},
 spec: {minAvailable: 1, selector: {matchLabels: {app: server-NUMBER, tier: serving}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: shared-NUMBER, namespace: NAMESPACE}, spec: {template: {spec:
 {priorityClassName: class-NUMBER, containers: [{name: main, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: job-NUMBER, namespace: NAMESPACE, labels:
 {kueue.x-k8s.io/queue-name: queue-NUMBER, kueue.x-k8s.io/priority-class: class-NUMBER}}, spec: {template: {spec:
 {priorityClassName: class-NUMBER, nodeSelector: {pool: a},
 containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: gang-NUMBER, namespace: NAMESPACE}, spec: {tasks:
 [{name: worker, template: {spec: {nodeSelector: {pool: b},
 containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}}]}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: claim-NUMBER, namespace: NAMESPACE},
 spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: claiming-NUMBER, namespace: NAMESPACE}, spec: {template: {spec:
 {resourceClaims: [{name: gpu, resourceClaimTemplateName: claim-NUMBER}], containers: [{name: main}]}}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: role-NUMBER, namespace: NAMESPACE},
 rules: [{apiGroups: ["*"], resources: [resourcequotas], verbs: [create]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role-NUMBER, labels:
 {rbac.authorization.k8s.io/aggregate-to-edit: "true"}}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: role-NUMBER, namespace: NAMESPACE},
 roleRef: {kind: Role, name: role-NUMBER}, subjects: [{kind: User, name: user-NUMBER}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: role-NUMBER},
 roleRef: {kind: ClusterRole, name: role-NUMBER}, subjects: [{kind: User, name: user-NUMBER}]}
"""
POOL: Final[dict[str, Any]] = {"amiType": "AL2023_x86_64_NVIDIA", "labels": {}}
CHART: Final[dict[str, Any]] = {"chart": "other", "version": "1.2.3"}


def samples(text: str, namespace: str, number: int) -> list[Sample]:
    filled = text.replace("NAMESPACE", namespace).replace("NUMBER", str(number)).replace("NEXT", str(number + 1))
    return [manifest(yaml.safe_dump(document)) for document in yaml.load_all(filled, yaml.CSafeLoader)]


@cache
def program(count: int, *, one_namespace: bool) -> tuple[Sample, ...]:
    """All objects that rules over a stack look up, `count` times: in one namespace, or each in its own."""
    resources: list[Sample] = []
    for number in range(count):
        namespace = "ml" if one_namespace else f"ml-{number}"
        if number == 0 or not one_namespace:
            resources += samples(ONCE, namespace, number)
        resources += samples(MANY, namespace, number)
        resources.append(Sample("aws:eks/nodeGroup:NodeGroup", POOL, f"pool-{number}"))
        chart = CHART if number else CHART | {"chart": "gpu-operator"}
        resources.append(Sample("kubernetes:helm.sh/v3:Release", chart, f"chart-{number}"))
    return tuple(resources)


class Counting(Stack):
    """A stack that counts the parts that rules visit."""

    visits = 0

    def _matching(
        self,
        subject: Subject[Any],
        predicate: Callable[[Any], bool],
        among: "Sequence[Among[Any]]",
    ) -> Iterator[Any]:
        def counted(part: Any) -> bool:
            self.visits += 1
            return predicate(part)

        return super()._matching(subject, counted, among)


def visits(rule: AnyRule, count: int, *, one_namespace: bool) -> int:
    resources: list[Resource] = [sample.resource() for sample in program(count, one_namespace=one_namespace)]
    stack, evaluator = Counting(resources), Evaluator(PACK)
    # Trust makes the rule about time-sliced GPUs look for a stranger among all.
    settings = {"trusting": {"all": ["*"]}} if rule.name == "time-slicing-trust" else {}
    evaluator.configure({}, {rule.name: settings})
    parts = [part for resource in resources if rule.on.selects(resource) for part in resource.parts(rule.on)]
    assert parts, "the program has nothing that the rule is about"
    errors = [
        finding.message
        for resource in resources
        if rule.on.selects(resource)
        for finding in evaluator.findings(rule, resource, stack)
        if finding.outcome in {"error", "unknown"}
    ]
    assert errors == []
    return stack.visits


@pytest.mark.slow
@pytest.mark.parametrize("one_namespace", [True, False], ids=["one namespace", "many namespaces"])
@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in WHOLE])
def test_the_lookups_of_stack_rules_grow_linearly_with_the_stack(rule: AnyRule, *, one_namespace: bool) -> None:
    few = visits(rule, FEW, one_namespace=one_namespace)
    many = visits(rule, FEW * TIMES, one_namespace=one_namespace)
    assert few
    assert many <= few * TIMES * 1.2, f"{few} visits for {FEW}, {many} for {FEW * TIMES}"
