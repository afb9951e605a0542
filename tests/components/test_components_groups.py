"""The objects of a server whose replicas are groups of nodes."""

from functools import cache
from typing import Any, cast

from builders import Data, pool, server, stack, team
from components_builders import Program, pod_specs, tenancy

from components.serving import REPLACED
from gpu_tenancy.review.replacements import forces_new

API = "leaderworkerset.x-k8s.io/v1"
TOKEN = f"kubernetes:{API}:LeaderWorkerSet"
LEADERS = {"app.kubernetes.io/name": "chat", "app.kubernetes.io/component": "leader"}


def sections(metrics: Data | None = None, **fields: Any) -> Data:
    scaled = {"nodes": 3, "gpus": 8, "replicas": {"min": 1, "max": 2}, "command": ["serve"], **fields}
    of_team = team(gpus={"h100": {"guaranteed": 72}}, serving={"chat": server(**scaled)})
    rest = {"metrics": metrics} if metrics else {}
    return stack(pools={"h100": pool(nodes=9)}, teams={"a": of_team}, **rest)


@cache
def scaled() -> Program:
    return tenancy(sections(worker={"command": ["serve", "--headless"]}))


def test_a_replica_is_a_group_whose_pods_restart_together() -> None:
    spec = scaled().spec("LeaderWorkerSet", "chat")
    group = spec["leaderWorkerTemplate"]
    assert "replicas" not in spec, "the autoscaler owns it"
    assert (group["size"], group["restartPolicy"]) == (3, "RecreateGroupOnPodRestart")
    assert tenancy(sections(replicas=2)).spec("LeaderWorkerSet", "chat")["replicas"] == 2
    leader, worker = pod_specs(scaled().only("LeaderWorkerSet"))
    assert [one["containers"][0]["command"] for one in (leader, worker)] == [["serve"], ["serve", "--headless"]]
    assert leader["containers"][0]["resources"] == worker["containers"][0]["resources"]
    assert not scaled().every("Deployment")


def test_only_leaders_have_a_port_and_probes() -> None:
    leader, worker = (one["containers"][0] for one in pod_specs(scaled().only("LeaderWorkerSet")))
    asked = {"ports", "startupProbe", "readinessProbe", "livenessProbe"}
    assert asked <= leader.keys()
    assert not asked & worker.keys()


def test_requests_reach_only_leaders() -> None:
    group = scaled().spec("LeaderWorkerSet", "chat")["leaderWorkerTemplate"]
    assert group["leaderTemplate"]["metadata"]["labels"] == LEADERS
    assert group["workerTemplate"]["metadata"]["labels"] == {**LEADERS, "app.kubernetes.io/component": "worker"}
    assert scaled().spec("Service", "chat")["selector"] == LEADERS
    assert scaled().spec("NetworkPolicy", "allow-server-chat")["podSelector"] == {"matchLabels": LEADERS}


def test_a_group_has_a_service_of_its_own_so_that_the_servers_name_is_free() -> None:
    assert scaled().spec("LeaderWorkerSet", "chat")["networkConfig"] == {"subdomainPolicy": "UniquePerReplica"}


def test_kueue_admits_groups_in_the_queue_of_the_team() -> None:
    manifest = cast("Any", scaled().only("LeaderWorkerSet").manifest)
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "a"


def test_one_pod_at_a_time_is_evicted_because_its_group_restarts_with_it() -> None:
    assert scaled().spec("PodDisruptionBudget", "chat") == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {"app.kubernetes.io/name": "chat"}},
    }


def test_autoscalers_scale_the_groups() -> None:
    target = {"apiVersion": API, "kind": "LeaderWorkerSet", "name": "chat"}
    assert scaled().spec("HorizontalPodAutoscaler", "chat")["scaleTargetRef"] == target
    latency = tenancy(sections({"histogram": "latency_seconds"}, scaleOn={"latencyP99": "2s"}))
    assert latency.spec("ScaledObject", "chat")["scaleTargetRef"] == target
    assert latency.spec("NetworkPolicy", "allow-metrics-chat")["podSelector"] == {"matchLabels": LEADERS}


def test_a_rollout_replaces_a_group_at_a_time_or_adds_groups_that_the_quota_has() -> None:
    def rollout(**fields: Any) -> Any:
        return tenancy(sections(**fields)).spec("LeaderWorkerSet", "chat")["rolloutStrategy"][
            "rollingUpdateConfiguration"
        ]

    assert rollout() == {"maxSurge": 0, "maxUnavailable": 1}
    assert rollout(surge=1) == {"maxSurge": 1, "maxUnavailable": 0}


def test_only_what_kueue_has_counted_forces_a_replacement() -> None:
    (made,) = (one for one in scaled().rendered.registrations if one.type == TOKEN)
    assert made.replace_on_changes == REPLACED
    of_worker = "spec.leaderWorkerTemplate.workerTemplate.spec"
    replaced = {
        path: forces_new(TOKEN, path, made.replace_on_changes, {})
        for path in (
            "spec.leaderWorkerTemplate.size",
            f"{of_worker}.containers.0.resources.limits.cpu",
            f"{of_worker}.nodeSelector",
            "spec.leaderWorkerTemplate.leaderTemplate.spec.containers.0.ports",
            f"{of_worker}.containers.0.image",
            f"{of_worker}.containers.0.command",
            "spec.replicas",
        )
    }
    assert list(replaced.values()) == [True, True, True, True, False, False, False]
