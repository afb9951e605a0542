"""Researchers of the stack `local`, with its real flavors, guards, defaults and roles, without its servers and jobs."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml
from builders import Data, stack
from queueing import Queueing
from removing import remove
from repository import ROOT

from gpu_tenancy.access.kubeconfigs import impersonating
from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.engine.objects import kubernetes_objects, waves
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.needs import OF_JOBS
from gpu_tenancy.model.source import Source, read_file, to_config
from gpu_tenancy.model.spec.people import Person

TEAM: Final = "ml-research"
WORK: Final = frozenset(
    {"Deployment", "Job", "JobSet", "TrainJob", "RayJob", "LeaderWorkerSet", "Service", "HorizontalPodAutoscaler",
     "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim"}
)  # fmt: skip
"""Kinds of the stack's own servers and jobs, which would use its GPUs, and of their data."""


@dataclass(frozen=True)
class Researcher:
    """A member of the group ml-research, with the group's rights in the stack only."""

    own: Cluster  # as this person
    cluster: Cluster  # as its administrator
    kubeconfig: Path
    objects: Sequence[Manifest]  # of the stack, as applied, in this order
    work: Sequence[Manifest] = ()  # its servers, jobs and their data, which are not applied

    def submit(self, manifest: Any, *, dry_run: bool = False) -> Manifest:
        return self.own.create({**manifest, "metadata": {**manifest["metadata"], "namespace": TEAM}}, dry_run=dry_run)

    def pods(self, name: str) -> list[Manifest]:
        found = self.own.list("v1", "Pod", namespace=TEAM)
        return [pod for pod in found if f"{text_at(pod, 'metadata', 'name')}-".startswith(f"{name}-")]

    def running(self, name: str, count: int) -> list[Manifest]:
        """Waits until an object has exactly `count` pods, and all have started."""

        def started() -> list[Manifest] | None:
            pods = self.pods(name)
            begun = [pod for pod in pods if text_at(pod, "status", "phase") != "Pending"]
            return pods if len(begun) == count == len(pods) else None

        return self.cluster.wait_for(started, timeout=60, what=f"{count} running pods of {name}")

    def end(self, made: Manifest) -> None:
        reference = Reference.of(made)
        self.cluster.delete(reference)
        self.cluster.wait_for(lambda: not self.pods(reference.name) or None, what=f"the end of {reference.name}")


def sections() -> Data:
    """The stack `local` with guards that deny."""
    found = dict(read_file(ROOT / "stacks" / "Pulumi.local.yaml").sections)
    found["operators"] = {**dict.fromkeys(OF_JOBS, "installed"), "kueue": "installed"}
    return {**found, "guards": "deny"}


@contextmanager
def researching(
    queueing: Queueing, folder: Path, stack_of: Data | None = None, team: str = TEAM
) -> Generator[Researcher]:
    """A stack on the platform (default: `local`), and a member of the group with a team's name."""
    source = Source(stack_of or sections())
    declared = load(source)
    queueing.run(declared)
    cluster = queueing.cluster
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="submitting", config=to_config(source)))
    ordered: list[Manifest] = [dict(item.manifest) for wave in waves(made) for item in wave]
    dashboards = declared.metrics.prometheus.namespace  # which this platform does not have
    ordered = [one for one in ordered if text_at(one, "metadata", "namespace") != dashboards]
    objects = [manifest for manifest in ordered if manifest["kind"] not in WORK]
    work = [manifest for manifest in ordered if manifest["kind"] in WORK]
    bring_nodes(cluster, node_shapes(declared))
    for manifest in objects:
        cluster.apply(manifest)
    config: Any = yaml.safe_load(queueing.platform.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = impersonating(config["users"][0]["user"], Person("group", team)) | {"as": "rita"}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    with Cluster(kubeconfig) as own:
        rita = Researcher(own, cluster, kubeconfig, objects, work)
        cluster.wait_for(lambda: _is_completed(own, team) or None, what="defaults, guards and roles to be in force")
        yield rita
    remove(cluster, objects)
    bring_nodes(cluster, ())
    queueing.run(load(Source(stack())))


@contextmanager
def weakened(cluster: Cluster, name: str, variable: str) -> Generator[None]:
    """A guard, or an admission policy of defaults, without the rule or mutation that reads a variable."""
    kind, field = ("Mutating", "mutations") if name.startswith("default-") else ("Validating", "validations")
    policy = Reference("admissionregistration.k8s.io/v1", f"{kind}AdmissionPolicy", f"gpu-tenancy-{name}")
    rules: Any = at(cluster.get(*policy) or {}, "spec", field)
    others = [rule for rule in rules if not re.search(rf"\bvariables\.{variable}\b", str(rule))]
    assert len(others) == len(rules) - 1
    cluster.patch(policy, {"spec": {field: others}})
    try:
        yield
    finally:
        cluster.patch(policy, {"spec": {field: rules}})


def identified(researcher: Researcher, person: Person, folder: Path) -> Path:
    config: Any = yaml.safe_load(researcher.kubeconfig.read_text(encoding="utf-8"))
    kept = {key: value for key, value in config["users"][0]["user"].items() if not key.startswith("as")}
    config["users"][0]["user"] = impersonating(kept, person)
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


@contextmanager
def holding(researcher: Researcher, role: str, folder: Path) -> Generator[Researcher]:
    """A user with the name and the rights of a cluster role, in the namespace only."""
    rbac = "rbac.authorization.k8s.io"
    subject: Json = {"kind": "User", "name": role, "apiGroup": rbac}
    metadata: Json = {"name": role, "namespace": TEAM}
    binding: Manifest = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata}
    bound: Json = {"apiGroup": rbac, "kind": "ClusterRole", "name": role}
    researcher.cluster.apply({**binding, "subjects": [subject], "roleRef": bound})
    file = identified(researcher, Person("user", role), folder)
    with Cluster(file) as own:
        yield replace(researcher, own=own, kubeconfig=file)
    researcher.cluster.delete(Reference.of(binding))


def _is_completed(own: Cluster, team: str) -> bool:
    pod: Json = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    spec: Json = {"template": {"spec": pod}}
    metadata: Json = {"name": "first", "namespace": team}
    try:
        made = own.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}, dry_run=True)
    except ApiError:
        return False
    return bool(at(made, "metadata", "labels", "kueue.x-k8s.io/queue-name"))
