"""Attempts of members of a team to get more rights: each is refused, and a similar allowed object is not."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from acceptance_builders import Waves, a_binding
from acceptance_guards import (
    EXPERIMENTS,
    QUEUE,
    RESEARCH,
    TOLERATION,
    Person,
    an_object,
    gang,
    job,
    job_set,
    pod,
    pod_of,
    replicas,
    train_job,
    workload,
)

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

RBAC = "rbac.authorization.k8s.io/v1"
PRIORITY = "kueue.x-k8s.io/priority-class"
TEAM = ("viewers", "researchers", "leads", "cohort-leads")
STORE = "secrets-store.csi.k8s.io"
Member = Callable[[str], Person]


def named(api: str, kind: str, name: str, **rest: Any) -> Any:
    return {**an_object(api, kind, name, RESEARCH), **rest}


TOKEN_SECRET: Any = {**named("v1", "Secret", "mine"), "type": "kubernetes.io/service-account-token"}
TOKEN_SECRET["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "workload"}


@pytest.mark.parametrize("who", TEAM)
@pytest.mark.parametrize(
    "attempt",
    {
        "bind the administrator's role": a_binding("mine", "cluster-admin", ("Group", "leads"), namespace=RESEARCH),
        "bind the lead's role": a_binding("mine", "gpu-tenancy-lead", ("Group", "leads"), namespace=RESEARCH),
        "make a role": named(RBAC, "Role", "mine", rules=[]),
        "make an account": named("v1", "ServiceAccount", "mine"),
        "make a token that never expires": TOKEN_SECRET,
        "raise the quota": named("v1", "ResourceQuota", "mine", spec={"hard": {"pods": "9999"}}),
        "remove bounds": named("v1", "LimitRange", "mine", spec={"limits": []}),
        "make a queue": named("kueue.x-k8s.io/v1beta2", "LocalQueue", "mine", spec={"clusterQueue": "ml-production"}),
        "open the network": named("networking.k8s.io/v1", "NetworkPolicy", "mine", spec={"podSelector": {}}),
    }.values(),
    ids=lambda one: one["kind"] + one.get("roleRef", {}).get("name", ""),
)
def test_members_cannot_create_roles_or_quotas(member: Member, who: str, attempt: Any) -> None:
    assert "forbidden" in member(who).refusal(attempt)


@pytest.mark.parametrize("who", TEAM)
@pytest.mark.parametrize("account", ["ci", "default", "workload"])
def test_members_cannot_create_tokens_of_accounts(member: Member, who: str, account: str) -> None:
    body: Any = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{RESEARCH}/serviceaccounts/{account}/token"
    status, _ = member(who).asked("POST", path, body)
    assert status == 403
    assert member("admins").asked("POST", path, body)[0] == 201


@pytest.mark.parametrize("who", TEAM)
def test_members_cannot_label_their_namespace(member: Member, who: str) -> None:
    privileged: Any = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESEARCH}}
    assert "cannot patch resource" in member(who).patch_refusal(own, privileged)


LOCAL = named("kueue.x-k8s.io/v1beta2", "LocalQueue", RESEARCH)


@pytest.mark.parametrize("who", TEAM)
def test_members_cannot_change_quotas(cluster: Cluster, member: Member, who: str) -> None:
    (quota, *_) = cluster.list("v1", "ResourceQuota", namespace=RESEARCH)
    more: Any = {"spec": {"hard": {"pods": "9999"}}}
    assert "cannot patch resource" in member(who).patch_refusal(quota, more)
    assert not member("admins").patch_refusal(quota, more)


def test_leads_can_only_stop_and_resume_the_queue(member: Member) -> None:
    stop: Any = {"spec": {"stopPolicy": "HoldAndDrain"}}
    for who in ("leads", "cohort-leads"):
        assert not member(who).patch_refusal(LOCAL, stop)
    for who in ("researchers", "viewers", "others", "nobody"):
        assert "cannot patch resource" in member(who).patch_refusal(LOCAL, stop), who
    for patch in (
        {"spec": {"fairSharing": {"weight": "9"}}},
        {"spec": {"stopPolicy": "Hold", "fairSharing": {"weight": "9"}}},
        {"metadata": {"labels": {"x": "y"}}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}},
    ):
        assert "changes localqueues, which belong to the platform" in member("leads").patch_refusal(LOCAL, patch)
    assert member("leads").patch_refusal(LOCAL, {"spec": {"clusterQueue": "ml-production"}})
    assert member("leads").patch_refusal(LOCAL, {"status": {}}, subresource="status")


def test_leads_can_only_stop_a_workload(member: Member, kept: Callable[..., Any]) -> None:
    counted, stop = kept(workload("counted")), {"spec": {"active": False}}
    assert not member("leads").patch_refusal(counted, stop)
    assert "cannot patch resource" in member("researchers").patch_refusal(counted, stop)
    higher: Any = {"spec": {"priority": 1000000000}}
    assert "of which only spec.active may be changed" in member("leads").patch_refusal(counted, higher)


@pytest.mark.parametrize("value", ["ml-high", None], ids=["raised", "removed"])
def test_only_leads_change_the_priority_of_workloads(
    member: Member, kept: Callable[..., Any], value: str | None
) -> None:
    pending = job(RESEARCH, RESEARCH)
    pending["metadata"]["labels"][PRIORITY] = "ml-low"
    pending["spec"]["suspend"] = True
    kept(pending, "pending")
    change: Any = {"metadata": {"labels": {PRIORITY: value}}}
    words = member("researchers").patch_refusal(pending, change)
    assert f"changes label {PRIORITY}, which only leads of the team may change" in words
    for who in ("leads", "cohort-leads", "admins"):
        assert not member(who).patch_refusal(pending, change)
    # Any other label is everybody's, and whoever submits a workload chooses its class.
    assert not member("researchers").patch_refusal(pending, {"metadata": {"labels": {"note": "x"}}})
    submitted = job(RESEARCH, RESEARCH)
    submitted["metadata"]["labels"][PRIORITY] = "ml-high"
    assert not member("researchers").refusal(submitted)


def chart(account: str) -> dict[str, Any]:
    """What `helm create` has in a chart and its hooks, a claim, and the record of the release."""
    target: Any = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    scaling: Any = {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": target}
    claim: Any = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    pods = pod_of(0, serviceAccountName=account)
    return {
        "record": {**named("v1", "Secret", "sh.helm.release.v1.web.v1"), "type": "helm.sh/release.v1"},
        "config": named("v1", "ConfigMap", "web", data={"a": "b"}),
        "claim": named("v1", "PersistentVolumeClaim", "web", spec=claim),
        "Service": named("v1", "Service", "web", spec={"selector": {"app": "x"}, "ports": [{"port": 80}]}),
        "Deployment": replicas("Deployment", RESEARCH, None, spec=pods),
        "autoscaler": named("autoscaling/v2", "HorizontalPodAutoscaler", "web", spec=scaling),
        "test": pod(RESEARCH, None, pods),
    }


def test_leads_install_a_small_chart(member: Member, kept: Callable[..., Any]) -> None:
    lead, objects = member("leads"), chart("default")
    assert {name: lead.refusal(one) for name, one in objects.items() if lead.refusal(one)} == {}
    researcher = {name for name, one in objects.items() if not member("researchers").refusal(one)}
    assert researcher == {"config", "claim", "Deployment", "test"}
    assert "has type kubernetes.io/service-account-token" in lead.refusal(TOKEN_SECRET)
    assert not member("admins").refusal(TOKEN_SECRET)
    # Its own account, which could have rights in a cloud; and what leaves the namespace.
    assert 'cannot create resource "serviceaccounts"' in lead.refusal(named("v1", "ServiceAccount", "web"))
    assert "set serviceAccountName: workload" in lead.refusal(chart("web")["Deployment"])
    open_service = kept(objects["Service"])
    for spec, words in (
        ({"type": "NodePort"}, "has type NodePort"),
        ({"type": "LoadBalancer"}, "has type LoadBalancer"),
        ({"type": "ExternalName", "externalName": "x.example.com"}, "has type ExternalName"),
        ({"externalIPs": ["10.1.2.3"]}, "sets externalIPs"),
    ):
        assert words in lead.patch_refusal(open_service, {"spec": spec})
    # Pods of leads mount what exists.
    created = kept(objects["config"])
    assert "cannot patch resource" in member("researchers").patch_refusal(created, {"data": {"a": "c"}})
    assert "cannot delete resource" in member("researchers").delete_refusal(created)
    assert not lead.patch_refusal(created, {"data": {"a": "c"}})
    assert not lead.delete_refusal(created)


def using(**fields: Any) -> Any:
    spec = pod_of(0)
    spec["containers"][0] |= fields
    return spec


def patched_runtime(spec: Mapping[str, Any]) -> Any:
    """A patch of the pods, which tolerate the taint of GPU nodes."""
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": {"tolerations": [TOLERATION], **spec}}}}}]
    return [{"manager": "x.io/y", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]


def training(**spec: Any) -> Any:
    found = train_job(RESEARCH, RESEARCH)
    trainer = {**found["spec"]["trainer"], **spec.pop("trainer", {})}
    return {**found, "spec": {**found["spec"], **spec, "trainer": trainer}}


def mounting(name: str) -> list[Any]:
    return [{"name": "s", "secret": {"secretName": name}}]


def reading(name: str) -> list[Any]:
    return [{"name": "S", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]


def readers(name: str) -> dict[str, Any]:
    """Workloads that read a Secret, each in another way."""
    projected = [{"name": "s", "projected": {"sources": [{"secret": {"name": name}}]}}]
    every = {"envFrom": [{"secretRef": {"name": name}}]}
    return {
        "volume": pod(RESEARCH, None, pod_of(0, volumes=mounting(name))),
        "projected volume": pod(RESEARCH, None, pod_of(0, volumes=projected)),
        "variable": pod(RESEARCH, None, using(env=reading(name))),
        "all variables": pod(RESEARCH, None, using(**every)),
        "init container": pod(
            RESEARCH, None, pod_of(0, initContainers=using(name="before", env=reading(name))["containers"])
        ),
        "job": job(RESEARCH, None, pod_of(0, volumes=mounting(name))),
        "job set": job_set(RESEARCH, None, pod_of(0, volumes=mounting(name))),
        "gang": gang(RESEARCH, "ml-research-l4", pod_of(0, volumes=mounting(name))),
        "train job": training(trainer={"env": reading(name)}),
        "train job's dataset": training(initializer={"dataset": {"secretRef": {"name": name}}}),
        "train job's model": training(initializer={"model": {"env": reading(name)}}),
        "train job's runtime": training(
            runtimePatches=patched_runtime(
                {"volumes": mounting(name), "containers": [{"name": "node", "env": reading(name)}]}
            )
        ),
        "csi": pod(
            RESEARCH,
            None,
            pod_of(
                0,
                containers=[{"name": "c", "image": "registry.example.com/train:1"}],
                volumes=[{"name": "s", "csi": {"driver": STORE, "nodePublishSecretRef": {"name": name}}}],
            ),
        ),
    }


@pytest.mark.parametrize("way", readers(""))
def test_workloads_of_researchers_cannot_read_secrets(member: Member, way: str) -> None:
    researcher = member("researchers")
    words = "uses Secret robot, but you may not read Secrets in this namespace; ask a lead of the team to submit it"
    assert words in researcher.refusal(readers("robot")[way])
    assert not researcher.refusal(readers("shared")[way]), "the team's workloadSecrets"
    for who in ("leads", "cohort-leads"):
        assert not member(who).refusal(readers("robot")[way])
    assert "cannot create resource" in member("viewers").refusal(readers("shared")[way])


def test_runtimes_of_train_jobs_get_no_foreign_volumes(member: Member) -> None:
    for volume, words in {"nfs": "has volume v of type nfs", "emptyDir": ""}.items():
        source = {"server": "192.0.2.1", "path": "/"} if words else {}
        own = training(runtimePatches=patched_runtime({"volumes": [{"name": "v", volume: source}]}))
        message = member("researchers").refusal(own)
        assert words in message if words else not message


def test_a_train_job_does_not_begin_to_read_them(member: Member, kept: Callable[..., Any]) -> None:
    own, reading_it = kept(training(), "trained"), patched_runtime({"volumes": mounting("robot")})
    refused = member("researchers").patch_refusal(own, {"spec": {"runtimePatches": reading_it}})
    assert "uses Secret robot" in refused or "changes spec.runtimePatches" in refused  # the server tells one reason
    assert not member("researchers").patch_refusal(own, {"metadata": {"labels": {"note": "x"}}})


def test_images_are_pulled_with_any_secret(member: Member) -> None:
    assert not member("researchers").refusal(pod(RESEARCH, None, pod_of(0, imagePullSecrets=[{"name": "registry"}])))


@pytest.fixture(scope="module")
def secretive(cluster: Cluster, deployed: Waves) -> Iterator[Any]:
    """A lead's pod with a Secret, and without a node."""
    assert deployed
    found = pod(RESEARCH, None, pod_of(0, volumes=mounting("robot"), nodeSelector={"no": "node"}))
    found["metadata"]["name"] = "secretive"
    yield cluster.create(found)
    cluster.delete(Reference.of(found), grace=0)


