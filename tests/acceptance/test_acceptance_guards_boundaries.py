"""What is just inside of a guard, and just outside."""

from collections.abc import Iterator
from typing import Any

import pytest
from acceptance_guards import (
    EXPERIMENTS,
    GPU,
    PRODUCTION,
    QUEUE,
    RESEARCH,
    Door,
    Person,
    bounded,
    gang,
    job,
    job_set,
    labels,
    network_policy,
    pod,
    pod_of,
    replicas,
    train_job,
)

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

GROUP = "scheduling.k8s.io/group-name"
GANG_QUEUE = "scheduling.volcano.sh/queue-name"


def asking(**limits: str) -> Any:
    """A container with limits only."""
    return {
        "name": "more",
        "image": "a:1",
        "resources": {"limits": {key.replace("__", "/"): n for key, n in limits.items()}},
    }


def limited(gpus: int) -> Any:
    """A pod whose GPUs are limits only, which the API server takes as requests."""
    spec = pod_of(gpus)
    spec["containers"] = [{**asking(), "resources": {"limits": {GPU: str(gpus)}}}]
    return spec


MANY = "requests 16 nvidia.com/gpu in one pod, but the largest node has 8"


def test_gpus_that_are_requests_only_are_counted(tenant: Person) -> None:
    def requesting(number: int) -> Any:
        found = train_job(EXPERIMENTS, EXPERIMENTS, number)
        del found["spec"]["trainer"]["resourcesPerNode"]["limits"]
        return found

    assert MANY in tenant.refusal(requesting(16))
    assert not tenant.refusal(requesting(8))


def test_gpus_that_are_limits_only_are_within_the_maximum_of_a_container(tenant: Person) -> None:
    def serving(number: int) -> Any:
        return replicas("Deployment", PRODUCTION, PRODUCTION, spec={**limited(number), "priorityClassName": "ml-high"})

    assert "requests 6 nvidia.com/gpu in container more, but the maximum of a container" in tenant.refusal(serving(6))
    assert not tenant.refusal(serving(4))


OTHER: Any = "guards-of-facts"


@pytest.fixture(scope="module")
def newcomer(door: Door, tenant: Person) -> Iterator[Person]:
    """Somebody who may edit a namespace with other facts than those of the stack's teams."""
    assert tenant
    facts = {
        "default_limits": "cpu=1,memory=2Gi",
        "max_gpus_per_container": "nvidia.com/gpu=4,nvidia.com/mig-1g.10gb=1",
        "priority_classes": "ml-high",
        "schedulers": "default-scheduler,volcano",
        "volcano_queues": "one,two",
    }
    with door.newcomer("carl", "edit", OTHER, **facts) as carl:
        yield carl


