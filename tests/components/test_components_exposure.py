"""What clients outside of the cluster reach of a stack's servers: routes, who may connect, and the key of requests."""

from typing import Any

from builders import Data, server, stack, team
from components_builders import Program, pod_specs, tenancy

HOST = "chat.ml.example.com"


def vllm(**fields: Any) -> Data:
    return server(engine="vllm", model={"image": "registry.example.com/ml/llama:1.0"}, **fields)


def made(expose: Data | None = None, clients: str = "team", **servers: Data) -> Program:
    chat = vllm(expose={"host": HOST, "gateway": "infra/edge", **(expose or {})})
    network = {"clients": clients, "expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"]}}
    of_team = team(gpus={"h100": {"guaranteed": 16}}, network=network, serving={"chat": chat, **servers})
    return tenancy(stack(teams={"a": of_team}))


def peers(program: Program, policy: str) -> list[Any]:
    (rule,) = program.spec("NetworkPolicy", policy)["ingress"]
    return rule["from"]


def test_a_route_leads_from_the_host_to_the_service_of_the_server() -> None:
    route = made().spec("HTTPRoute")
    assert route["hostnames"] == [HOST]
    assert route["parentRefs"] == [{"namespace": "infra", "name": "edge", "sectionName": "https"}]
    (rule,) = route["rules"]
    assert rule["backendRefs"] == [{"name": "chat", "port": 80}]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert rule["timeouts"] == {"request": "600s"}


def test_without_a_host_nothing_leads_to_a_server() -> None:
    program = tenancy(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"chat": vllm()})}))
    assert not program.every("HTTPRoute")
    assert not program.every("NetworkPolicy", "allow-gateway-chat")


def test_only_the_gateway_reaches_a_server_of_a_team_that_is_closed() -> None:
    program = made()
    assert peers(program, "allow-gateway-chat") == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "infra"}}}
    ]
    policy = program.spec("NetworkPolicy", "allow-gateway-chat")
    assert policy["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "chat"}}
    assert policy["ingress"][0]["ports"] == [{"port": 8000, "protocol": "TCP"}]
    assert not program.every("NetworkPolicy", "allow-server-chat")


def test_a_gateway_outside_of_the_cluster_is_known_by_its_addresses() -> None:
    outside = made({"fromCidrs": ["10.129.0.0/23", "35.191.0.0/16"]}, clients="cluster")
    assert peers(outside, "allow-gateway-chat") == [
        {"ipBlock": {"cidr": "10.129.0.0/23"}},
        {"ipBlock": {"cidr": "35.191.0.0/16"}},
    ]
    assert outside.every("NetworkPolicy", "allow-server-chat")
    (proxies,) = peers(made({"fromNamespaces": ["envoy"]}), "allow-gateway-chat")
    assert proxies["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "envoy"}


def test_a_server_with_a_key_is_open_only_where_it_asks_for_it() -> None:
    program = made({"apiKey": {"secret": "chat-key", "key": "token"}})
    (container,) = pod_specs(program.only("Deployment"))[0]["containers"]
    (key,) = (one for one in container["env"] if one["name"] == "VLLM_API_KEY")
    assert key["valueFrom"] == {"secretKeyRef": {"name": "chat-key", "key": "token"}}
    (rule,) = program.spec("HTTPRoute")["rules"]
    assert [match["path"]["value"] for match in rule["matches"]] == ["/v1"]


def test_only_the_leader_of_a_group_has_the_key() -> None:
    grouped = vllm(nodes=2, gpus=8, expose={"host": HOST, "gateway": "infra/edge", "apiKey": {"secret": "chat-key"}})
    network = {"expose": {"hosts": [HOST], "classes": ["infra/edge"]}}
    owner = team(gpus={"h100": {"guaranteed": 16}}, network=network, serving={"chat": grouped})
    leader, worker = pod_specs(tenancy(stack(teams={"a": owner})).only("LeaderWorkerSet"))
    names = [{one["name"] for one in pod["containers"][0]["env"]} for pod in (leader, worker)]
    assert ["VLLM_API_KEY" in one for one in names] == [True, False]


def test_canaries_share_the_route_the_gateway_and_the_key_of_their_server() -> None:
    key = {"apiKey": {"secret": "chat-key"}}
    canary = {"of": "chat", "weight": 5}
    program = made(key, next=vllm(canary=canary), old=vllm(canary={**canary, "weight": 0}))
    (rule,) = program.spec("HTTPRoute")["rules"]
    assert rule["backendRefs"] == [
        {"name": "chat", "port": 80, "weight": 95},
        {"name": "next", "port": 80, "weight": 5},
        {"name": "old", "port": 80, "weight": 0},
    ]
    assert peers(program, "allow-gateway-next") == peers(program, "allow-gateway-chat")
    (container,) = pod_specs(program.only("Deployment", "next"))[0]["containers"]
    assert "VLLM_API_KEY" in {one["name"] for one in container["env"]}
