"""Routes to servers before a real API server, which has the definitions of Gateway API."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from acceptance_builders import Manifest, declared, flat, in_waves, refusal
from builders import Data, server, stack, team
from removing import remove

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

TEAM = "exposed"
HTTP_ROUTE = "gateway.networking.k8s.io/v1", "HTTPRoute"


@pytest.fixture(scope="module")
def objects() -> list[Manifest]:
    """The namespace of a team, its network policies, Services and route."""
    network = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"]}}
    lab = {"domain": "lab.ml.example.com", "gateway": "infra/edge", "names": ["ann"]}
    offer: Data = {
        "images": ["registry.example.com/lab:1"],
        "sizes": {"small": {}},
        "home": {"size": "1Gi"},
        "expose": lab,
    }
    expose = {"host": "chat.ml.example.com", "gateway": "infra/edge", "timeout": "24h", "fromCidrs": ["10.1.0.0/16"]}
    serving = {"chat": server(expose=expose), "next": server(canary={"of": "chat", "weight": 0})}
    owner = team(gpus={"h100": {"guaranteed": 8}}, network=network, serving=serving, notebooks=offer)
    kinds = {"Namespace", "NetworkPolicy", "Service", "HTTPRoute"}
    made = declared(stack(teams={TEAM: owner}))
    return flat(in_waves([one for one in made if one.kind in kinds and TEAM in {one.name, one.namespace}]))


@pytest.fixture(scope="module")
def applied(cluster: Cluster, objects: list[Manifest]) -> Iterator[Cluster]:
    try:
        for manifest in objects:
            cluster.apply(manifest)
        yield cluster
    finally:
        remove(cluster, objects)


def test_the_definition_accepts_the_route_and_keeps_a_weight_of_none(applied: Cluster) -> None:
    route: Any = applied.get(*HTTP_ROUTE, "chat", TEAM)
    (rule,) = route["spec"]["rules"]
    assert [(one["name"], one["kind"], one["weight"]) for one in rule["backendRefs"]] == [
        ("chat", "Service", 100),
        ("next", "Service", 0),
    ]
    assert rule["timeouts"] == {"request": "86400s"}


def test_the_definition_accepts_the_route_of_a_notebook_without_a_timeout(applied: Cluster) -> None:
    route: Any = applied.get(*HTTP_ROUTE, "ann", TEAM)
    assert route["spec"]["hostnames"] == ["ann.lab.ml.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}
    service: Any = applied.get("v1", "Service", "ann", TEAM)
    assert service["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("hostnames", ["chat_1.example.com"], "hostnames[0]"),
        ("backendRefs", [{"name": "chat"}], "Must have port for Service reference"),
        ("timeouts", {"request": "100000s"}, "timeouts.request"),
        ("timeout", "10s", "timeout"),
    ],
)
def test_the_definition_refuses_another_route(
    applied: Cluster, objects: list[Manifest], field: str, value: Any, words: str
) -> None:
    route: Any = deepcopy(
        next(one for one in objects if Reference.of(one).name == "chat" and one["kind"] == "HTTPRoute")
    )
    target = route["spec"] if field == "hostnames" else route["spec"]["rules"][0]
    target[field] = value
    assert words in refusal(lambda: applied.apply(route, dry_run=True))
    assert applied.exists(*Reference.of(route))
