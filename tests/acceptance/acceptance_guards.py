"""Tenants of a stack: people with Kubernetes' own right to edit their namespaces, and their objects."""

import base64
import json
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from acceptance_builders import a_binding, declared
from builders import GPU
from urllib3 import BaseHTTPResponse, HTTPSConnectionPool

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference

QUEUE = "kueue.x-k8s.io/queue-name"
RESEARCH, PRODUCTION, EXPERIMENTS = "ml-research", "ml-production", "ml-experiments"
TEAMS = (RESEARCH, PRODUCTION, EXPERIMENTS, "ml-serving")
# A member of a team, of the cohort above it, and of a team in another branch of the tree.
MEMBERS: tuple[tuple[str, str, Any], ...] = (
    ("teams", RESEARCH, {"leads": ["group:leads"], "researchers": ["group:researchers"], "viewers": ["group:viewers"]}),
    ("cohorts", "research", {"leads": ["group:cohort-leads"]}),
    ("teams", PRODUCTION, {"researchers": ["group:others"]}),
)
POLICIES = (
    "accounts", "amount", "count", "devices", "disruption", "expose", "grace", "kueue-metadata", "namespace", "network",
    "operators", "owners", "priority", "queue", "queue-objects", "ratio", "release", "scheduling", "secrets",
    "sizes", "status", "tokens", "toleration",
)  # fmt: skip
NO_QUEUE = "requests GPUs without a queue; set label kueue.x-k8s.io/queue-name: ml-research"
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
_LAST = "guards-are-in-force"
_EDITED = (
    "argoproj.io", "batch.volcano.sh", "cilium.io", "crd.antrea.io", "crd.projectcalico.org", "data.fluid.io",
    "flow.volcano.sh", "gateway.networking.k8s.io", "gateway.networking.x-k8s.io", "jobset.x-k8s.io", "keda.sh",
    "kubeflow.org", "kueue.x-k8s.io", "leaderworkerset.x-k8s.io", "networking.gke.io", "networking.k8s.aws",
    "projectcalico.org", "ray.io", "scheduling.volcano.sh", "trainer.kubeflow.org",
)  # fmt: skip


@dataclass(frozen=True)
class Person:
    """A logged-in user; headers of impersonation change the user."""

    cluster: Cluster  # the API server, for the token's account; without the headers
    token: str
    authority: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def impersonating(self, group: str) -> "Person":
        """A user of a group, without other rights."""
        return replace(self, headers={"Impersonate-User": f"one-of-{group}", "Impersonate-Group": group})

    def asked(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer of a dry run; a kind that was just defined answers 429 until its storage is ready."""

        def settled() -> tuple[int, Any] | None:
            status, answer, _ = self._ask(method, path, body)
            return None if status == 429 else (status, answer)

        return self.cluster.wait_for(settled, what=f"{path} to be served")

    def refusal(self, manifest: Any) -> str:
        """The API server's message if it would not create an object; else empty."""
        status, answer, _ = self._ask("POST", self._collection(Reference.of(manifest)), manifest)
        return "" if status < 300 else str(answer["message"])

    def wait_for_refusal(self, manifest: Any, words: str = "", *, what: str = "the policies to be in force") -> str:
        """Waits until the API server would refuse to create an object with some words; returns its message."""

        def refused() -> str | None:
            message = self.refusal(manifest)
            return message if message and words in message else None

        return self.cluster.wait_for(refused, what=what)

    def warnings(self, manifest: Any) -> tuple[int, list[str]]:
        status, _, warnings = self._ask("POST", self._collection(Reference.of(manifest)), manifest)
        return status, warnings

    def patch_refusal(self, manifest: Any, patch: Any, *, subresource: str = "") -> str:
        """The API server's message if it would refuse a change of an object; else empty."""
        return self._refusal("PATCH", manifest, patch, subresource)

    def delete_refusal(self, manifest: Any, **options: Any) -> str:
        return self._refusal("DELETE", manifest, {"dryRun": ["All"], **options})

    def _refusal(self, method: str, manifest: Any, body: Any, subresource: str = "") -> str:
        reference = Reference.of(manifest)
        path = "/".join([self._collection(reference), reference.name, *([subresource] if subresource else [])])
        status, answer, _ = self._ask(method, path, body)
        assert status in {200, 202, 403, 422}, answer
        return "" if status < 300 else str(answer["message"])

    def _collection(self, reference: Reference) -> str:
        return self.cluster.resource(reference.api_version, reference.kind).path(reference.namespace)

    def _ask(self, method: str, path: str, body: Any) -> tuple[int, Any, list[str]]:
        answer = self.send(method, path, body)
        return answer.status, answer.json(), answer.headers.getlist("Warning")

    def send(self, method: str, path: str, body: Any = None) -> BaseHTTPResponse:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content, **self.headers}
        query = "" if method == "GET" else f"{'&' if '?' in path else '?'}dryRun=All&fieldValidation=Strict"
        sent = None if body is None else json.dumps(body)
        connections = _connections(self.cluster.server, self.authority)
        return connections.request(method, f"{path}{query}", body=sent, headers=headers)


