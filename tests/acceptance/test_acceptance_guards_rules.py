"""What work in a team's namespace may tolerate, name and ask for, beside its queue."""

import re
from copy import deepcopy
from typing import Any

import pytest
from acceptance_guards import (
    EXPERIMENTS,
    GPU,
    NO_QUEUE,
    PRODUCTION,
    QUEUE,
    RESEARCH,
    TOLERATION,
    Person,
    bounded,
    gang,
    job,
    job_set,
    pod,
    pod_of,
    replicas,
    train_job,
)

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference

ANY = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("toleration", "words"),
    [
        (TOLERATION, "tolerates nvidia.com/gpu but requests no GPU; remove the toleration"),
        (ANY, "tolerates every taint but requests no GPU; set the keys of the taints, without those of GPU nodes"),
    ],
)
def test_work_without_gpus_that_tolerates_their_taint_is_refused_in_every_kind(
    tenant: Person, toleration: Any, words: str
) -> None:
    spec = pod_of(0, tolerations=[{"key": "dedicated", "operator": "Exists"}, toleration])
    for manifest in (
        pod(RESEARCH, None, spec),
        job(RESEARCH, RESEARCH, spec),
        replicas("Deployment", RESEARCH, RESEARCH, spec=spec),
        job_set(RESEARCH, RESEARCH, spec),
        gang(RESEARCH, "ml-research-l4", spec),
    ):
        assert tenant.refusal(manifest).endswith(f"denied request: {words}")
    assert not tenant.refusal(pod(RESEARCH, RESEARCH, pod_of(1, tolerations=[toleration])))
    assert not tenant.refusal(pod(RESEARCH, None, pod_of(0, tolerations=spec["tolerations"][:1])))


STARTING: Any = pod_of(0, initContainers=[{**pod_of()["containers"][0], "name": "i"}])
CLAIMING: Any = pod_of(0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])


BESIDE: Any = {"name": "beside", "image": "a:1"}


def with_amounts(*fields: str, gpus: str = "1", **spec: Any) -> Any:
    """A pod with GPUs under limits or requests only, and a container without."""
    found = pod_of(**spec)
    found["containers"] = [{**BESIDE, "name": "c", "resources": {field: {GPU: gpus} for field in fields}}, BESIDE]
    return found


@pytest.mark.parametrize(
    "manifest",
    [
        job(EXPERIMENTS, None, STARTING),
        job(EXPERIMENTS, None, with_amounts("limits")),
        job_set(EXPERIMENTS, None, with_amounts("requests")),
    ],
    ids=["init containers", "limits", "requests"],
)
def test_gpus_are_those_of_any_container_under_limits_or_requests(tenant: Person, manifest: Any) -> None:
    tolerating = deepcopy(manifest)
    template = tolerating["spec"]
    if "replicatedJobs" in template:
        template = template["replicatedJobs"][0]["template"]["spec"]
    for tolerations, label, words in (
        ([TOLERATION], {}, "requests GPUs without a queue; set label"),
        ([], {QUEUE: EXPERIMENTS}, f"requests {GPU} but does not tolerate taint {GPU} of its nodes"),
        ([TOLERATION], {QUEUE: EXPERIMENTS}, ""),
    ):
        template["template"]["spec"]["tolerations"] = tolerations
        tolerating["metadata"]["labels"] = label
        message = tenant.refusal(tolerating)
        assert words in message if words else not message, message


def test_no_gpus_need_neither_queue_nor_toleration(tenant: Person) -> None:
    assert not tenant.refusal(job(EXPERIMENTS, None, with_amounts("limits", "requests", gpus="0", tolerations=[])))


@pytest.mark.parametrize("at", ["patches", "jobs"])
def test_one_of_several_parts_of_a_runtime_has_the_gpus(tenant: Person, at: str) -> None:
    training = train_job(RESEARCH, RESEARCH)
    other = deepcopy(training["spec"]["runtimePatches"][0]) | {"manager": "example.com/other"}
    runtime = other["trainingRuntimeSpec"]["template"]["spec"]
    runtime["replicatedJobs"] = [{"name": "dataset-initializer", "template": {"spec": {}}}]
    if at == "patches":
        training["spec"]["runtimePatches"].append(other)
    else:
        training["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"].extend(
            runtime["replicatedJobs"]
        )
    assert not tenant.refusal(training)


@pytest.mark.parametrize("spec", [STARTING, CLAIMING], ids=["of init containers", "by claims"])
def test_pods_with_gpus_tolerate_the_taint_wherever_they_request_them(tenant: Person, spec: Any) -> None:
    assert not tenant.refusal(job(RESEARCH, RESEARCH, {**spec, "tolerations": [TOLERATION]}))


