"""Further replicas of a server on another flavor: a Deployment of their own behind the Service of their server."""

from typing import Any

import pytest
from builders import Data, pool, server, stack, team
from components_builders import Program, pod_specs, tenancy

BASE, BURST = "chat", "chat-burst"
NAME, SHARED = "app.kubernetes.io/name", {"app.kubernetes.io/part-of": "chat"}
REQUESTS: Data = {"cpu": None, "query": {"expr": "sum(rate(asked[2m]))", "perReplica": 2.5}}


def sections(by: str = "keda", **fields: Any) -> Data:
    pools = {
        "cpu": pool("m7i.8xlarge", 3),
        "l4": pool("g6.12xlarge", 4, labels={"capacity": "reserved"}),
        "l4-spot": pool("g6.12xlarge", {"min": 0, "max": 4}, labels={"capacity": "spot"}, capacity="spot"),
    }
    chat = server(**{"flavor": "l4", "replicas": 10, "burst": {"flavor": "l4-spot", "max": 8}, **fields})
    network = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"]}}
    gpus = {"l4": {"guaranteed": 12}, "l4-spot": {"guaranteed": 0, "limit": 8}}
    teams = {"a": team(gpus=gpus, network=network, serving={BASE: chat})}
    return stack(pools=pools, teams=teams, metrics={"by": by, "histogram": "latency_seconds"})


def made(by: str = "keda", **fields: Any) -> Program:
    return tenancy(sections(by, **fields))


def test_both_run_the_same_on_their_own_nodes_and_only_the_burst_scales() -> None:
    program = made()
    base, burst = (program.only("Deployment", name) for name in (BASE, BURST))
    (of_base,), (of_burst,) = pod_specs(base), pod_specs(burst)
    assert [of_base["nodeSelector"]["capacity"], of_burst["nodeSelector"]["capacity"]] == ["reserved", "spot"]
    assert of_base["containers"] == of_burst["containers"]
    assert program.spec("Deployment", BASE)["replicas"] == 10
    assert "replicas" not in program.spec("Deployment", BURST)
    scaler = program.spec("HorizontalPodAutoscaler")
    assert scaler["scaleTargetRef"]["name"] == BURST
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 8)


def test_the_service_selects_both_and_each_deployment_its_own_pods() -> None:
    program = made(expose={"host": "chat.ml.example.com", "gateway": "infra/edge"}, metrics={"waiting": "queue"})
    assert program.spec("Service")["selector"] == SHARED
    assert program.only("ServiceMonitor").name == BASE
    (rule,) = program.spec("HTTPRoute")["rules"]
    assert [ref["name"] for ref in rule["backendRefs"]] == [BASE]
    for name in (BASE, BURST):
        spec = program.spec("Deployment", name)
        assert spec["selector"]["matchLabels"] == {NAME: name}
        assert spec["template"]["metadata"]["labels"].items() >= {NAME: name, **SHARED}.items()
        assert program.spec("PodDisruptionBudget", name)["selector"]["matchLabels"] == {NAME: name}
        for policy in ("server", "gateway"):
            selected = program.spec("NetworkPolicy", f"allow-{policy}-{name}")["podSelector"]["matchLabels"]
            assert selected == {NAME: name}


def test_a_server_without_a_burst_keeps_its_labels() -> None:
    program = tenancy(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={BASE: server()})}))
    assert program.spec("Service")["selector"] == {NAME: BASE}
    assert not SHARED.keys() & program.spec("Deployment")["template"]["metadata"]["labels"].keys()


def test_a_signal_of_the_pods_is_that_of_all_pods_of_the_service() -> None:
    (trigger,) = made(scaleOn={"cpu": None, "queue": 4}, metrics={"waiting": "queue"}).spec("ScaledObject")["triggers"]
    assert 'service="chat"' in trigger["metadata"]["query"]
    assert trigger["metricType"] == "Value"


@pytest.mark.parametrize("replicas", [10, {"min": 2, "max": 10}])
def test_by_a_query_the_burst_has_what_exceeds_the_base(replicas: int | Data) -> None:
    """The base asks for what the query says, up to its maximum of 10 replicas, which carry 25."""
    program = made(replicas=replicas, scaleOn=REQUESTS, burst={"flavor": "l4-spot", "min": 0, "max": 8})
    scaled = {one.name: program.spec("ScaledObject", one.name) for one in program.every("ScaledObject")}
    queries = {name: spec["triggers"][0]["metadata"]["query"] for name, spec in scaled.items()}
    assert queries[BURST] == "clamp_min((sum(rate(asked[2m]))) - 25, 0)"
    assert queries.get(BASE, "sum(rate(asked[2m]))") == "sum(rate(asked[2m]))"
    assert scaled[BURST]["minReplicaCount"] == 0
    assert len(scaled) == (1 if replicas == 10 else 2)
