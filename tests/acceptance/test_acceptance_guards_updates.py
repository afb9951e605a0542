"""What is refused at creation is refused in an update too; what is older than a rule stays as it is."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
from acceptance_guards import (
    QUEUE,
    RESEARCH,
    Door,
    Person,
    cron_job,
    gang,
    job,
    job_set,
    leader_worker_set,
    owned,
    pod,
    pod_group,
    pod_of,
    ray_cluster,
    replicas,
    train_job,
)

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

CLASS: Final = "kueue.x-k8s.io/priority-class"
CRITICAL: Final = "system-node-critical"
KUEUE: Final = "system:serviceaccount:kueue-system:kueue-controller-manager"
NODE: Final = "system:node:l4-0"
OF_KUBERNETES: Final = [f"system:serviceaccount:kube-system:{name}-controller" for name in ("job", "disruption")]
OBJECT: Final[Any] = {"apiVersion": "v1", "metadata": {"name": "own", "namespace": RESEARCH}}
FORBIDDEN: Final = f"uses priority class {CRITICAL}, which is not allowed in this namespace"


@pytest.fixture
def kept(cluster: Cluster, tenant: Person) -> Iterator[Callable[[Any], Any]]:
    """Creates objects as the administrator, whom no rule judges: as if they were older than the rules."""
    assert tenant
    made: list[Any] = []

    def create(manifest: Any) -> Any:
        cluster.create(manifest)
        made.append(manifest)
        return manifest

    yield create
    for manifest in made:
        cluster.delete(Reference.of(manifest), grace=0)


def of_jobs(**labels: str | None) -> Any:
    """A change of labels of the Jobs of a CronJob."""
    return {"spec": {"jobTemplate": {"metadata": {"labels": dict(labels)}}}}


def with_class(name: str) -> Any:
    found = cron_job(RESEARCH, RESEARCH)
    found["spec"]["jobTemplate"]["metadata"]["labels"][CLASS] = name
    return found


def test_the_jobs_of_a_cron_job_get_no_label_by_an_update_that_is_refused_at_creation(
    tenant: Person, kept: Callable[[Any], Any]
) -> None:
    own = kept(cron_job(RESEARCH, RESEARCH))
    assert FORBIDDEN in tenant.refusal(with_class(CRITICAL))
    assert FORBIDDEN in tenant.patch_refusal(own, of_jobs(**{CLASS: CRITICAL}))
    assert "requests GPUs in queue ml-serving" in tenant.patch_refusal(own, of_jobs(**{QUEUE: "ml-serving"}))
    annotated = {"spec": {"jobTemplate": {"metadata": {"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}}}}
    assert "sets kueue.x-k8s.io/prebuilt-workload-name" in tenant.patch_refusal(own, annotated)
    assert not tenant.patch_refusal(own, of_jobs(**{CLASS: "ml-low"}))
    assert not tenant.patch_refusal(own, of_jobs(note="x"))


def test_an_update_passes_that_leaves_a_value_which_was_forbidden_meanwhile(
    tenant: Person, kept: Callable[[Any], Any]
) -> None:
    old = kept(with_class(CRITICAL))
    for patch in (
        {"spec": {"schedule": "0 4 * * *"}},
        {"spec": {"suspend": True}},
        {"metadata": {"labels": {"note": "x"}, "annotations": {"note": "x"}}},
        of_jobs(note="x"),
    ):
        assert not tenant.patch_refusal(old, patch), patch
    assert FORBIDDEN.replace(CRITICAL, "theirs") in tenant.patch_refusal(old, of_jobs(**{CLASS: "theirs"}))
    assert FORBIDDEN in tenant.patch_refusal(old, of_jobs(**{"kueue.x-k8s.io/max-exec-time-seconds": "60"}))
    assert not tenant.patch_refusal(old, of_jobs(**{CLASS: "ml-low"}))
    web = replicas("Deployment", RESEARCH, RESEARCH, spec=pod_of(0, schedulerName="mine"))
    web["spec"]["replicas"] = 0
    kept(web)
    assert not tenant.patch_refusal(web, {"spec": {"paused": True}})
    assert "sets schedulerName mine" in tenant.patch_refusal(web, {"metadata": {"labels": {CLASS: "ml-low"}}})


HELD: Final[Any] = {**job(RESEARCH, RESEARCH), "spec": {**job(RESEARCH, RESEARCH)["spec"], "suspend": True}}
LATER: Final[dict[str, tuple[Any, Any, str]]] = {
    "the scheduler of a gang": (
        gang(RESEARCH, "ml-research-l4"),
        {"spec": {"schedulerName": "default-scheduler"}},
        "but has schedulerName default-scheduler",
    ),
    "the class of a PodGroup": (
        pod_group(RESEARCH, "ml-research-l4"),
        {"spec": {"priorityClassName": CRITICAL}},
        FORBIDDEN,
    ),
    "an annotation that Volcano reads": (
        HELD,
        {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "ml-serving-l4"}}},
        "sets annotation scheduling.volcano.sh/queue-name to ml-serving-l4",
    ),
    "an annotation that JobSet reads": (
        job_set(RESEARCH, RESEARCH),
        {"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/os"}}},
        "sets annotation alpha.jobset.sigs.k8s.io/exclusive-topology",
    ),
    "an owner": (
        HELD,
        {"metadata": owned("apps/v1", "StatefulSet", {"metadata": {}})["metadata"]},
        "sets StatefulSet o as its controller, so the queue would not count its GPUs",
    ),
}
"""An object, what an update changes of it alone, and what is said of it."""


@pytest.mark.parametrize("name", LATER)
def test_each_part_that_is_judged_is_compared_in_updates(tenant: Person, kept: Callable[[Any], Any], name: str) -> None:
    manifest, patch, words = LATER[name]
    own = kept(manifest)
    assert words in tenant.patch_refusal(own, patch)
    assert not tenant.patch_refusal(own, {"metadata": {"annotations": {"note": "x"}}})


NO_GPUS: Final = pod_of(0)
STATUSES: Final[dict[str, tuple[Any, Any]]] = {
    "pod": (pod(RESEARCH, None, NO_GPUS), {"phase": "Succeeded"}),
    "job": (
        {**job(RESEARCH, None, NO_GPUS), "spec": {**job(RESEARCH, None, NO_GPUS)["spec"], "suspend": True}},
        {"conditions": [{"type": "Suspended", "status": "False"}]},
    ),
    "cron job": (cron_job(RESEARCH, RESEARCH), {"lastScheduleTime": "2026-01-01T00:00:00Z"}),
    "deployment": (replicas("Deployment", RESEARCH, None, spec=NO_GPUS), {"observedGeneration": 9}),
    "stateful set": (replicas("StatefulSet", RESEARCH, None, spec=NO_GPUS), {"replicas": 9}),
    "replica set": (replicas("ReplicaSet", RESEARCH, None, spec=NO_GPUS), {"replicas": 9}),
    "daemon set": (replicas("DaemonSet", RESEARCH, None, spec=NO_GPUS), {"numberReady": 9}),
    "replication controller": (
        {
            **OBJECT,
            "kind": "ReplicationController",
            "spec": {
                "replicas": 0,
                "template": replicas("ReplicaSet", RESEARCH, None, spec=NO_GPUS)["spec"]["template"],
            },
        },
        {"replicas": 9},
    ),
    "job set": (job_set(RESEARCH, None, NO_GPUS), {"terminalState": "Completed"}),
    "train job": (train_job(RESEARCH, RESEARCH), {"jobsStatus": []}),
    "gang": (gang(RESEARCH, None, NO_GPUS), {"state": {"phase": "Completed"}}),
    "leader worker set": (leader_worker_set(RESEARCH, None, NO_GPUS), {"replicas": 9}),
    "ray cluster": (ray_cluster(RESEARCH, None, NO_GPUS), {"state": "suspended"}),
    "service": (
        {**OBJECT, "kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}},
        {"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}]}},
    ),
    "ingress": (
        {
            **OBJECT,
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "spec": {"rules": [{"host": "a.example.com"}]},
        },
        {"loadBalancer": {"ingress": [{"ip": "10.1.2.3"}]}},
    ),
    "disruption budget": (
        {**OBJECT, "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"maxUnavailable": 1}},
        {"disruptionsAllowed": 9},
    ),
}
"""Of each kind an object, and a status by which others would act."""


@pytest.fixture(scope="module")
def acting(cluster: Cluster, door: Door, tenant: Person) -> Iterator[Callable[[str], Person]]:
    """Somebody with a name, and with all rights in the namespace beside those that the name has."""
    assert tenant
    names = ["boss", NODE, KUEUE, *OF_KUBERNETES]
    binding: Any = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "acting", "namespace": RESEARCH},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name} for name in names],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    }
    cluster.apply(binding)
    with door.let_in("actor", "cluster-admin") as actor:
        cluster.wait_for(lambda: not actor.refusal(pod(RESEARCH, None, NO_GPUS)), what="rights")

        def named(name: str) -> Person:
            groups = {"Impersonate-Group": "system:nodes"} if name == NODE else {}
            return replace(actor, headers={"Impersonate-User": name, **groups})

        yield named
    cluster.delete(Reference.of(binding))


@pytest.mark.parametrize("name", STATUSES)
def test_only_controllers_write_the_status_of_what_others_act_by(
    acting: Callable[[str], Person], kept: Callable[[Any], Any], name: str
) -> None:
    manifest, status = STATUSES[name]
    own = kept(manifest)
    change: Any = {"status": status}
    words = f"changes the status of a {own['kind']}, which only its controller may change; leave it as it is"
    assert words in acting("boss").patch_refusal(own, change, subresource="status")
    assert not acting("boss").patch_refusal(own, {"metadata": {"labels": {"note": "x"}}})
    assert not acting(KUEUE).patch_refusal(own, change, subresource="status")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (NODE, "pod"),
        ("system:kube-scheduler", "pod"),
        (OF_KUBERNETES[0], "job"),
        (OF_KUBERNETES[1], "disruption budget"),
    ],
)
def test_the_controllers_of_kubernetes_write_it(
    acting: Callable[[str], Person], kept: Callable[[Any], Any], name: str, kind: str
) -> None:
    manifest, status = STATUSES[kind]
    assert not acting(name).patch_refusal(kept(manifest), {"status": status}, subresource="status")