def test_pods_with_gpus_that_do_not_tolerate_their_taint_are_told_where_to_write_it(tenant: Person) -> None:
    words = f"requests {GPU} but does not tolerate taint {GPU} of its nodes, so it would be pending for ever; set"
    message = tenant.refusal(job(RESEARCH, RESEARCH, STARTING))
    assert words in message
    assert message.endswith("in the spec of the pods with GPUs")
    training = train_job(RESEARCH, RESEARCH)
    assert not tenant.refusal(training)
    del training["spec"]["runtimePatches"]
    message = tenant.refusal(training)
    assert words in message
    assert "in the pods of the runtime: spec.runtimePatches" in message


def test_a_gpu_of_zero_is_none_and_a_claim_of_a_device_is_one(tenant: Person) -> None:
    spec = pod_of(0, tolerations=[TOLERATION])
    spec["containers"][0]["resources"]["limits"][GPU] = "0"
    assert "requests no GPU" in tenant.refusal(job(RESEARCH, RESEARCH, spec))
    assert NO_QUEUE in tenant.refusal(job(RESEARCH, None, CLAIMING))


def test_the_queues_own_class_is_bound_likewise(tenant: Person) -> None:
    jumping = job(PRODUCTION, PRODUCTION, pod_of(priorityClassName="ml-high"))
    assert not tenant.refusal(jumping)
    jumping["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "ml-low"
    assert "uses priority class ml-low, which is not allowed in this namespace" in tenant.refusal(jumping)


def test_as_many_gpus_in_one_container_as_the_team_may_have_are_admitted(tenant: Person) -> None:
    assert not tenant.refusal(job(PRODUCTION, PRODUCTION, pod_of(4, priorityClassName="ml-high")))


def test_init_containers_that_end_are_not_added_up(tenant: Person) -> None:
    before = [{**pod_of(8)["containers"][0], "name": "before"}]
    assert not tenant.refusal(job(EXPERIMENTS, EXPERIMENTS, pod_of(8, initContainers=before)))


def test_gpus_that_no_node_has_are_refused(tenant: Person) -> None:
    spec = pod_of(0)
    part = "nvidia.com/mig-1g.10gb"
    for amounts in spec["containers"][0]["resources"].values():
        amounts[part] = "1"
    message = tenant.refusal(job(EXPERIMENTS, EXPERIMENTS, spec))
    assert f"requests {part} in container c, which no node has; request nvidia.com/gpu" in message


def test_a_limit_beyond_the_namespaces_ratio_is_refused_before_the_queue_admits_it(tenant: Person) -> None:
    # ml-research has requests of 64 cpus and limits of 128.
    assert not tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=("2", "4"))))
    assert not tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=("1500m", None))))
    words = (
        "limits cpu to 4 for a request of 1 in container c, but the maximum ratio in this namespace is 2, so its pods"
        " would be rejected after admission; set limits.cpu: 1, or raise the request"
    )
    assert words in tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=("1", "4"))))
    words = (
        "sets no limit of cpu for a request of 500m in container c, so LimitRange containers sets 2, which is above the"
        " maximum ratio of 2 in this namespace, and its pods would be rejected; set limits.cpu: 500m"
    )
    assert words in tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=("500m", None))))


@pytest.mark.parametrize(
    "requests",
    [
        {"cpu": "3"},
        {"memory": "200Mi"},
        {"cpu": "6", "memory": "12Gi"},
        {"cpu": "100m", "memory": "1Gi"},
        {"cpu": "6", "memory": "200Mi"},
    ],
)
def test_what_a_refusal_of_requests_without_limits_says_to_write_is_accepted(tenant: Person, requests: Any) -> None:
    """As most examples of Kueue are written, where no defaults complete them."""
    for make in (job, job_set):
        spec = pod_of(0)
        resources: Any = {"requests": requests}
        spec["containers"][0]["resources"] = resources
        said = tenant.refusal(make(RESEARCH, RESEARCH, spec))
        assert "sets no limit of" in said
        assert "so LimitRange containers sets" in said
        resources["limits"] = dict(re.findall(r"limits\.(cpu|memory): (\w+)", said.rpartition("; set ")[2]))
        assert resources["limits"] == requests
        assert not tenant.refusal(make(RESEARCH, RESEARCH, spec))


def test_a_running_pod_cannot_add_a_forbidden_toleration(cluster: Cluster, tenant: Person) -> None:
    cluster.create(pod(EXPERIMENTS, None, pod_of(0)))
    reference = Reference("v1", "Pod", "p", EXPERIMENTS)
    now: Any = cluster.get(*reference)
    tolerating: Any = {"spec": {"tolerations": [*now["spec"]["tolerations"], TOLERATION]}}
    noted: Any = {"metadata": {"labels": {"note": "x"}}}
    with pytest.raises(ApiError, match=r"tolerates nvidia\.com/gpu but requests no GPU"):
        tenant.cluster.patch(reference, tolerating)
    tenant.cluster.patch(reference, noted)
    cluster.delete(reference, grace=0)
