"""GPU work in a team's namespace is counted by one of its queues, whatever kind it is and whoever it says made it."""

from typing import Any

import pytest
from acceptance_guards import (
    EXPERIMENTS,
    NO_QUEUE,
    QUEUE,
    RESEARCH,
    Person,
    cron_job,
    gang,
    job,
    job_set,
    pod,
    pod_group,
    pod_of,
    replicas,
    train_job,
)

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference

SCALED: Any = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledJob",
    "metadata": {"name": "s", "namespace": RESEARCH},
    "spec": {
        "jobTargetRef": {"template": {"spec": pod_of()}},
        "triggers": [{"type": "cron", "metadata": {"start": "0 3 * * *"}}],
    },
}
CONTROLLER: Any = {**replicas("ReplicaSet", RESEARCH, RESEARCH), "apiVersion": "v1", "kind": "ReplicationController"}
CONTROLLER["spec"] = {"template": CONTROLLER["spec"]["template"]}
OTHERS_QUEUE = NO_QUEUE.replace("without a queue", "in queue ml-serving, which is not a queue of this namespace")
AT_METADATA, AT_JOBS = " under metadata.labels", " under spec.jobTemplate.metadata.labels"
AT_TEMPLATE = f"{AT_METADATA} of each pod template with GPUs"


@pytest.mark.parametrize(
    ("manifest", "words"),
    {
        "pod": (pod(RESEARCH, None), NO_QUEUE + AT_METADATA),
        "pod in another's": (pod(RESEARCH, "ml-serving"), OTHERS_QUEUE + AT_METADATA),
        "job": (job(RESEARCH, None), NO_QUEUE + AT_METADATA),
        "job in another's": (job(RESEARCH, "ml-serving"), OTHERS_QUEUE + AT_METADATA),
        "cron job": (cron_job(RESEARCH, None), NO_QUEUE + AT_JOBS),
        "deployment": (replicas("Deployment", RESEARCH, None), NO_QUEUE + AT_METADATA),
        "stateful set": (replicas("StatefulSet", RESEARCH, None, inside=RESEARCH), NO_QUEUE + AT_METADATA),
        "replica set": (replicas("ReplicaSet", RESEARCH, RESEARCH), NO_QUEUE + AT_TEMPLATE),
        "replication controller": (CONTROLLER, NO_QUEUE + AT_TEMPLATE),
        "daemon set": (replicas("DaemonSet", RESEARCH, RESEARCH), NO_QUEUE + AT_TEMPLATE),
        "job set": (job_set(RESEARCH, None), NO_QUEUE + AT_METADATA),
        "scaled job": (SCALED, NO_QUEUE + AT_METADATA),
        "train job": (train_job(RESEARCH, None), NO_QUEUE + AT_METADATA),
        "train job of a runtime's GPUs": (train_job(RESEARCH, None, 0), NO_QUEUE + AT_METADATA),
    }.values(),
)
def test_gpu_work_without_its_namespaces_queue_is_refused_with_the_label_to_write(
    tenant: Person, manifest: Any, words: str
) -> None:
    assert tenant.refusal(manifest).endswith(f"denied request: {words}")


@pytest.mark.parametrize(
    "manifest",
    [
        pod(RESEARCH, RESEARCH),
        job(RESEARCH, RESEARCH),
        cron_job(RESEARCH, RESEARCH),
        replicas("Deployment", RESEARCH, RESEARCH),
        replicas("Deployment", RESEARCH, None, inside=RESEARCH),
        replicas("StatefulSet", RESEARCH, RESEARCH),
        replicas("ReplicaSet", RESEARCH, None, inside=RESEARCH),
        replicas("DaemonSet", RESEARCH, None, inside=RESEARCH),
        job_set(RESEARCH, RESEARCH),
        train_job(RESEARCH, RESEARCH),
        {**SCALED, "metadata": {**SCALED["metadata"], "labels": {QUEUE: RESEARCH}}},
        pod(RESEARCH, None, pod_of(0)),
        job(RESEARCH, None, pod_of(0)),
        gang(RESEARCH, "ml-research-l4"),
        pod_group(RESEARCH, "ml-research-l4"),
        pod(
            RESEARCH,
            None,
            pod_of(schedulerName="volcano"),
            annotations={"scheduling.volcano.sh/queue-name": "ml-research-l4"},
        ),
        job(RESEARCH, RESEARCH, pod_of(schedulerName="volcano")),
    ],
    ids=lambda one: one["kind"],
)
def test_work_in_its_queue_or_without_gpus_passes_every_rule(tenant: Person, manifest: Any) -> None:
    assert not tenant.refusal(manifest)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (
            gang(RESEARCH, None),
            "uses Volcano queue default, which is not a queue of this namespace; set spec.queue: ml-research-l4",
        ),
        (
            pod(RESEARCH, None, pod_of(schedulerName="volcano")),
            (
                "uses Volcano queue default, which is not a queue of this namespace; set annotation"
                " scheduling.volcano.sh/queue-name: ml-research-l4"
            ),
        ),
        (
            pod_group(RESEARCH, "default"),
            "uses Volcano queue default, which is not a queue of this namespace; set spec.queue: ml-research-l4",
        ),
        (
            gang(EXPERIMENTS, "ml-research-l4", schedulerName="default-scheduler"),
            (
                "uses Volcano queue ml-research-l4, which is not a queue of this namespace; the team has none: create a"
                " Job with label kueue.x-k8s.io/queue-name: ml-experiments"
            ),
        ),
    ],
)
def test_a_gang_passes_only_in_a_queue_of_its_teams(tenant: Person, manifest: Any, words: str) -> None:
    assert words in tenant.refusal(manifest)


def test_a_forged_owner_reference_does_not_bypass_the_queue(cluster: Cluster, tenant: Person) -> None:
    running = cluster.get("batch/v1", "Job", "nightly", RESEARCH) or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": text_at(running, "metadata", "uid")}
    message = tenant.refusal(pod(RESEARCH, None, ownerReferences=[{**owner, "controller": True}]))
    assert NO_QUEUE in message
    message = tenant.refusal(pod(RESEARCH, RESEARCH, ownerReferences=[{**owner, "controller": True}]))
    assert (
        "sets Job nightly as its controller, so the queue would not count its GPUs; remove metadata.ownerReferences"
        in message
    )
    # An owner that only deletes with itself, and one that Kueue does not know, change nothing of what is counted.
    assert not tenant.refusal(pod(RESEARCH, RESEARCH, ownerReferences=[owner]))
    other = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "1", "controller": True}
    assert not tenant.refusal(job(RESEARCH, RESEARCH, ownerReferences=[other]))


def test_a_gang_that_was_in_its_queue_may_not_leave_it(cluster: Cluster, tenant: Person) -> None:
    own = pod_group(RESEARCH, "ml-research-l4")
    cluster.apply(own)
    elsewhere: Any = {"spec": {"queue": "default"}}
    with pytest.raises(ApiError, match="uses Volcano queue default"):
        tenant.cluster.patch(Reference.of(own), elsewhere)
    cluster.delete(Reference.of(own))
