"""Updates that the guards refuse, and servers whose pods Kueue admits by itself."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from acceptance_builders import a_binding
from acceptance_guards import (
    QUEUE,
    RESEARCH,
    Door,
    Person,
    an_object,
    cron_job,
    gang,
    job,
    job_set,
    leader_worker_set,
    network_policy,
    owned,
    pod,
    pod_group,
    pod_of,
    replicas,
    train_job,
)
from builders import patched

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

CLASS: Final = "kueue.x-k8s.io/priority-class"
CRITICAL: Final = "system-node-critical"
KUEUE: Final = "system:serviceaccount:kueue-system:kueue-controller-manager"
NODE: Final = "system:node:l4-0"
VOLCANO: Final = "system:serviceaccount:volcano-system:volcano-controllers"
TRAINER: Final = "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager"
OPERATORS: Final = (KUEUE, VOLCANO, TRAINER)
OF_KUBERNETES: Final = [f"system:serviceaccount:kube-system:{name}-controller" for name in ("job", "disruption")]
FORBIDDEN: Final = f"uses priority class {CRITICAL}, which is not allowed in this namespace"


def of_jobs(**labels: str | None) -> Any:
    """A change of labels of the Jobs of a CronJob."""
    return {"spec": {"jobTemplate": {"metadata": {"labels": dict(labels)}}}}


def with_class(name: str) -> Any:
    found = cron_job(RESEARCH, RESEARCH)
    found["spec"]["jobTemplate"]["metadata"]["labels"][CLASS] = name
    return found


def test_updates_of_cron_jobs_are_judged_as_creation(tenant: Person, kept: Callable[[Any], Any]) -> None:
    own = kept(cron_job(RESEARCH, RESEARCH))
    assert FORBIDDEN in tenant.refusal(with_class(CRITICAL))
    assert FORBIDDEN in tenant.patch_refusal(own, of_jobs(**{CLASS: CRITICAL}))
    assert "requests GPUs in queue ml-serving" in tenant.patch_refusal(own, of_jobs(**{QUEUE: "ml-serving"}))
    annotated = {"spec": {"jobTemplate": {"metadata": {"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}}}}
    assert "sets kueue.x-k8s.io/prebuilt-workload-name" in tenant.patch_refusal(own, annotated)
    assert not tenant.patch_refusal(own, of_jobs(**{CLASS: "ml-low"}))
    assert not tenant.patch_refusal(own, of_jobs(note="x"))


def test_updates_that_leave_old_values_pass(tenant: Person, kept: Callable[[Any], Any]) -> None:
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
# An object, its update, and the message.
LATER: Final[dict[str, tuple[Any, Any, str]]] = {
    "the scheduler of a gang": (gang(RESEARCH, "ml-research-l4"), {"spec": {"schedulerName": "default-scheduler"}},
        "but has schedulerName default-scheduler"),
    "the class of a PodGroup": (pod_group(RESEARCH, "ml-research-l4"), {"spec": {"priorityClassName": CRITICAL}},
        FORBIDDEN),
    "an annotation that Volcano reads": (HELD,
        {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "ml-serving-l4"}}},
        "sets annotation scheduling.volcano.sh/queue-name to ml-serving-l4"),
    "an annotation that JobSet reads": (job_set(RESEARCH, RESEARCH),
        {"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/os"}}},
        "sets annotation alpha.jobset.sigs.k8s.io/exclusive-topology"),
    "a patch of a TrainJob": (train_job(RESEARCH, RESEARCH), {"spec": {"runtimePatches":
        patched(train_job(RESEARCH, RESEARCH)["spec"]["runtimePatches"], {0: {"manager": "example.com/other"}})}},
        "changes spec.runtimePatches, by which its pods could get other nodes than Kueue counted"),
    "an owner": (HELD, {"metadata": owned("apps/v1", "StatefulSet", {"metadata": {}})["metadata"]},
        "sets StatefulSet o as its controller, so the queue would not count it"),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER)
def test_each_part_that_is_judged_is_compared_in_updates(tenant: Person, kept: Callable[[Any], Any], name: str) -> None:
    manifest, patch, words = LATER[name]
    own = kept(manifest)
    assert words in tenant.patch_refusal(own, patch)
    assert not tenant.patch_refusal(own, {"metadata": {"annotations": {"note": "x"}}})


def test_nothing_keeps_what_blocks_a_deletion(cluster: Cluster, tenant: Person, kept: Callable[[Any], Any]) -> None:
    found = cluster.get("v1", "ConfigMap", name := "kube-root-ca.crt", RESEARCH) or {}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": text_at(found, "metadata", "uid")}
    own = kept(
        an_object("v1", "ServiceAccount", "k", RESEARCH, ownerReferences=[{**owner, "blockOwnerDeletion": True}])
    )
    refused = tenant.patch_refusal(own, {"metadata": {"finalizers": ["example.com/x"]}})
    assert f"adds finalizer example.com/x, so the deletion of ConfigMap {name} would not end" in refused
    assert not tenant.patch_refusal(own, {"metadata": {"labels": {"x": "y"}}})


NO_GPUS: Final = pod_of(0)
STATUSES: Final = yaml.safe_load(Path(__file__).with_name("statuses.yaml").read_text(encoding="utf-8"))


def with_status(kept: Callable[[Any], Any], name: str) -> tuple[Any, Any]:
    """A created object of the table, and its status."""
    labelled = {"name": "own", "namespace": RESEARCH, "labels": {"app": "x"}}
    return kept({**STATUSES[name]["of"], "metadata": labelled}), {"status": STATUSES[name]["status"]}


@pytest.fixture(scope="module")
def acting(cluster: Cluster, door: Door, tenant: Person) -> Iterator[Callable[[str], Person]]:
    """A user by name, with all rights in the namespace in addition to the name's."""
    assert tenant
    names = [("User", name) for name in ("boss", NODE, *OPERATORS, *OF_KUBERNETES)]
    binding = a_binding("acting", "cluster-admin", *names, namespace=RESEARCH)
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
    own, change = with_status(kept, name)
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
    own, change = with_status(kept, kind)
    assert not acting(name).patch_refusal(own, change, subresource="status")


