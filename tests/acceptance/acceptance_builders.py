"""Objects of stacks for a real API server, and valid objects of which a test breaks one part."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import pytest
from builders import GPU, Data
from repository import ROOT

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.model.source import Source, read_file, to_config

Manifest: TypeAlias = dict[str, Json]
Waves: TypeAlias = list[list[Manifest]]
STACKS = sorted(file.stem.removeprefix("Pulumi.") for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))


def sections_of(stack: str) -> Data:
    return deepcopy(read_file(ROOT / "stacks" / f"Pulumi.{stack}.yaml").sections)


def declared(sections: Data) -> tuple[KubernetesObject, ...]:
    rendered = render(ROOT, project="gpu-tenancy", stack="acceptance", config=to_config(Source(sections)))
    assert problems(rendered) == ()
    return kubernetes_objects(rendered)


def in_waves(objects: Sequence[KubernetesObject]) -> Waves:
    return [[dict(one.manifest) for one in wave] for wave in waves(objects)]


def flat(stack: Waves) -> list[Manifest]:
    return [manifest for wave in stack for manifest in wave]


def only(objects: Iterable[KubernetesObject], kind: str, name: str = "") -> Any:
    """The one object of a kind (and name)."""
    (found,) = (one for one in objects if one.kind == kind and name in {"", one.name})
    return deepcopy(dict(found.manifest))


def moved(manifest: Any, namespace: str) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def a_binding(name: str, role: str, *subjects: tuple[str, str], namespace: str = "") -> Any:
    """Binds a ClusterRole to groups or users, each as its kind and name."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject} for kind, subject in subjects],
    }


def an_account(cluster: Cluster, namespace: str, name: str = "workload") -> None:
    """Has a ServiceAccount for pods of the stack in a namespace."""
    metadata: Json = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def a_pod(namespace: str, name: str = "pod", *, requests: Data | None = None, limits: Data | None = None) -> Any:
    """A pod that every API server accepts; it requests one GPU."""
    asked = {"requests": requests, "limits": {GPU: 1} if limits is None else limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/train:1",
                    "resources": {key: value for key, value in asked.items() if value is not None},
                }
            ]
        },
    }


def resources(pod: Mapping[str, Json]) -> Any:
    """The resources of the pod's only container, after admission has completed them."""
    return cast("Any", pod)["spec"]["containers"][0]["resources"]


def refusal(send: Callable[[], object]) -> str:
    """The API server's message; fails if it accepts."""
    with pytest.raises(ApiError) as refused:
        send()
    return refused.value.message


_UNKNOWN: Final = ("status unknown for quota", "no PriorityClass with name")


def admitted(cluster: Cluster, pod: Any) -> Any:
    """The pod after admission, by a dry run; waits for quotas and classes that admission does not know yet."""

    def known() -> Any:
        try:
            return cluster.create(pod, dry_run=True)
        except ApiError as error:
            if not any(words in error.message for words in _UNKNOWN):
                raise
        return None

    return cluster.wait_for(known, what="admission to know quotas and classes")


def refused_soon(cluster: Cluster, words: str, pod: Any) -> None:
    """Waits until a quota refuses a pod: admission's own copy of a quota can be older than the stored one."""

    def refused() -> bool:
        try:
            cluster.create(pod, dry_run=True)
        except ApiError as error:
            return words in error.message
        return False

    cluster.wait_for(refused, what=f"a refusal with {words!r}")


@dataclass
class Server:
    """An API server that is asked about each object once."""

    cluster: Cluster
    namespace: str
    asked: set[str] = field(default_factory=set[str])

    def refusals(self, objects: Sequence[KubernetesObject]) -> list[str]:
        """Its refusals; namespaces of the stack need not exist."""
        return [refusal for one in objects if (refusal := self._refusal(one.manifest))]

    def _refusal(self, manifest: Any) -> str:
        sent = moved(manifest, self.namespace) if "namespace" in manifest["metadata"] else manifest
        written = json.dumps(sent, sort_keys=True)
        if written in self.asked:
            return ""
        self.asked.add(written)
        try:
            self.cluster.apply(sent, dry_run=True, force=True)
        except ApiError as error:
            return f"{manifest['kind']}: {error}"
        return ""
