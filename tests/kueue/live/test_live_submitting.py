"""What a researcher of the stack `local` submits as upstream's examples have it; tests/docs runs those of the docs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from builders import Data, stack
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.access.kubeconfigs import impersonating
from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.engine.objects import kubernetes_objects, waves
from gpu_tenancy.engine.render import render
from gpu_tenancy.inspect.target import owners
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.needs import OF_JOBS
from gpu_tenancy.model.source import Source, read_file, to_config
from gpu_tenancy.model.spec.people import Person

pytestmark = pytest.mark.platform
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
TEAM: Final = "ml-research"
SAMPLES: Final[list[Any]] = yaml.safe_load(Path(__file__).with_name("submitted.yaml").read_text(encoding="utf-8"))
WORK: Final = frozenset(
    {"Deployment", "Job", "JobSet", "TrainJob", "RayJob", "LeaderWorkerSet", "Service", "HorizontalPodAutoscaler",
     "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim"}
)  # fmt: skip
"""Kinds of the stack's own servers and jobs, which would use its GPUs, and of their data."""


@dataclass(frozen=True)
class Researcher:
    """A member of the group ml-research, who has what the stack gives this group and nothing else.

    Attributes:
        own: the cluster as this person.
        cluster: the cluster as its administrator.
    """

    own: Cluster
    cluster: Cluster
    kubeconfig: Path

    def submit(self, manifest: Any) -> Manifest:
        """Creates an object in the namespace of the team.

        Raises:
            ApiError: it is refused.
        """
        return self.own.create({**manifest, "metadata": {**manifest["metadata"], "namespace": TEAM}})

    def pods(self, name: str) -> list[Manifest]:
        found = self.own.list("v1", "Pod", namespace=TEAM)
        return [pod for pod in found if f"{text_at(pod, 'metadata', 'name')}-".startswith(f"{name}-")]

    def running(self, name: str, count: int) -> list[Manifest]:
        """Waits until an object has exactly these pods on nodes."""

        def placed() -> list[Manifest] | None:
            pods = self.pods(name)
            return pods if len([pod for pod in pods if at(pod, "spec", "nodeName")]) == count == len(pods) else None

        return self.cluster.wait_for(placed, timeout=60, what=f"{count} running pods of {name}")

    def end(self, made: Manifest) -> None:
        reference = Reference.of(made)
        self.cluster.delete(reference)
        self.cluster.wait_for(lambda: not self.pods(reference.name) or None, what=f"the end of {reference.name}")


def _sections() -> Data:
    sections = dict(read_file(ROOT / "stacks" / "Pulumi.local.yaml").sections)
    # Volcano does not run here.
    research: Any = sections["teams"]
    del research[TEAM]["gangs"], research[TEAM]["training"]["gang"]
    sections["operators"] = {**dict.fromkeys(OF_JOBS, "installed"), "kueue": "installed"}
    return {**sections, "guards": "deny"}


