"""Of whom the guards judge what: of tenants all, of controllers nothing twice, elsewhere nothing."""

from copy import deepcopy
from typing import Any

import pytest
from acceptance_builders import Waves, flat
from acceptance_guards import (
    EXPERIMENTS,
    NO_QUEUE,
    POLICIES,
    QUEUE,
    RESEARCH,
    Door,
    Person,
    job,
    job_set,
    labels,
    owned,
    pod,
    pod_group,
    pod_of,
    replicas,
)

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference


def test_objects_older_than_the_guards_can_be_scaled_and_annotated_only(cluster: Cluster, tenant: Person) -> None:
    # The administrator is in system:masters, whom no rule judges: as if this were older than they.
    old = replicas("Deployment", EXPERIMENTS, None)
    old["spec"]["replicas"] = 0
    cluster.apply(old)
    reference = Reference.of(old)
    tenant.cluster.patch(reference, {"spec": {"replicas": 1}})
    tenant.cluster.patch(reference, {"metadata": {"annotations": {"note": "x"}}})
    with pytest.raises(ApiError, match="requests GPUs without a queue"):
        tenant.cluster.patch(reference, {"spec": {"template": {"metadata": {"labels": {"changed": "yes"}}}}})
    tenant.cluster.patch(reference, {"metadata": {"labels": {QUEUE: EXPERIMENTS}}})
    cluster.delete(reference)


def test_controllers_create_children_of_evaluated_objects(cluster: Cluster, tenant: Person) -> None:
    tenant.cluster.apply({**replicas("Deployment", EXPERIMENTS, EXPERIMENTS), "metadata": metadata("web")})
    tenant.cluster.apply({**job(EXPERIMENTS, EXPERIMENTS), "metadata": metadata("batch")})
    for name in ("web", "batch"):
        (made, *_) = cluster.wait_for(lambda name=name: pods_of(cluster, name) or None, what=f"the pod of {name}")
        assert at(made, "metadata", "labels", QUEUE) is None, "its owner has the queue; here no Kueue passes it on"
    for api, kind, name in (("apps/v1", "Deployment", "web"), ("batch/v1", "Job", "batch")):
        tenant.cluster.delete(Reference(api, kind, name, EXPERIMENTS))


def pods_of(cluster: Cluster, name: str) -> list[Any]:
    pods = cluster.list("v1", "Pod", namespace=EXPERIMENTS)
    return [one for one in pods if text_at(one, "metadata", "name").startswith(f"{name}-")]


def metadata(name: str) -> Any:
    return {"name": name, "namespace": EXPERIMENTS, "labels": labels(EXPERIMENTS)}


def test_every_object_of_the_stack_passed_and_its_pods_were_made(cluster: Cluster, deployed: Waves) -> None:
    for manifest in flat(deployed):
        assert cluster.exists(*Reference.of(manifest)), manifest["metadata"]
    for namespace, name, count in (("ml-serving", "model-server", 3), (RESEARCH, "nightly", 4)):
        chosen = f"app.kubernetes.io/name={name}"
        cluster.wait_for(
            lambda namespace=namespace, chosen=chosen, count=count: (
                len(cluster.list("v1", "Pod", namespace=namespace, labels=chosen)) >= count
            ),
            what=f"the pods of {name}",
        )


TRAIN_JOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
OF_GANG = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "g", "uid": "1"}
LIMITED = pod_of()
del LIMITED["containers"][0]["resources"]["requests"]

OTHERS = {
    "kubeflow-system": [
        (owned(*TRAIN_JOB, job_set(RESEARCH, None)), ""),
        (owned(*TRAIN_JOB, job_set(RESEARCH, None, LIMITED)), "sets nvidia.com/gpu under limits only in container c"),
        (owned("jobset.x-k8s.io/v1alpha2", "JobSet", job(RESEARCH, None)), ""),
        (job(RESEARCH, None), NO_QUEUE),
        (owned("example.com/v1", "Other", job_set(RESEARCH, None)), NO_QUEUE),
        (owned(*TRAIN_JOB, job_set(RESEARCH, None, pod_of(schedulerName="mine"))), "sets schedulerName mine"),
        # Of the TrainJob, which Kueue counts.
        (owned(*TRAIN_JOB, pod_group(RESEARCH, "default")), ""),
        (owned(*TRAIN_JOB, pod_group(RESEARCH, "ml-serving-l4")), "uses Volcano queue ml-serving-l4"),
    ],
    "volcano-system": [
        (owned("batch.volcano.sh/v1alpha1", "Job", pod(RESEARCH, None, pod_of(schedulerName="volcano"))), ""),
        (pod(RESEARCH, None), NO_QUEUE),
        # An owner that is no controller.
        (pod(RESEARCH, None, ownerReferences=[OF_GANG]), NO_QUEUE),
    ],
    "guards-others": [(pod(RESEARCH, None), NO_QUEUE)],
    # What is in no queue is not counted at all.
    "guards-exempt": [(pod(RESEARCH, None), ""), (job(RESEARCH, None, LIMITED), "")],
}


@pytest.mark.parametrize("home", OTHERS)
def test_operators_create_children_of_evaluated_owners_and_others_only_if_exempt(
    cluster: Cluster, door: Door, deployed: Waves, home: str
) -> None:
    assert deployed
    with door.let_in("operator", "cluster-admin", home=home) as operator:
        cluster.wait_for(lambda: not operator.refusal(job(RESEARCH, RESEARCH)), what="rights")
        for manifest, words in OTHERS[home]:
            message = operator.refusal(manifest)
            assert words in message if words else not message, message


def test_system_namespaces_and_those_of_nobodys_team_are_never_judged(
    cluster: Cluster, door: Door, namespace: str, deployed: Waves
) -> None:
    assert deployed
    label = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
    teams: Any = {"metadata": {"labels": label}}
    nobodys: Any = {"metadata": {"labels": dict.fromkeys(label)}}
    system = Reference("v1", "Namespace", "kube-system")
    for name in ("kube-system", namespace):
        cluster.wait_for(lambda name=name: cluster.exists("v1", "ServiceAccount", "default", name), what="accounts")
    broken = pod_of(
        0,
        tolerations=[{"operator": "Exists"}],
        schedulerName="mine",
        nodeName="n",
        priorityClassName="system-node-critical",
    )
    with door.let_in("visitor", "cluster-admin") as visitor:
        cluster.wait_for(lambda: not visitor.refusal(job("kube-system", None)), what="rights")
        cluster.patch(system, teams)
        assert not visitor.refusal(job("kube-system", None, broken))
        cluster.patch(system, nobodys)
        assert not visitor.refusal(job(namespace, None, broken))
        cluster.patch(Reference("v1", "Namespace", namespace), teams)
        visitor.wait_for_refusal(job(namespace, None), "requests GPUs without a queue", what="the label to count")


def test_rights_come_from_the_policys_spec_alone(deployed: Waves) -> None:
    policies: list[Any] = [deepcopy(one) for one in flat(deployed) if one["kind"] == "ValidatingAdmissionPolicy"]
    assert {one["metadata"]["name"].removeprefix("gpu-tenancy-") for one in policies} == {*POLICIES, "gpu-requests"}
    # Its parameters are Workloads, which tenants cannot change.
    assert [one["metadata"]["name"] for one in policies if "paramKind" in one["spec"]] == ["gpu-tenancy-rollout"]