def test_researchers_cannot_change_pods_with_secrets(member: Member, secretive: Any) -> None:
    image: Any = {"spec": {"containers": [{**secretive["spec"]["containers"][0], "image": "registry.example.com/x:1"}]}}
    assert "uses Secret robot" in member("researchers").patch_refusal(secretive, image)
    assert not member("leads").patch_refusal(secretive, image)
    assert not member("researchers").patch_refusal(secretive, {"metadata": {"labels": {"note": "x"}}})


@pytest.mark.parametrize("who", TEAM)
def test_members_cannot_add_containers_to_a_running_pod(member: Member, secretive: Any, who: str) -> None:
    shell: Any = {"spec": {"ephemeralContainers": [{"name": "shell", "image": "sh:1"}]}}
    words = member(who).patch_refusal(secretive, shell, subresource="ephemeralcontainers")
    assert 'cannot patch resource "pods/ephemeralcontainers"' in words


def running(**spec: Any) -> dict[str, Any]:
    return {
        "pod": pod(RESEARCH, None, pod_of(0, **spec)),
        "job": job(RESEARCH, None, pod_of(0, **spec)),
        "job set": job_set(RESEARCH, None, pod_of(0, **spec)),
        "gang": gang(RESEARCH, "ml-research-l4", pod_of(0, **spec)),
        "train job": training(runtimePatches=patched_runtime(spec)),
    }


@pytest.mark.parametrize("kind", running())
@pytest.mark.parametrize("who", ["researchers", "leads", "cohort-leads"])
def test_members_cannot_run_pods_with_another_service_account(member: Member, who: str, kind: str) -> None:
    """The account of the team's robot, which is not for pods."""
    words = "sets service account ci, whose rights its pod would have; set serviceAccountName: workload"
    assert words in member(who).refusal(running(serviceAccountName="ci")[kind])
    for own in ("workload", "default"):
        assert not member(who).refusal(running(serviceAccountName=own)[kind])


def test_workloads_need_membership_in_their_namespace(member: Member) -> None:
    for who, allowed in {"researchers": False, "leads": False, "cohort-leads": True, "auditors": False}.items():
        submitted = job(EXPERIMENTS, EXPERIMENTS)
        assert submitted["metadata"]["labels"][QUEUE] == EXPERIMENTS
        assert (not member(who).refusal(submitted)) == allowed, who
