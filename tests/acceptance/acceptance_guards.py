"""Tenants of a stack: people with Kubernetes' own right to edit their namespaces, and what they make there."""

import base64
import json
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from builders import GPU

from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.cluster.errors import ApiError
from gpu_tenancy.console.cluster.references import Reference

QUEUE = "kueue.x-k8s.io/queue-name"
RESEARCH, PRODUCTION, EXPERIMENTS = "ml-research", "ml-production", "ml-experiments"
TEAMS = (RESEARCH, PRODUCTION, EXPERIMENTS, "ml-serving")
POLICIES = ("amount", "queue", "ratio", "scheduling", "toleration")
NO_QUEUE = (
    "asks for GPUs and names no queue, so that no share would count them; write kueue.x-k8s.io/queue-name: ml-research"
)
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
_EDITED = ("jobset.x-k8s.io", "trainer.kubeflow.org", "batch.volcano.sh", "scheduling.volcano.sh", "keda.sh")


@dataclass(frozen=True)
class Person:
    """Somebody who is logged in."""

    cluster: Cluster
    token: str
    authority: str

    def said(self, manifest: Any) -> str | None:
        """The API server's words where it refuses an object; None where it would take it."""
        try:
            self.cluster.create(manifest, dry_run=True)
        except ApiError as error:
            return error.message
        return None

    def warnings(self, manifest: Any) -> tuple[int, list[str]]:
        """The status of a dry run, and the warnings that came with it."""
        reference = Reference.of(manifest)
        path = self.cluster.resource(reference.api_version, reference.kind).path(reference.namespace)
        trust = ssl.create_default_context(cadata=self.authority)
        connection = HTTPSConnection(urlsplit(self.cluster.server).netloc, context=trust)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request("POST", f"{path}?dryRun=All", json.dumps(manifest), headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers.get_all("Warning") or []


@dataclass(frozen=True)
class Door:
    """The way into a cluster for people who are no members of `system:masters`, as its administrator is."""

    cluster: Cluster
    kubeconfig: Path
    folder: Path

    @contextmanager
    def let_in(self, name: str, role: str, *namespaces: str, home: str = "") -> Generator[Person]:
        """Logs somebody in, as a service account of `home`, with a role in some namespaces, or everywhere.

        Whoever is let in twice under one name needs two homes: the first is still on its way out.
        """
        home = home or f"guards-{name}"
        self.cluster.apply(_object("v1", "Namespace", home))
        made: list[Any] = [
            _object("v1", "ServiceAccount", name, home),
            {
                **_object("v1", "Secret", name, home, annotations={"kubernetes.io/service-account.name": name}),
                "type": "kubernetes.io/service-account-token",
            },
            *_rights(name, home, role, namespaces),
        ]
        for manifest in made:
            self.cluster.apply(manifest)
        secret = self.cluster.wait_for(lambda: self._secret(name, home), what="a token")
        token = base64.b64decode(secret["token"]).decode()
        config: Any = yaml.safe_load(self.kubeconfig.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        file = self.folder / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        with Cluster(file) as own:
            yield Person(own, token, base64.b64decode(secret["ca.crt"]).decode())
        for manifest in reversed(made):
            self.cluster.delete(Reference.of(manifest), wait=0)
        self.cluster.delete(Reference("v1", "Namespace", home), wait=0)

    def _secret(self, name: str, home: str) -> Any:
        found: Any = self.cluster.get("v1", "Secret", name, home) or {}
        return found["data"] if "token" in found.get("data", {}) else None


def _object(api: str, kind: str, name: str, namespace: str = "", **metadata: Any) -> Any:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **place, **metadata}}


def _rights(name: str, home: str, role: str, namespaces: tuple[str, ...]) -> Iterator[Any]:
    rbac = "rbac.authorization.k8s.io/v1"
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": home}]

    def of(named: str) -> Any:
        return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": named}

    if not namespaces:
        yield {**_object(rbac, "ClusterRoleBinding", f"guards-{name}"), "subjects": subjects, "roleRef": of(role)}
        return
    # What operators' charts add to `edit`, where they are installed.
    rules = [{"apiGroups": list(_EDITED), "resources": ["*"], "verbs": ["*"]}]
    yield {**_object(rbac, "ClusterRole", f"guards-{name}"), "rules": rules}
    for namespace in namespaces:
        for named in (role, f"guards-{name}"):
            binding = _object(rbac, "RoleBinding", f"{name}-{named}", namespace)
            yield {**binding, "subjects": subjects, "roleRef": of(named)}