@cache
def _connections(server: str, authority: str) -> HTTPSConnectionPool:
    """Connections that people share: a new one takes as long as a dry run."""
    address, trust = urlsplit(server), ssl.create_default_context(cadata=authority)
    return HTTPSConnectionPool(str(address.hostname), address.port, ssl_context=trust, retries=False)


@dataclass(frozen=True)
class Door:
    """Logs in people who are not members of `system:masters`, as the administrator is."""

    cluster: Cluster
    kubeconfig: Path
    folder: Path

    @contextmanager
    def let_in(self, name: str, role: str, *namespaces: str, home: str = "") -> Generator[Person]:
        """Logs in a service account of `home`; a second one of that name needs another home: deletion takes a while."""
        home = home or f"guards-{name}"
        self.cluster.apply(an_object("v1", "Namespace", home))
        made: list[Any] = [an_object("v1", "ServiceAccount", name, home), *_rights(name, home, role, namespaces)]
        for manifest in made:
            self.cluster.apply(manifest)
        token = self.cluster.token(home, name, seconds=24 * 3600)
        config: Any = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        config["users"][0]["user"] = {"token": token}
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        with Cluster(file) as own:
            # It may still know an account of the same name that was deleted.
            self.cluster.wait_for(own.ready, what="the API server to accept the token")
            yield Person(own, token, authority)
        for manifest in reversed(made):
            self.cluster.delete(Reference.of(manifest), wait=0)
        self.cluster.delete(Reference("v1", "Namespace", home), wait=0)

    @contextmanager
    def newcomer(self, name: str, role: str, team: str, **facts: str) -> Generator[Person]:
        """Logs in an account with a role in a new namespace of a team, with these facts for guards."""
        read = {f"guards.gpu-tenancy.dev/{key.replace('_', '-')}": value for key, value in facts.items()}
        label = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
        namespace = an_object("v1", "Namespace", team, labels=label, annotations=read)
        self.cluster.apply(namespace)
        with self.let_in(name, role, team) as person:
            own = an_object("v1", "ConfigMap", "own", team)
            self.cluster.wait_for(lambda: not person.refusal(own), what=f"rights of {name}")
            yield person
        self.cluster.delete(Reference.of(namespace), wait=0)


def an_object(api: str, kind: str, name: str, namespace: str = "", **metadata: Any) -> Any:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **place, **metadata}}