def test_only_kueue_changes_what_it_counts(
    tenant: Person, acting: Callable[[str], Person], kept: Callable[..., Any]
) -> None:
    gates = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}}
    own = kept(patched(HELD, {"spec": {"template": gates}}))
    light = patched(job(RESEARCH, None, NO_GPUS), {"spec": {"suspend": True}})
    kept(light, "light")
    counts = "which only Kueue may change, as it counts pods when it admits them;"
    for change, words in (
        ({"parallelism": 2}, f"changes spec.parallelism, {counts} delete it and create it with the new number"),
        ({"suspend": False}, f"changes spec.suspend, {counts} set spec.active of its Workload to stop or requeue it"),
        ({"template": {"spec": {"schedulingGates": None}}}, "changes scheduling gates of Kueue, which only Kueue may"),
    ):
        assert words in tenant.patch_refusal(own, {"spec": change})
        assert not acting(KUEUE).patch_refusal(own, {"spec": change})
        assert not tenant.patch_refusal(light, {"spec": change}), "no queue counts it"


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_take_over_no_object_that_a_tenant_made(
    acting: Callable[[str], Person], kept: Callable[..., Any], name: str
) -> None:
    own = kept(patched(job_set(RESEARCH, RESEARCH), {"spec": {"suspend": True}}))
    taken = {"metadata": owned("trainer.kubeflow.org/v1alpha1", "TrainJob", {"metadata": {}})["metadata"]}
    words = "exists already, and not for TrainJob o, which would not count all of its pods; delete it, or give one of"
    assert words in acting(name).patch_refusal(own, taken)
    assert not acting(OF_KUBERNETES[0]).patch_refusal(own, taken)
    assert not acting(name).patch_refusal(own, {"metadata": {"labels": {"note": "x"}}})


def test_only_trainer_writes_the_runtimes_of_train_jobs(
    tenant: Person, acting: Callable[[str], Person], kept: Callable[..., Any]
) -> None:
    theirs = an_object("v1", "ConfigMap", "t-runtime-snapshot", RESEARCH)
    assert "has the name of the runtime of a TrainJob, which only Kubeflow Trainer may write" in tenant.refusal(theirs)
    assert not acting(TRAINER).refusal(theirs)
    assert "which only Kubeflow Trainer may write or delete" in tenant.delete_refusal(
        kept(theirs, "t-runtime-snapshot")
    )
    assert not tenant.refusal(an_object("v1", "ConfigMap", "t-snapshot", RESEARCH))