@pytest.fixture(scope="module")
def researcher(queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    """The stack `local` with its real flavors, guards and roles, without its servers and jobs."""
    source = Source(_sections())
    declared = load(source)
    queueing.run(declared)
    cluster = queueing.cluster
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="submitting", config=to_config(source)))
    objects: list[Manifest] = [dict(item.manifest) for wave in waves(made) for item in wave if item.kind not in WORK]
    bring_nodes(cluster, node_shapes(declared))
    for manifest in objects:
        cluster.apply(manifest)
    config: Any = yaml.safe_load(queueing.platform.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = impersonating(config["users"][0]["user"], Person("group", TEAM)) | {"as": "rita"}
    kubeconfig = tmp_path_factory.mktemp("rita") / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    with Cluster(kubeconfig) as own:
        rita = Researcher(own, cluster, kubeconfig)
        first = {**SAMPLES[0]["object"], "metadata": {"name": "first", "namespace": TEAM}}
        cluster.wait_for(lambda: _is_completed(own, first) or None, what="defaults, guards and roles to be in force")
        yield rita
    for manifest in reversed(objects):
        cluster.delete(Reference.of(manifest), wait=60)
    bring_nodes(cluster, ())
    queueing.run(load(Source(stack())))


def _is_completed(own: Cluster, manifest: Any) -> bool:
    try:
        made = own.create(manifest, dry_run=True)
    except ApiError:
        return False
    return bool(at(made, "metadata", "labels", "kueue.x-k8s.io/queue-name"))


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample["of"] for sample in SAMPLES])
def test_what_upstreams_examples_submit_runs_or_is_refused_with_what_to_write(
    researcher: Researcher, sample: Any
) -> None:
    name = sample["object"]["metadata"]["name"]
    if "refused" in sample:
        with pytest.raises(ApiError) as refused:
            researcher.submit(sample["object"])
        assert str(refused.value).rpartition("denied request: ")[2].startswith(sample["refused"])
        return
    made = researcher.submit(sample["object"])
    try:
        _of_the_team(researcher.running(name, sample["pods"]), _priority(made, sample.get("priority")))
    finally:
        researcher.end(made)


def _priority(made: Manifest, expected: str | None) -> str:
    """The class of its pods; those of a TrainJob have none, but its Workload has."""
    return expected if expected is not None else "" if made["kind"] == "TrainJob" else "ml-high"


def _of_the_team(pods: list[Manifest], priority: str) -> None:
    """Pods with GPUs are on nodes with GPUs, all others are not, and all have the same priority."""
    for pod in pods:
        resources = [container["resources"] for container in _containers(pod)]
        has_gpus = any(each["limits"].get("nvidia.com/gpu", "0") != "0" for each in resources)
        assert text_at(pod, "spec", "nodeName").startswith("a100-" if has_gpus else "cpu-")
        assert text_at(pod, "spec", "priorityClassName") == priority


def _containers(pod: Any) -> list[Any]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def test_a_train_job_has_a_class_where_the_quota_of_the_namespace_requires_one(researcher: Researcher) -> None:
    (sample,) = (one["object"] for one in SAMPLES if one["of"] == "Trainer, without resources")
    production = Reference("v1", "Namespace", "ml-production")
    config: Any = yaml.safe_load(researcher.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] |= {"as-groups": [production.name]}
    file = researcher.kubeconfig.with_name("production")
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    with Cluster(file) as own:
        metadata = {**sample["metadata"], "namespace": production.name}
        made = own.create({**sample, "metadata": metadata}, dry_run=True)
    assert at(made, "spec", "runtimeRef", "name") == "torch-distributed-ml-critical"


def test_work_without_gpus_waits_for_its_own_nodes_while_nodes_with_gpus_are_idle(researcher: Researcher) -> None:
    """The reason why flavors do not tolerate the taint of their nodes."""
    (sample,) = (one["object"] for one in SAMPLES if one["of"] == "Kueue, sample-job")
    spec: Any = {**sample["spec"], "parallelism": 30, "completions": 30}
    made = researcher.submit({**sample, "metadata": {"name": "many"}, "spec": spec})
    try:

        def refused() -> str | None:
            found = researcher.own.list(KUEUE, "Workload", namespace=TEAM)
            (mine,) = [one for one in found if text_at(made, "metadata", "uid") in owners(one)] or [{}]
            reasons: Any = at(mine, "status", "conditions") or []
            return next((one["message"] for one in reasons if one["type"] == "QuotaReserved"), None)

        reason = researcher.cluster.wait_for(refused, timeout=60, what="Kueue's answer")
        assert "untolerated taint {nvidia.com/gpu present NoSchedule" in reason
        assert researcher.pods("many") == []
    finally:
        researcher.end(made)


def test_nobody_needs_to_write_a_toleration() -> None:
    assert "tolerations" not in yaml.safe_dump([one["object"] for one in SAMPLES if one["of"][:6] != "NVIDIA"])
