"""Pod Security admission of a real API server and the policy pack judge the same pods.

What the level `baseline` refuses of a pod's access to its node, the pack must report; what it admits, these rules must
not.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from policy_builders import TODAY, Sample
from violations import Json

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from rule_engine.evaluator import Evaluator, Outcome
from workload_rules import PACK

PLACE: Final = "test-pod-security"
IMAGE: Final = "registry.example.com/ml/train:3.0.1"
RULES: Final = frozenset({"no-privileged", "no-host-namespaces", "no-host-paths", "no-host-ports"})
"""The rules that together forbid what the level `baseline` forbids, but for profiles and kernel parameters."""

CONTEXTS: Final[list[Json]] = [
    *({"privileged": flag} for flag in (True, False)),
    {"procMount": "Default"},
    *(
        {"capabilities": {"add": [name], "drop": ["ALL"]}}
        for name in ("CHOWN", "KILL", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE", "ALL", "MKNOD")
    ),
    {"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}},
]
PROBES: Final[list[Json]] = [
    {way: {"port": 80, **address}}
    for way in ("httpGet", "tcpSocket")
    for address in ({}, {"host": ""}, {"host": "127.0.0.1"}, {"host": "169.254.169.254"})
]
VOLUMES: Final[list[Json]] = [{"emptyDir": {}}, {"hostPath": {"path": "/"}}, {"configMap": {"name": "a"}}]


def pods() -> Iterator[Json]:
    """Pods that the API server takes as valid, whatever Pod Security says."""
    main: Json = {"name": "main", "image": IMAGE}
    of_main: list[Json] = [
        *({"ports": [{"containerPort": 80, "hostPort": port}]} for port in (0, 80)),
        *({"livenessProbe": probe} for probe in PROBES),
        *({"lifecycle": {"preStop": probe}} for probe in PROBES),
    ]
    contexts = [{"securityContext": context} for context in CONTEXTS]
    yield from ({"containers": [{**main, **fields}]} for fields in (*of_main, *contexts))
    yield from (
        {"containers": [main], "initContainers": [{**main, "name": "first", **fields}]}
        for fields in (of_main[0], of_main[1], *contexts)
    )
    of_pod: list[Json] = [
        *({field: flag} for field in ("hostPID", "hostIPC", "hostNetwork") for flag in (True, False)),
        *({"volumes": [{"name": "a", **volume}]} for volume in VOLUMES),
    ]
    yield from ({"containers": [main], **fields} for fields in of_pod)


@pytest.fixture(scope="module")
def baseline(cluster: Cluster) -> Cluster:
    """A cluster with a namespace that enforces the level."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE, "labels": labels}}
    cluster.apply(namespace)
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", PLACE), what="the service account")
    return cluster


def refused(cluster: Cluster, spec: Json) -> str:
    """Why the API server refuses a pod; empty if it admits it."""
    metadata = {"generateName": "it-", "namespace": PLACE}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    try:
        cluster.create(pod, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def test_pod_security_and_the_pack_agree(baseline: Cluster) -> None:
    verdicts: list[bool] = []
    for spec in pods():
        verdict = refused(baseline, spec)
        assert not verdict or "violates PodSecurity" in verdict, verdict
        metadata = {"name": "it", "namespace": "ml-research"}
        resource = Sample("kubernetes:core/v1:Pod", {"metadata": metadata, "spec": spec}).resource()
        found = Evaluator(PACK, TODAY).evaluate(resource)
        broken = [one.message for one in found if one.rule.name in RULES and one.outcome is Outcome.BROKEN]
        assert bool(broken) == bool(verdict), (spec, verdict, broken)
        verdicts.append(bool(verdict))
    assert {*verdicts} == {True, False}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"hostPID": True}, "host namespaces", id="a namespace of the host"),
        pytest.param(
            {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "hostPath volumes", id="a path of the host"
        ),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_the_api_server_enforces_the_level(baseline: Cluster, fields: Json, words: str) -> None:
    verdict = refused(baseline, {"containers": [{"name": "main", "image": IMAGE}], **fields})
    assert words in verdict
    assert bool(verdict) == bool(words)
