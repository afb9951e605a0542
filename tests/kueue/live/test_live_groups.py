"""A server of two nodes under the real LeaderWorkerSet and the real Kueue: its pods, quota, rollout and autoscaler."""

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pytest
from builders import Data, job, pool, server, stack, team
from queueing import Queueing

from gpu_tenancy.base.json import at, int_at, map_at, maps_at, text_at
from gpu_tenancy.cluster.demand import demand, target_of
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.explain import fit
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.kube.apply import immutable
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.workloads import check_topology
from gpu_tenancy.local.settling import settle
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.roles import LEADER_WORKER_SET

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
TEAM: Final = "groups"
RACK: Final = "example.com/rack"
SET: Final = "leaderworkerset.sigs.k8s.io/name=chat"
LEADERS: Final = f"{SET},leaderworkerset.sigs.k8s.io/worker-index=0"
APPLIED: Final = (
    "Namespace", "ServiceAccount", "ResourceQuota", "LimitRange", "Topology", "ResourceFlavor", "Cohort",
    "ClusterQueue", "LocalQueue", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Service",
    "PodDisruptionBudget", "LeaderWorkerSet", "HorizontalPodAutoscaler",
)  # fmt: skip
PATIENCE: Final = 90
# Racks of two nodes with eight GPUs each, as many as a group needs, and quota for three groups.
SECTIONS: Final[Data] = stack(
    pools={"h100": pool(nodes=6, topology={"block": "example.com/block", "rack": RACK})},
    teams={
        TEAM: team(
            gpus={"h100": {"guaranteed": 48}},
            serving={
                "chat": server(
                    nodes=2, gpus=8, replicas={"min": 2, "max": 3}, together="rack", worker={"command": ["/headless"]}
                )
            },
            training={"small": job(gpus=1)},
        )
    },
)


@dataclass(frozen=True)
class Served:
    cluster: Cluster
    plan: Plan
    objects: dict[str, Manifest]

    @property
    def groups(self) -> Manifest:
        return self.cluster.get(*LEADER_WORKER_SET, "chat", TEAM) or {}

    def pods(self, labels: str = SET) -> list[Manifest]:
        return list(self.cluster.list("v1", "Pod", namespace=TEAM, labels=labels))

    def running(self) -> list[str]:
        """The group of each pod on a node."""
        key = "leaderworkerset.sigs.k8s.io/group-index"
        return sorted(text_at(pod, "metadata", "labels", key) for pod in self.pods() if at(pod, "spec", "nodeName"))

    def workloads(self) -> list[Manifest]:
        uid = text_at(self.groups, "metadata", "uid")
        found = self.cluster.list(KUEUE, "Workload", namespace=TEAM)
        return [
            one for one in found if any(text_at(of, "uid") == uid for of in maps_at(one, "metadata", "ownerReferences"))
        ]

    def run(self, *groups: str) -> None:
        """Waits until all pods of exactly these groups run."""
        wanted = sorted([*groups, *groups])
        self.cluster.wait_for(lambda: self.running() == wanted, timeout=PATIENCE, what=f"the pods of groups {groups}")


@pytest.fixture(scope="module")
def served(queueing: Queueing) -> Iterator[Served]:
    with queueing.deployed(SECTIONS, TEAM, APPLIED) as made:
        yield Served(queueing.cluster, plan(load(Source(SECTIONS))), {str(one["kind"]): one for one in made})


def test_kueue_admits_each_group_as_a_whole(served: Served) -> None:
    served.run("0", "1")
    workloads = served.workloads()
    assert len(workloads) == 2
    assert [at(one, "status", "admission", "clusterQueue") for one in workloads] == [TEAM, TEAM]
    ready = served.cluster.wait_for(
        lambda: int_at(served.groups, "status", "readyReplicas") == 2, timeout=PATIENCE, what="both groups to be ready"
    )
    assert ready
    assert settle(served.cluster, served.plan) == ()