def test_operators_change_no_network_policy_of_the_platform(
    acting: Callable[[str], Person], kept: Callable[..., Any]
) -> None:
    theirs = an_object("networking.k8s.io/v1", "NetworkPolicy", "default-deny", RESEARCH)
    words = "is a NetworkPolicy of the platform; give the object of this name another one"
    assert words in acting(VOLCANO).delete_refusal(theirs)
    assert words in acting(VOLCANO).patch_refusal(theirs, {"spec": {"policyTypes": ["Egress"]}})
    assert not acting(OF_KUBERNETES[0]).delete_refusal(theirs)
    assert not acting(VOLCANO).delete_refusal(kept(network_policy(RESEARCH)))


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret", "Service"])
def test_operators_change_no_object_of_somebody_else(
    acting: Callable[[str], Person], kept: Callable[..., Any], kind: str
) -> None:
    """Volcano's plugins write and delete objects that have the name of the Job's, and so does KubeRay."""
    spec: Any = {"spec": {"clusterIP": "None"}} if kind == "Service" else {}

    def made(name: str, owner: Any = None) -> Any:
        """An object, with another one as its controller."""
        owners: list[Any] = []
        if owner:
            live = acting(VOLCANO).cluster.get(*Reference.of(owner)) or {}
            named = {"name": owner["metadata"]["name"], "uid": text_at(live, "metadata", "uid"), "controller": True}
            owners = [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], **named}]
        return kept({**an_object("v1", kind, name, RESEARCH, ownerReferences=owners), **spec}, name)

    theirs, own = made("api-svc"), made("own-svc", kept(gang(RESEARCH, "ml-research-l4")))
    other, foreign = made("other-svc", kept(HELD)), made("foreign-svc", theirs)
    note: Any = {"metadata": {"labels": {"note": "x"}}}
    words = "exists already, and was not created for the workload of this name"
    assert words in acting(VOLCANO).delete_refusal(theirs)
    assert words in acting(VOLCANO).patch_refusal(theirs, note)
    assert words in acting(VOLCANO).delete_refusal(other)
    assert not acting(KUEUE).delete_refusal(other)
    assert words in acting(KUEUE).delete_refusal(foreign)
    assert not acting(VOLCANO).patch_refusal(own, note)
    assert not acting(VOLCANO).delete_refusal(own)
    assert not acting(OF_KUBERNETES[0]).delete_refusal(theirs)


def test_a_stateful_set_keeps_its_ordinals_and_finalizers(tenant: Person, kept: Callable[..., Any]) -> None:
    own = replicas("StatefulSet", RESEARCH, RESEARCH)
    own["spec"]["replicas"] = 0
    own["spec"]["template"]["metadata"]["finalizers"] = ["example.com/own"]
    assert "sets finalizer example.com/own, by which its pods would run without a queue" in tenant.refusal(own)
    del own["spec"]["template"]["metadata"]["finalizers"]
    kept(own, "numbered")
    words = "changes spec.ordinals, by which more pods can run than Kueue counted"
    assert words in tenant.patch_refusal(own, {"spec": {"ordinals": {"start": 1}}})
    own["metadata"]["name"], own["spec"]["ordinals"] = "other", {"start": 1}
    assert not tenant.refusal(own)


def test_a_job_has_room_for_what_kueue_writes(tenant: Person, kept: Callable[..., Any]) -> None:
    """At the limits of the API server and etcd, a job cannot be stopped, and a pod not be deleted."""
    texts = ("x" * 1_000_000, "<" * 210_000, "\a" * 210_000, "\x01" * 210_000, "x" * 1_210_000)
    (container,) = pod_of()["containers"]
    large, *too_large = (pod_of(containers=[{**container, "args": [text]}]) for text in texts)
    own = {**HELD, "spec": {**HELD["spec"], "template": {"spec": large}}}
    assert not tenant.refusal(own)
    kept(own)
    words = "bytes of annotations, and Kueue could not stop it; keep at most 204800"
    assert words in tenant.patch_refusal(own, {"metadata": {"annotations": {"note": "é" * 103_000}}})
    assert not tenant.patch_refusal(own, {"metadata": {"annotations": {"note": "x" * 150_000}}})
    words = "bytes in etcd, and could grow until nobody can stop or delete it; keep at most 1200000"
    for spec in too_large:
        assert words in tenant.refusal(pod(RESEARCH, RESEARCH, spec))
        assert words in tenant.refusal(replicas("Deployment", RESEARCH, RESEARCH, spec=spec))


def test_init_containers_of_what_kueue_counted_stay_as_they_are(
    tenant: Person, acting: Callable[[str], Person], kept: Callable[..., Any]
) -> None:
    first, second = ({**pod_of()["containers"][0], "name": name} for name in ("first", "second"))
    own = replicas("StatefulSet", RESEARCH, RESEARCH, spec=pod_of(initContainers=[first, second]))
    own["spec"]["replicas"] = 0
    kept(own, "starting")
    words = "changes the names, order or restartPolicy of init containers, by which its pods can hold more than Kueue"

    def starting(*containers: Any) -> Any:
        return {"spec": {"template": {"spec": {"initContainers": containers}}}}

    for change in (starting({**first, "restartPolicy": "Always"}, second), starting(second, first), starting(first)):
        assert words in tenant.patch_refusal(own, change)
        assert not acting(KUEUE).patch_refusal(own, change)
    assert not tenant.patch_refusal(own, starting({**first, "image": "registry.example.com/other:1"}, second))


