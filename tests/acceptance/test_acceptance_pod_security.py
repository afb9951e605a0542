"""Pod Security admission of a real API server and the policy pack judge the same random pods.

What the level `baseline` refuses of a pod's access to its node, the pack must report wherever the pod is; what it
admits, these rules must not.
"""

from typing import Any, Final

import pytest
from generated_pods import IMAGE, QUIET, Json, Placed, placed
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_builders import TODAY

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from rule_engine.evaluator import Evaluator, Outcome
from workload_rules import PACK

PLACE: Final = "test-pod-security"
RULES: Final = frozenset({"no-privileged", "no-host-namespaces", "no-host-paths", "no-host-ports"})
"""The rules that together forbid what the level `baseline` forbids, but for profiles and kernel parameters."""


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """A map with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


_CAPABILITIES: Final = st.sampled_from(["CHOWN", "KILL", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE", "ALL", "MKNOD"])
PROBES: Final[list[Json]] = [
    {way: {"port": 80, **address}}
    for way in ("httpGet", "tcpSocket")
    for address in ({}, {"host": ""}, {"host": "127.0.0.1"}, {"host": "169.254.169.254"})
]
CONTAINER: Final = some(
    securityContext=some(
        privileged=st.booleans(),
        capabilities=some(add=st.lists(_CAPABILITIES, max_size=2), drop=st.just(["ALL"])),
        procMount=st.sampled_from(["Default", "Unmasked"]),
    ),
    ports=st.lists(
        st.fixed_dictionaries({"containerPort": st.just(80)}, optional={"hostPort": st.sampled_from([0, 80])}),
        max_size=1,
    ),
    livenessProbe=st.sampled_from(PROBES),
    lifecycle=some(preStop=st.sampled_from(PROBES)),
)
VOLUMES: Final = st.sampled_from([{"emptyDir": {}}, {"hostPath": {"path": "/"}}, {"configMap": {"name": "a"}}])


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """A pod that the API server takes as valid, whatever Pod Security says."""
    main, first = draw(CONTAINER), draw(st.none() | CONTAINER)
    spec: Json = {"containers": [{**main, "name": "main", "image": IMAGE}]}
    if first is not None:
        plain = {key: value for key, value in first.items() if key not in {"lifecycle", "livenessProbe"}}
        spec["initContainers"] = [{**plain, "name": "first", "image": IMAGE}]
    spec["volumes"] = [{**volume, "name": f"v{n}"} for n, volume in enumerate(draw(st.lists(VOLUMES, max_size=2)))]
    spec |= draw(some(hostPID=st.booleans(), hostIPC=st.booleans(), hostNetwork=st.booleans()))
    return spec


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


@settings(QUIET)
@given(spec=pods(), where=placed())
def test_pod_security_and_the_pack_agree(baseline: Cluster, spec: Json, where: Placed) -> None:
    verdict = refused(baseline, spec)
    assume(not verdict or "violates PodSecurity" in verdict)
    findings = Evaluator(PACK, TODAY).evaluate(where.holding(spec, {}).resource())
    broken = [
        finding.message for finding in findings if finding.rule.name in RULES and finding.outcome is Outcome.BROKEN
    ]
    assert bool(broken) == bool(verdict), (verdict, broken)


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