FACTS: dict[str, tuple[Any, str, Any]] = {
    "a maximum for two resources": (
        job(OTHER, OTHER, pod_of(5)),
        "requests 5 nvidia.com/gpu in container c, but the maximum of a container in this namespace is 4",
        job(OTHER, OTHER, pod_of(4)),
    ),
    "default limits of their own": (
        job(OTHER, None, bounded(cpu=("1500m", None))),
        "sets no limit of cpu for a request of 1500m in container c, so LimitRange containers sets 1",
        job(OTHER, None, bounded(cpu=("1", None))),
    ),
    "one priority class": (
        job(OTHER, OTHER, pod_of(priorityClassName="ml-low")),
        "uses priority class ml-low, which is not allowed in this namespace; set one of ml-high",
        job(OTHER, OTHER, pod_of(priorityClassName="ml-high")),
    ),
    "two Volcano queues": (
        gang(OTHER, "three"),
        "uses Volcano queue three, which is not a queue of this namespace; set spec.queue: one or two",
        gang(OTHER, "two"),
    ),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_a_namespace_are_lists_of_any_length(newcomer: Person, name: str) -> None:
    attempt, words, twin = FACTS[name]
    assert words in newcomer.refusal(attempt)
    assert not newcomer.refusal(twin)


def test_a_job_that_is_older_than_a_default_of_0_gpus_is_judged_when_its_pods_change(
    cluster: Cluster, newcomer: Person
) -> None:
    own = job(OTHER, OTHER, limited(1))
    own["spec"]["suspend"] = True
    newcomer.cluster.create(own)
    namespace = Reference("v1", "Namespace", OTHER)
    cluster.patch(namespace, {"metadata": {"annotations": {"guards.gpu-tenancy.dev/default-gpus": "0"}}})
    words = "sets nvidia.com/gpu under limits only in container more, and Kueue would count 0"
    newcomer.wait_for_refusal(job(OTHER, OTHER, limited(1)), words)
    note: Any = {"metadata": {"annotations": {"note": "x"}}}
    assert not newcomer.patch_refusal(own, note)
    assert words in newcomer.patch_refusal(own, {"spec": {"template": note}})


@pytest.mark.parametrize(
    "name",
    [
        *("AMD_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "NVIDIA_MIG_CONFIG_DEVICES"),
        "NVIDIA_MIG_MONITOR_DEVICES",
    ],
)
def test_each_variable_that_selects_devices_is_refused(tenant: Person, name: str) -> None:
    def setting(value: str) -> Any:
        spec = pod_of(0)
        spec["containers"][0]["env"] = [{"name": name, "value": value}]
        return spec

    assert f"sets {name} in container c" in tenant.refusal(job(RESEARCH, RESEARCH, setting("all")))
    assert not tenant.refusal(job(RESEARCH, RESEARCH, setting("none")))


def test_a_request_as_large_as_the_default_limit_is_admitted(tenant: Person) -> None:
    assert "sets no limit of cpu for a request of 3" in tenant.refusal(
        job(RESEARCH, RESEARCH, bounded(cpu=("3", None)))
    )
    assert not tenant.refusal(job(RESEARCH, RESEARCH, bounded(cpu=("2", None))))


def test_a_deprecated_field_names_a_service_account_too(member: Any) -> None:
    one: Person = member("researchers")
    words = "sets service account ci, whose rights its pod would have; set serviceAccountName: workload"
    assert words in one.refusal(job_set(RESEARCH, RESEARCH, pod_of(0, serviceAccount="ci")))
    assert not one.refusal(job_set(RESEARCH, RESEARCH, pod_of(0, serviceAccount="workload")))


def test_a_pod_without_gpus_names_no_queue_of_another_team(tenant: Person) -> None:
    def queued(queue: str) -> Any:
        return pod(RESEARCH, None, pod_of(0, schedulerName="volcano"), annotations={GANG_QUEUE: queue})

    assert "uses Volcano queue ml-serving-l4" in tenant.refusal(queued("ml-serving-l4"))
    assert not tenant.refusal(queued("ml-research-l4"))
    assert not tenant.refusal(pod(RESEARCH, None, pod_of(0), annotations={GROUP: "podgroup-1"}))


@pytest.fixture
def plain(cluster: Cluster) -> Iterator[Any]:
    """A pod without GPUs that is on a node."""
    made = pod(RESEARCH, None, pod_of(0, nodeName="l4-0"))
    made["metadata"]["name"] = "plain"
    cluster.create(made)
    yield made
    cluster.delete(Reference.of(made), grace=0)


def test_a_pod_that_is_in_a_group_of_volcanos_stays_and_no_other_joins_it(cluster: Cluster, tenant: Person) -> None:
    def joining(group: str) -> Any:
        return {GANG_QUEUE: "ml-research-l4", GROUP: group}

    own = pod(RESEARCH, None, pod_of(schedulerName="volcano"), annotations=joining("podgroup-1"))
    own["metadata"]["name"] = "member"
    later = job(RESEARCH, RESEARCH)
    later["metadata"]["name"] = "members"
    later["spec"] |= {"suspend": True}
    later["spec"]["template"]["metadata"] = {"annotations": {GROUP: "podgroup-1"}}
    for manifest in (own, later):
        cluster.create(manifest)
    classed: Any = {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "ml-low"}}}
    refusals = [
        tenant.patch_refusal(own, classed),
        tenant.patch_refusal(own, {"metadata": {"annotations": {GROUP: "podgroup-2"}}}),
        tenant.patch_refusal(later, {"spec": {"template": {"metadata": {"annotations": {"note": "x"}}}}}),
    ]
    for manifest in (own, later):
        cluster.delete(Reference.of(manifest), grace=0)
    assert not refusals[0]
    assert "joins PodGroup podgroup-2, which Volcano created for another workload" in refusals[1]
    assert "joins PodGroup podgroup-1, which Volcano created for another workload" in refusals[2]


