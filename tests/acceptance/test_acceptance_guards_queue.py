"""GPU work in a team's namespace is counted by one of its queues, whatever kind it is and whoever it says made it."""

from typing import Any

import pytest
from acceptance_guards import (
    NO_QUEUE,
    RESEARCH,
    Person,
    job,
    pod,
    pod_group,
    replicas,
)

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference

CONTROLLER: Any = {**replicas("ReplicaSet", RESEARCH, RESEARCH), "apiVersion": "v1", "kind": "ReplicationController"}
CONTROLLER["spec"] = {"template": CONTROLLER["spec"]["template"]}


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