def test_fit_counts_what_kueue_counts(served: Served) -> None:
    served.run("0", "1")
    counted = demand(served.objects["LeaderWorkerSet"], TEAM)
    assert counted.groups == 1, "the autoscaler owns the number of groups"
    pods = [(template.count, requests(template.spec)) for template in counted.templates]
    for workload in served.workloads():
        assert pods == [
            (int_at(one, "count"), requests(map_at(one, "template", "spec")))
            for one in maps_at(workload, "spec", "podSets")
        ]
    (line,) = maps_at(served.cluster.get(KUEUE, "ClusterQueue", TEAM) or {}, "status", "flavorsUsage")
    usage = {text_at(one, "name"): text_at(one, "total") for one in maps_at(line, "resources")}
    assert usage["nvidia.com/gpu"] == "32"


def test_each_group_runs_in_one_rack(served: Served) -> None:
    served.run("0", "1")
    (check,) = check_topology(served.cluster, served.plan)
    assert check.promise == f"all pods of {TEAM}/chat run on nodes with one {RACK} per group"
    assert check.holds is True, check


def test_only_leaders_answer_requests(served: Served) -> None:
    served.run("0", "1")
    service = served.cluster.get("v1", "Service", "chat", TEAM) or {}
    selected = ",".join(f"{key}={value}" for key, value in map_at(service, "spec", "selector").items())
    assert sorted(text_at(pod, "metadata", "name") for pod in served.pods(selected)) == ["chat-0", "chat-1"]
    assert [text_at(pod, "metadata", "name") for pod in served.pods(LEADERS)] == ["chat-0", "chat-1"]


def test_pods_find_their_leader_by_the_service_of_the_group(served: Served) -> None:
    served.run("0", "1")
    for pod in served.pods():
        (container,) = maps_at(pod, "spec", "containers")
        env = {text_at(one, "name"): text_at(one, "value") for one in maps_at(container, "env")}
        group = text_at(pod, "metadata", "labels", "leaderworkerset.sigs.k8s.io/group-index")
        assert env["LWS_LEADER_ADDRESS"] == f"chat-{group}.chat-{group}.{TEAM}"
        service: Any = served.cluster.get("v1", "Service", f"chat-{group}", TEAM)
        assert service["spec"]["clusterIP"] == "None"
    commands = {text_at(one, "metadata", "name"): at(one, "spec", "containers") for one in served.pods()}
    workers = {name for name, containers in commands.items() if "/headless" in str(containers)}
    assert workers == {"chat-0-1", "chat-1-1"}


def test_a_group_waits_until_all_its_quota_is_free(served: Served) -> None:
    served.run("0", "1")
    served.cluster.apply(served.objects["Job"])
    try:
        served.cluster.wait_for(
            lambda: [pod for pod in served.pods("app.kubernetes.io/name=small") if at(pod, "spec", "nodeName")],
            timeout=PATIENCE,
            what="the pod of a job that takes one GPU",
        )
        _scale(served, minimum=3)
        served.cluster.wait_for(lambda: len(served.workloads()) == 3, timeout=PATIENCE, what="the third Workload")
        served.cluster.wait_for(
            lambda: "would exceed its limit" in _why(served), timeout=PATIENCE, what="the reason why it waits"
        )
        served.run("0", "1")
        fitting = fit.judge(
            read(served.cluster, fit.KINDS, TEAM), TEAM, demand(served.objects["LeaderWorkerSet"], TEAM)
        )
        assert fitting.verdict == "later"
    finally:
        served.cluster.delete(Reference.of(served.objects["Job"]))
    served.run("0", "1", "2")
    _scale(served, minimum=2)
    served.cluster.patch(Reference.of(served.objects["LeaderWorkerSet"]), {"spec": {"replicas": 2}})
    served.run("0", "1")


def _scale(served: Served, *, minimum: int) -> None:
    """Sets the autoscaler's minimum, which it applies without any metric."""
    served.cluster.patch(Reference.of(served.objects["HorizontalPodAutoscaler"]), {"spec": {"minReplicas": minimum}})


def _why(served: Served, asked: Manifest | None = None) -> str:
    state = read(served.cluster, KINDS, TEAM, only=OWN)
    manifest = served.cluster.get(*Reference.of(asked)) if asked else None
    return why(target_of(manifest or served.groups, state), state).reason


