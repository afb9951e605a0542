"""The objects of a server with an engine: what its pods are, how they end, and who they run as."""

from typing import Any

from builders import Data, server, stack, team
from components_builders import Program, pod_specs, tenancy

from gpu_tenancy.model.catalogue.engines import engines

VLLM = engines()["vllm"]


def sections(**fields: Any) -> Data:
    level = fields.pop("podSecurity", "baseline")
    chat = {"engine": "vllm", "gpus": 4, "model": {"image": "registry.example.com/ml/llama:1.0"}, **fields}
    of_team = team(gpus={"h100": {"guaranteed": 16}}, podSecurity=level, serving={"chat": server(**chat)})
    return stack(teams={"a": of_team}, datasets={"weights": "s3://ml-weights"})


def made(**fields: Any) -> Program:
    return tenancy(sections(**fields))


def pod(program: Program, kind: str = "Deployment") -> Any:
    return pod_specs(program.only(kind))[0]


def test_a_pod_leaves_the_service_before_it_ends_and_has_time_to_answer() -> None:
    own = pod(made(drain="3m"))
    (container,) = own["containers"]
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 15}}}
    timeout = int(container["args"][container["args"].index("--shutdown-timeout") + 1])
    assert own["terminationGracePeriodSeconds"] > 15 + timeout == 195


def test_a_pod_of_an_engine_is_not_root_and_reads_no_variables_of_services() -> None:
    own = pod(made())
    security = own["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"]) == (True, VLLM.user, VLLM.group)
    assert own["enableServiceLinks"] is False
    assert own["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_pods_of_a_restricted_namespace_are_not_root() -> None:
    custom = {"engine": "custom", "model": None}
    assert "runAsNonRoot" not in pod(made(**custom))["securityContext"]
    assert pod(made(podSecurity="restricted", **custom))["securityContext"]["runAsNonRoot"] is True


def test_the_model_of_an_image_is_a_volume() -> None:
    own = pod(made())
    assert {"name": "model", "image": {"reference": "registry.example.com/ml/llama:1.0"}} in own["volumes"]
    assert {"name": "model", "mountPath": "/model", "readOnly": True} in own["containers"][0]["volumeMounts"]


def test_prometheus_reaches_the_port_of_the_engine() -> None:
    program = made()
    assert program.only("ServiceMonitor").name == "chat"
    (port,) = program.spec("NetworkPolicy", "allow-metrics-chat")["ingress"][0]["ports"]
    assert port["port"] == VLLM.port


def test_only_the_leader_of_a_group_answers_and_its_workers_wait_for_it() -> None:
    leader, worker = pod_specs(made(nodes=2, gpus=8).only("LeaderWorkerSet"))
    assert worker["containers"][0]["args"][-1] == "--headless"
    assert "--headless" not in leader["containers"][0]["args"]
    sleeps = [one["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] for one in (leader, worker)]
    assert sleeps == [15, 135]