@pytest.mark.parametrize("seconds", [0, 601])
def test_a_pod_of_any_period_that_is_older_than_the_guards_is_labelled_and_deleted(
    cluster: Cluster, tenant: Person, seconds: int
) -> None:
    own = pod(RESEARCH, RESEARCH, pod_of(terminationGracePeriodSeconds=seconds, nodeName="l4-0"))
    own["metadata"] |= {"name": "ending", "labels": labels(RESEARCH, which="ending")}
    cluster.create(own)
    refusals = [tenant.patch_refusal(own, {"metadata": {"labels": {"note": "x"}}}), tenant.delete_refusal(own)]
    status, answer = tenant.asked("DELETE", f"/api/v1/namespaces/{RESEARCH}/pods?labelSelector=which%3Dending")
    cluster.delete(Reference.of(own), grace=0)
    assert refusals == ["", ""]
    assert status == 200, answer


def test_an_owner_that_is_no_controller_is_not_what_a_pod_is_counted_by(cluster: Cluster, tenant: Person) -> None:
    counted: Any = cluster.get("batch/v1", "Job", "nightly", RESEARCH)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": counted["metadata"]["uid"]}
    own = pod(RESEARCH, RESEARCH, ownerReferences=[owner])
    own["metadata"]["name"] = "beside"
    cluster.create(own)
    refusal = tenant.patch_refusal(own, {"metadata": {"labels": {"app": "other"}}})
    cluster.delete(Reference.of(own), grace=0)
    assert not refusal


def test_a_pod_that_exists_gets_no_device_by_a_later_annotation(tenant: Person, plain: Any) -> None:
    words = "sets annotation cdi.k8s.io/x, which adds devices that no queue counts; remove it"
    assert words in tenant.patch_refusal(plain, {"metadata": {"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}}})
    assert not tenant.patch_refusal(plain, {"metadata": {"annotations": {"note": "x"}}})


def test_a_pod_without_gpus_changes_its_queue(tenant: Person, plain: Any) -> None:
    assert "is in queue ml-serving" in tenant.patch_refusal(plain, {"metadata": {"labels": {QUEUE: "ml-serving"}}})
    assert not tenant.patch_refusal(plain, {"metadata": {"labels": {QUEUE: RESEARCH}}})


def test_a_tenant_changes_and_deletes_its_own_network_policies(cluster: Cluster, tenant: Person) -> None:
    own = network_policy(RESEARCH, "of-a-tenant")
    cluster.create(own)
    assert not tenant.patch_refusal(own, {"metadata": {"labels": {"note": "x"}}})
    assert not tenant.delete_refusal(own)
    assert "allows traffic beyond the namespace" in tenant.patch_refusal(own, {"spec": {"ingress": [{}]}})
    cluster.delete(Reference.of(own))


def test_only_namespaces_of_teams_are_guarded(door: Door, tenant: Person) -> None:
    assert tenant
    # One of a team, a system namespace that says so, and one that does not.
    names, marked = (RESEARCH, "kube-public", "guards-keeper"), Reference("v1", "Namespace", "kube-public")
    with door.let_in("keeper", "cluster-admin", *names) as keeper:
        changed: Any = {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "baseline"}}}
        theirs, system, other = (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names
        )
        door.cluster.patch(marked, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "gpu-tenancy"}}})
        for one in (system, other):
            door.cluster.wait_for(lambda one=one: not keeper.patch_refusal(one, changed), what="rights")
        door.cluster.patch(marked, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
        words = "of the Namespace, which belongs to the platform"
        assert f"changes pod-security.kubernetes.io/warn {words}" in keeper.patch_refusal(theirs, changed)
        queue: Any = {"metadata": {"annotations": {GANG_QUEUE: "ml-serving-l4"}}}
        assert f"changes {GANG_QUEUE} {words}" in keeper.patch_refusal(theirs, queue)