@pytest.mark.parametrize(("before", "after"), [(5, 2), (2, 3)], ids=["while it waits", "while it runs"])
def test_why_explains_scaled_stateful_sets(served: Served, before: int, after: int) -> None:
    """With and without an eviction as OutOfSync. Kueue adapts a LeaderWorkerSet's Workload, as above."""
    served.run("0", "1")
    gpus, name = {"nvidia.com/gpu": "4"}, f"from-{before}"
    labels = {"app": name}
    container = {"name": "c", "image": "registry.example.com/a:1", "resources": {"requests": gpus, "limits": gpus}}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    template: Any = {"metadata": {"labels": labels}, "spec": {"containers": [container], "tolerations": tolerations}}
    metadata: Any = {"name": name, "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": TEAM}}
    spec: Any = {"replicas": before, "serviceName": name, "selector": {"matchLabels": labels}, "template": template}
    made = served.cluster.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec})

    def is_settled() -> bool:
        answer = _why(served, made)
        return "limit" in answer if before > after else "running" in answer

    try:
        served.cluster.wait_for(is_settled, timeout=PATIENCE, what="Kueue's answer")
        served.cluster.patch(Reference.of(made), {"spec": {"replicas": after}}, subresource="scale")
        words = f"Kueue starts no more pods: it was scaled to {after} pods, and its Workload has {before}"
        with suppress(WaitTimeoutError):
            served.cluster.wait_for(lambda: _why(served, made) == words, timeout=PATIENCE)
        assert _why(served, made) == words
    finally:
        served.cluster.delete(Reference.of(made))
        served.cluster.wait_for(lambda: not served.pods(f"app={name}"), timeout=PATIENCE, what="the end of its pods")


def test_a_new_image_rolls_out_under_the_same_admission(served: Served) -> None:
    served.run("0", "1")
    admitted = {text_at(one, "metadata", "uid") for one in served.workloads()}
    served.cluster.apply(_changed(served, "image", "registry.example.com/serve:2.0"))

    def images() -> list[str]:
        found = [maps_at(pod, "spec", "containers")[0] for pod in served.pods() if at(pod, "spec", "nodeName")]
        return sorted(text_at(one, "image") for one in found)

    try:
        served.cluster.wait_for(
            lambda: images() == ["registry.example.com/serve:2.0"] * 4,
            timeout=PATIENCE,
            what="the pods of the new image",
        )
        assert {text_at(one, "metadata", "uid") for one in served.workloads()} == admitted
    finally:
        served.cluster.apply(served.objects["LeaderWorkerSet"])
    served.cluster.wait_for(
        lambda: images() == ["registry.example.com/serve:1.0"] * 4, timeout=PATIENCE, what="the pods of the old image"
    )


def _changed(served: Served, key: str = "", value: object = None) -> Any:
    """The LeaderWorkerSet with another value in the containers of both templates."""
    manifest: Any = deepcopy(served.objects["LeaderWorkerSet"])
    group = manifest["spec"]["leaderWorkerTemplate"]
    for template in ("leaderTemplate", "workerTemplate"):
        (container,) = group[template]["spec"]["containers"]
        container.update({key: value} if key else {})
    return manifest


def test_kueue_rejects_changes_of_counted_fields(served: Served) -> None:
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "4"}
    smaller, larger = _changed(served, "resources", {"requests": amounts, "limits": amounts}), _changed(served)
    larger["spec"]["leaderWorkerTemplate"]["size"] = 3
    for change in (smaller, larger):
        with pytest.raises(ApiError) as refused:
            served.cluster.apply(change, dry_run=True)
        assert immutable(refused.value), refused.value


def test_a_pod_that_is_lost_restarts_its_group_and_no_other(served: Served) -> None:
    served.run("0", "1")
    before = {text_at(pod, "metadata", "name"): text_at(pod, "metadata", "uid") for pod in served.pods()}
    served.cluster.delete(Reference("v1", "Pod", "chat-1-1", TEAM))

    def after() -> dict[str, str]:
        return {text_at(pod, "metadata", "name"): text_at(pod, "metadata", "uid") for pod in served.pods()}

    served.cluster.wait_for(
        lambda: {name for name, uid in after().items() if before.get(name) != uid} >= {"chat-1", "chat-1-1"},
        timeout=PATIENCE,
        what="the restart of group 1",
    )
    served.run("0", "1")
    assert {name for name, uid in after().items() if before[name] != uid} == {"chat-1", "chat-1-1"}