def _rights(name: str, home: str, role: str, namespaces: tuple[str, ...]) -> Iterator[Any]:
    user = "User", f"system:serviceaccount:{home}:{name}"
    if not namespaces:
        yield a_binding(f"guards-{name}", role, user)
        return
    # What operators' charts add to `edit`, where they are installed.
    rules = [{"apiGroups": list(_EDITED), "resources": ["*"], "verbs": ["*"]}]
    yield {**an_object("rbac.authorization.k8s.io/v1", "ClusterRole", f"guards-{name}"), "rules": rules}
    for namespace in namespaces:
        for named in (role, f"guards-{name}"):
            yield a_binding(f"{name}-{named}", named, user, namespace=namespace)


def pod_of(gpus: int | str = 1, **spec: Any) -> Any:
    asked = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    resources = {"requests": asked, "limits": asked}
    containers = [{"name": "c", "image": "registry.example.com/train:1", "resources": resources}]
    tolerations = {"tolerations": [TOLERATION]} if gpus else {}
    return {"containers": containers, "restartPolicy": "Never", **tolerations, **spec}


def labels(queue: str | None, **more: str) -> dict[str, str]:
    return {"app": "x", **({QUEUE: queue} if queue else {}), **more}


def pod(namespace: str, queue: str | None, spec: Any | None = None, **metadata: Any) -> Any:
    return {**an_object("v1", "Pod", "p", namespace, labels=labels(queue), **metadata), "spec": spec or pod_of()}


def job(namespace: str, queue: str | None, spec: Any | None = None, **metadata: Any) -> Any:
    found = an_object("batch/v1", "Job", "j", namespace, labels=labels(queue), **metadata)
    return {**found, "spec": {"template": {"spec": spec or pod_of()}}}


def owned(api: str, kind: str, manifest: Any) -> Any:
    owner = {"apiVersion": api, "kind": kind, "name": "o", "uid": "1", "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def cron_job(namespace: str, queue: str | None) -> Any:
    template = {"metadata": {"labels": labels(queue)}, "spec": {"template": {"spec": pod_of()}}}
    found = an_object("batch/v1", "CronJob", "c", namespace)
    return {**found, "spec": {"schedule": "0 3 * * *", "jobTemplate": template}}


def replicas(kind: str, namespace: str, queue: str | None, *, inside: str | None = None, spec: Any = None) -> Any:
    """A Deployment or its like, with the queue outside and, if `inside` is given, in the pod template."""
    template = {"metadata": {"labels": labels(inside)}, "spec": {**(spec or pod_of()), "restartPolicy": "Always"}}
    named = {"serviceName": "x"} if kind == "StatefulSet" else {}
    found = an_object("apps/v1", kind, "d", namespace, labels=labels(queue))
    return {**found, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template, **named}}


def job_set(namespace: str, queue: str | None, spec: Any | None = None) -> Any:
    jobs = [{"name": "w", "template": {"spec": {"template": {"spec": spec or pod_of()}}}}]
    found = an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "s", namespace, labels=labels(queue))
    return {**found, "spec": {"replicatedJobs": jobs}}


def train_job(namespace: str, queue: str | None, gpus: int = 1) -> Any:
    found = an_object("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", namespace, labels=labels(queue))
    trainer = {"numNodes": 2, "resourcesPerNode": {"limits": {GPU: gpus}, "requests": {GPU: gpus}}}
    node = {"name": "node", "template": {"spec": {"template": {"spec": {"tolerations": [TOLERATION]}}}}}
    patch = {"manager": "example.com/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return {**found, "spec": {**spec, **({"runtimePatches": [patch]} if gpus else {})}}


ON_L4 = {"nvidia.com/gpu.product": "NVIDIA-L4"}


def gang(namespace: str, queue: str | None, spec: Any | None = None, **more: Any) -> Any:
    tasks = [{"name": "w", "replicas": 2, "template": {"spec": {**(spec or pod_of()), "nodeSelector": ON_L4}}}]
    return {
        **an_object("batch.volcano.sh/v1alpha1", "Job", "g", namespace),
        "spec": {"schedulerName": "volcano", "tasks": tasks, **({"queue": queue} if queue else {}), **more},
    }


def bounded(*, cpu: tuple[str, str | None]) -> Any:
    """A pod without GPUs, with a request and a limit of CPU."""
    spec = pod_of(0)
    request, limit = cpu
    spec["containers"][0]["resources"] = {"requests": {"cpu": request}, "limits": {"cpu": limit} if limit else {}}
    return spec


def pod_group(namespace: str, queue: str) -> Any:
    found = an_object("scheduling.volcano.sh/v1beta1", "PodGroup", "g", namespace)
    return {**found, "spec": {"minMember": 2, "queue": queue}}


def volcano_cron_job(namespace: str, queue: str | None, spec: Any | None = None, **more: Any) -> Any:
    found = an_object("batch.volcano.sh/v1alpha1", "CronJob", "c", namespace)
    return {**found, "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": gang("", queue, spec, **more)["spec"]}}}