def pod_of(gpus: int | str = 1, **spec: Any) -> Any:
    """A pod spec with GPUs, or with none."""
    asked = {"cpu": "1", "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    resources = {"requests": asked, "limits": asked}
    containers = [{"name": "c", "image": "registry.example.com/train:1", "resources": resources}]
    tolerations = {"tolerations": [TOLERATION]} if gpus else {}
    return {"containers": containers, "restartPolicy": "Never", **tolerations, **spec}


def labels(queue: str | None, **more: str) -> dict[str, str]:
    return {"app": "x", **({QUEUE: queue} if queue else {}), **more}


def pod(namespace: str, queue: str | None, spec: Any | None = None, **metadata: Any) -> Any:
    return {**_object("v1", "Pod", "p", namespace, labels=labels(queue), **metadata), "spec": spec or pod_of()}


def job(namespace: str, queue: str | None, spec: Any | None = None, **metadata: Any) -> Any:
    found = _object("batch/v1", "Job", "j", namespace, labels=labels(queue), **metadata)
    return {**found, "spec": {"template": {"spec": spec or pod_of()}}}


def cron_job(namespace: str, queue: str | None) -> Any:
    template = {"metadata": {"labels": labels(queue)}, "spec": {"template": {"spec": pod_of()}}}
    found = _object("batch/v1", "CronJob", "c", namespace)
    return {**found, "spec": {"schedule": "0 3 * * *", "jobTemplate": template}}


def replicas(kind: str, namespace: str, queue: str | None, *, inside: str | None = None, spec: Any = None) -> Any:
    """A Deployment or its like, with the queue outside and, where it is named, inside."""
    template = {"metadata": {"labels": labels(inside)}, "spec": {**(spec or pod_of()), "restartPolicy": "Always"}}
    named = {"serviceName": "x"} if kind == "StatefulSet" else {}
    found = _object("apps/v1", kind, "d", namespace, labels=labels(queue))
    return {**found, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template, **named}}


def job_set(namespace: str, queue: str | None, spec: Any | None = None) -> Any:
    jobs = [{"name": "w", "template": {"spec": {"template": {"spec": spec or pod_of()}}}}]
    found = _object("jobset.x-k8s.io/v1alpha2", "JobSet", "s", namespace, labels=labels(queue))
    return {**found, "spec": {"replicatedJobs": jobs}}


def train_job(namespace: str, queue: str | None, gpus: int = 1) -> Any:
    found = _object("trainer.kubeflow.org/v1alpha1", "TrainJob", "t", namespace, labels=labels(queue))
    resources = {"limits": {GPU: gpus}, "requests": {GPU: gpus}}
    trainer = {"numNodes": 2, "resourcesPerNode": resources}
    return {**found, "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}}


def gang(namespace: str, queue: str | None, spec: Any | None = None, **more: Any) -> Any:
    tasks = [{"name": "w", "replicas": 2, "template": {"spec": spec or pod_of()}}]
    found = _object("batch.volcano.sh/v1alpha1", "Job", "g", namespace)
    return {
        **found,
        "spec": {"schedulerName": "volcano", "tasks": tasks, **({"queue": queue} if queue else {}), **more},
    }


def bounded(*, cpu: tuple[str, str | None]) -> Any:
    """A pod without GPUs, with a request and a limit of cpu."""
    spec = pod_of(0)
    request, limit = cpu
    spec["containers"][0]["resources"] = {"requests": {"cpu": request}, "limits": {"cpu": limit} if limit else {}}
    return spec


def pod_group(namespace: str, queue: str) -> Any:
    found = _object("scheduling.volcano.sh/v1beta1", "PodGroup", "g", namespace)
    return {**found, "spec": {"minMember": 2, "queue": queue}}