def test_only_schedulers_bind_pods(acting: Callable[[str], Person], kept: Callable[[Any], Any]) -> None:
    own = kept(pod(RESEARCH, None, NO_GPUS))["metadata"]
    target = {"apiVersion": "v1", "kind": "Node", "name": "l4-0"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": own["name"]}, "target": target}
    for resource in (f"pods/{own['name']}/binding", "bindings"):
        path = f"/api/v1/namespaces/{RESEARCH}/{resource}"
        status, answer = acting("boss").asked("POST", path, binding)
        assert status in {403, 422}, answer
        assert "binds a pod to node l4-0, which only schedulers may do; leave it to the scheduler" in answer["message"]
        status, answer = acting("system:kube-scheduler").asked("POST", path, binding)
        assert status < 300, answer


# Servers.


def test_kueue_starts_only_admitted_pods(
    cluster: Cluster, acting: Callable[[str], Person], kept: Callable[..., Any]
) -> None:
    """Kueue removes the gates of a pending server that is deleted or changed."""
    gated = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    waiting, light = (patched(pod(RESEARCH, *more), gated) for more in ((RESEARCH,), (None, NO_GPUS)))
    own = kept(patched(waiting, {"metadata": {"finalizers": ["example.com/own"]}}), "waiting")
    kept(light, "light")
    kueue, ungated = acting(KUEUE), {"spec": {"schedulingGates": None}}
    words = "has GPUs and would start although no queue has admitted it; delete it, or wait for its queue"
    assert words in kueue.patch_refusal(own, ungated)
    assert not kueue.patch_refusal(light, ungated)
    assert not kueue.patch_refusal(own, {**ungated, "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}}})
    cluster.delete(Reference.of(own), wait=0)
    assert not kueue.patch_refusal(own, ungated), "a pod that is being deleted never starts"
    cluster.patch(Reference.of(own), {"metadata": {"finalizers": None}})


def test_a_server_is_not_scaled_beyond_what_kueue_counts(
    tenant: Person, member: Callable[[str], Person], server: tuple[Any, Any], kept: Callable[..., Any]
) -> None:
    own, _ = server
    words = "is scaled from 1 to 4 pods, of which Kueue would count 1; delete it and create it with the new number"
    assert words in tenant.patch_refusal(own, {"spec": {"replicas": 4}}, subresource="scale")
    for number in (0, 1):
        assert not tenant.patch_refusal(own, {"spec": {"replicas": number}}, subresource="scale")
    # An autoscaler, which a lead may create, scales Deployments only, and Jobs have no subresource for it.
    account = {"Impersonate-User": "system:serviceaccount:kube-system:horizontal-pod-autoscaler"}
    autoscaler = replace(
        member("leads"), headers={**account, "Impersonate-Group": "system:serviceaccounts:kube-system"}
    )
    kept(replicas("Deployment", RESEARCH, None, spec=pod_of(0)), "web")
    for kind, name, answer in (
        ("statefulsets", "server", words),
        ("deployments", "web", ""),
        ("jobs", "j", "not find"),
    ):
        path = f"/apis/{'batch' if kind == 'jobs' else 'apps'}/v1/namespaces/{RESEARCH}/{kind}/{name}/scale"
        scale = {**an_object("autoscaling/v1", "Scale", name, RESEARCH), "spec": {"replicas": 4}}
        status, found = autoscaler.asked("PUT", path, scale)
        assert answer in str(found.get("message", "")), found
        assert (status == 200) == (kind == "deployments")


SCALED: Final = [
    (replicas("Deployment", RESEARCH, None, spec=NO_GPUS), 50, "51 pods by spec.replicas"),
    (leader_worker_set(RESEARCH, None, NO_GPUS), 25, "52 pods by spec.leaderWorkerTemplate.size * replicas"),
]


@pytest.mark.parametrize("subresource", ["", "scale"])
@pytest.mark.parametrize("case", SCALED, ids=["Deployment", "LeaderWorkerSet"])
def test_objects_do_not_grow_beyond_the_bounds_of_their_team(
    cluster: Cluster, acting: Callable[[str], Person], kept: Callable[..., Any], case: Any, subresource: str
) -> None:
    """Nor by controllers: autoscalers scale objects. Objects that were larger before can stay and shrink."""
    own, bound, words = case
    own, boss = kept({**own, "spec": {**own["spec"], "replicas": 0}}), acting(OF_KUBERNETES[0])

    def scaled(number: int) -> str:
        return boss.patch_refusal(own, {"spec": {"replicas": number}}, subresource=subresource)

    assert scaled(bound) == ""
    assert "one object in this namespace can have" in scaled(201)
    if not subresource:
        assert words in scaled(bound + 1)
        cluster.patch(Reference.of(own), {"spec": {"replicas": 300}})
        assert scaled(299) == ""
        assert "has 301" in scaled(301)