def job_template(namespace: str, queue: str | None, spec: Any | None = None, **more: Any) -> Any:
    found = an_object("flow.volcano.sh/v1alpha1", "JobTemplate", "t", namespace)
    return {**found, "spec": gang("", queue, spec, **more)["spec"]}


def _template(queue: str | None, spec: Any | None) -> Any:
    return {"metadata": {"labels": labels(queue)}, "spec": spec or pod_of()}


def ray_cluster(namespace: str, queue: str | None, spec: Any | None = None, *, inside: str | None = None) -> Any:
    """A RayCluster whose workers have GPUs and whose head has none."""
    number = {"replicas": 2, "minReplicas": 2, "maxReplicas": 2}
    groups = [{"groupName": "w", **number, "template": _template(inside, spec)}]
    found = an_object("ray.io/v1", "RayCluster", "r", namespace, labels=labels(queue))
    return {**found, "spec": {"headGroupSpec": {"template": _template(None, pod_of(0))}, "workerGroupSpecs": groups}}


def ray_job(namespace: str, queue: str | None, spec: Any | None = None, *, inside: str | None = None) -> Any:
    found = an_object("ray.io/v1", "RayJob", "r", namespace, labels=labels(queue))
    return {**found, "spec": {"rayClusterSpec": ray_cluster(namespace, None, spec, inside=inside)["spec"]}}


def ray_service(namespace: str, queue: str | None, spec: Any | None = None, *, inside: str | None = None) -> Any:
    found = an_object("ray.io/v1", "RayService", "r", namespace, labels=labels(queue))
    return {**found, "spec": {"rayClusterConfig": ray_cluster(namespace, None, spec, inside=inside)["spec"]}}


def pytorch_job(namespace: str, queue: str | None, spec: Any | None = None, *, inside: str | None = None) -> Any:
    replica_specs = {"Worker": {"replicas": 2, "template": _template(inside, spec)}}
    found = an_object("kubeflow.org/v1", "PyTorchJob", "p", namespace, labels=labels(queue))
    return {**found, "spec": {"pytorchReplicaSpecs": replica_specs}}


def leader_worker_set(namespace: str, queue: str | None, spec: Any | None = None, *, inside: str | None = None) -> Any:
    found = an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", namespace, labels=labels(queue))
    return {**found, "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": _template(inside, spec)}}}


def workload(name: str, *specs: Any, owner: Any = None, **spec: Any) -> Any:
    """A Workload as Kueue, which does not run here, has it of ml-research: a pod set for each spec of pods."""
    sets = [{"name": f"s{n}", "count": 1, "template": {"spec": one}} for n, one in enumerate(specs or [pod_of(0)])]
    owners = {"ownerReferences": [owner]} if owner else {}
    found = an_object("kueue.x-k8s.io/v1beta2", "Workload", name, RESEARCH, **owners)
    return {**found, "spec": {"queueName": RESEARCH, "podSets": sets, **spec}}


def network_policy(namespace: str, name: str = "own", **spec: Any) -> Any:
    return {**an_object("networking.k8s.io/v1", "NetworkPolicy", name, namespace), "spec": {"podSelector": {}, **spec}}


FOREIGN = {
    "applicationnetworkpolicies.networking.k8s.aws": ("ApplicationNetworkPolicy", "v1alpha1"),
    "ciliumnetworkpolicies.cilium.io": ("CiliumNetworkPolicy", "v2"),
    "fqdnnetworkpolicies.networking.gke.io": ("FQDNNetworkPolicy", "v1alpha3"),
    "grpcroutes.gateway.networking.k8s.io": ("GRPCRoute", "v1"),
    "listenersets.gateway.networking.k8s.io": ("ListenerSet", "v1"),
    "networkpolicies.crd.antrea.io": ("NetworkPolicy", "v1beta1"),
    "networkpolicies.crd.projectcalico.org": ("NetworkPolicy", "v1"),
    "networkpolicies.projectcalico.org": ("NetworkPolicy", "v3"),
    "policyendpoints.networking.k8s.aws": ("PolicyEndpoint", "v1alpha1"),
    "tcproutes.gateway.networking.k8s.io": ("TCPRoute", "v1alpha2"),
    "tlsroutes.gateway.networking.k8s.io": ("TLSRoute", "v1"),
    "udproutes.gateway.networking.k8s.io": ("UDPRoute", "v1alpha2"),
    "xlistenersets.gateway.networking.x-k8s.io": ("XListenerSet", "v1alpha1"),
    **{f"{kind.lower()}s.kubeflow.org": (kind, "v1") for kind in ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob")},
    **{f"{kind.lower()}s.kubeflow.org": (kind, "v1") for kind in ("TFJob", "XGBoostJob")},
    "rollouts.argoproj.io": ("Rollout", "v1alpha1"),
}
"""Kinds of operators that no stack installs, but a cluster can have: name of the definition, kind and version."""


def definition(name: str) -> Any:
    """A definition of such a kind, which accepts any field."""
    kind, version = FOREIGN[name]
    plural, _, group = name.partition(".")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups below k8s.io need one of these.
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
        },
    }


def guards_of(sections: Any) -> list[Any]:
    """Policies and bindings of a stack, except the one that always denies."""
    return [
        dict(one.manifest)
        for one in declared(sections)
        if one.kind.startswith("ValidatingAdmissionPolicy") and one.name != "gpu-tenancy-gpu-requests"
    ]


@contextmanager
def in_force(cluster: Cluster, guards: list[Any]) -> Generator[None]:
    """Has all guards in force, and removes them afterwards."""
    # The API server enforces policies some time after it accepted them, and deleted policies as long. A policy that
    # refuses a single object is created last and deleted last: the others are in force, or gone, when it is.
    last = _last()
    for manifest in (*guards, *last):
        cluster.apply(manifest, force=True)
    cluster.wait_for(lambda: _refused(cluster), what="the guards to be in force")
    yield
    for manifest in (*reversed(guards), *reversed(last)):
        cluster.delete(Reference.of(manifest))
    cluster.wait_for(lambda: not _refused(cluster), what="the guards to be gone")


def _last() -> tuple[Any, Any]:
    group, meta = "admissionregistration.k8s.io/v1", {"name": _LAST}
    maps = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "matchConstraints": {"resourceRules": [{**maps, "resourceNames": [_LAST]}]},
        "validations": [{"expression": "false"}],
    }
    bound = {"policyName": _LAST, "validationActions": ["Deny"]}
    kind = "ValidatingAdmissionPolicy"
    return (
        {"apiVersion": group, "kind": kind, "metadata": meta, "spec": policy},
        {"apiVersion": group, "kind": f"{kind}Binding", "metadata": meta, "spec": bound},
    )


def _refused(cluster: Cluster) -> bool:
    try:
        cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _LAST, "namespace": "default"}}, dry_run=True
        )
    except ApiError as error:
        return _LAST in error.message
    return False
