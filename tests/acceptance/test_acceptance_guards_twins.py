"""Generated pairs of objects whose GPUs a queue counts: one takes more from others, its twin is like it and allowed."""

from typing import Any, Final

import pytest
from acceptance_guards import GPU, RESEARCH, Person, pod_of
from hypothesis import strategies as st
from test_acceptance_guards_attempts import PATHS, counted, try_each

SERVERS: Final = {"apps/v1/Deployment", "apps/v1/StatefulSet", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"}


KINDS: Final = sorted(PATHS.keys() - {"leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"})
"""Those that Kueue or Volcano can queue in this stack."""
NAMES: Final = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
VARIABLES: Final = st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS"])
ROOTS: Final = st.sampled_from(["/var/run/", "var/run/", "//run//", "/var/run/x/../", "/var/./run/"])
FIELDS: Final = st.sampled_from(["podAffinity", "podAntiAffinity"])
OTHERS: Final = NAMES.filter(lambda name: name != RESEARCH)
REACHES: Final = (
    OTHERS.map(lambda name: {"namespaces": [RESEARCH, name]})
    | st.dictionaries(NAMES, NAMES, max_size=2).map(lambda labels: {"namespaceSelector": {"matchLabels": labels}})
    | NAMES.map(lambda key: {"namespaceSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}})
)


def variable(name: str, value: str) -> Any:
    return {"env": [{"name": name, "value": value}]}


def mount(root: str, end: str) -> Any:
    return {"volumeMounts": [{"name": "d", "mountPath": f"{root}{end}"}]}


def affinity(field: str, reach: Any) -> Any:
    term: Any = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, **reach}
    return {"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def annotation(domain: str, name: str) -> Any:
    return {"annotations": {f"{domain}/{name}": "nvidia.com/gpu=all"}}


def grace(seconds: int) -> Any:
    return {"terminationGracePeriodSeconds": seconds}


def limits(cpus: int, **asked: str) -> Any:
    """A limit of CPUs for a request of two."""
    asked = {"memory": "1Gi", **asked}
    return {"resources": {"requests": {"cpu": "2", **asked}, "limits": {"cpu": str(cpus), **asked}}}


def whole(cpus: int) -> Any:
    return counted("batch/v1/Job", pod_of(**limits(cpus)))


def server(fields: Any) -> Any:
    found = counted("apps/v1/StatefulSet", pod_of())
    return {**found, "spec": {**found["spec"], "updateStrategy": fields}}


def job_of(fields: Any) -> Any:
    found = counted("batch/v1/Job", pod_of())
    return {**found, "spec": {**found["spec"], **fields}}


def budget(field: str, amount: int | str) -> Any:
    metadata = {"name": "attempt", "namespace": RESEARCH}
    selected = {"selector": {"matchLabels": {"app": "x"}}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {**selected, field: amount},
    }


NEAR: Final[list[Any]] = [{}, {"namespaces": [RESEARCH]}]
TWINS: Final[dict[str, tuple[str, st.SearchStrategy[Any], st.SearchStrategy[Any]]]] = {
    "variable": (
        "container",
        st.builds(variable, VARIABLES, st.sampled_from(["all", "0", "0,1", "GPU-fef8089b"])),
        st.builds(variable, VARIABLES, st.sampled_from(["", "none", "void"]))
        | st.builds(variable, st.just("CUDA_VISIBLE_DEVICES"), st.sampled_from(["0", "all"])),
    ),
    "mount": (
        "container",
        st.builds(mount, ROOTS, st.sampled_from(["nvidia-container-devices", "nvidia-container-devices/all"])),
        st.builds(mount, ROOTS, NAMES),
    ),
    "annotation": (
        "metadata",
        st.builds(annotation, NAMES.map("{}.cdi.k8s.io".format) | st.just("cdi.k8s.io"), NAMES),
        st.builds(annotation, NAMES.map("{}.example.com".format), NAMES | st.just("cdi.k8s.io")),
    ),
    "affinity": ("spec", st.builds(affinity, FIELDS, REACHES), st.builds(affinity, FIELDS, st.sampled_from(NEAR))),
    "grace": ("spec", st.integers(601, 10**9).map(grace), st.integers(0, 600).map(grace)),
    "grace of servers": ("spec", st.integers(3601, 10**9).map(grace), st.integers(0, 3600).map(grace)),
    "ratio": (
        "container",
        st.integers(5, 64).map(lambda cpus: limits(cpus, **{GPU: "1"})),
        st.integers(2, 4).map(lambda cpus: limits(cpus, **{GPU: "1"})),
    ),
    "ratio of the pod": ("object", st.integers(5, 64).map(whole), st.integers(2, 4).map(whole)),
    "rollout": (
        "object",
        st.integers(1, 9).map(lambda pods: server({"rollingUpdate": {"partition": pods}}))
        | st.just(server({"type": "OnDelete"})),
        st.sampled_from([server({}), server({"rollingUpdate": {"partition": 0}})]),
    ),
    "selector": (
        "object",
        st.just(job_of({"manualSelector": True, "selector": {"matchLabels": {"app": "x"}}})),
        st.sampled_from([job_of({}), job_of({"manualSelector": False})]),
    ),
    "budget": (
        "object",
        st.sampled_from([("maxUnavailable", 0), ("maxUnavailable", "0%"), ("minAvailable", "100%")]).map(
            lambda pair: budget(*pair)
        ),
        st.builds(budget, st.just("maxUnavailable"), st.integers(1, 99))
        | st.builds(budget, st.just("minAvailable"), st.integers(1, 99).map("{}%".format)),
    ),
}
"""What takes from others beside the GPUs that a queue counts: where it is, what is hostile, and what is like it."""


@st.composite
def twins(draw: st.DrawFn) -> Any:
    """A hostile object and one that is like it."""
    name, kind = draw(st.sampled_from(sorted(TWINS))), draw(st.sampled_from(KINDS))
    if name.startswith("grace"):
        kinds = SERVERS if name == "grace of servers" else {*KINDS} - SERVERS
        kind = draw(st.sampled_from(sorted(kinds & {*KINDS})))
    place, *strategies = TWINS[name]
    at = draw(st.sampled_from(["containers", "initContainers"]))

    def made(fields: Any) -> Any:
        if place == "object":
            return fields
        spec = pod_of(volumes=[{"name": "d", "emptyDir": {}}])
        spec.setdefault(at, []).append({"name": "beside", "image": "a:1"})
        spec |= fields if place == "spec" else {}
        spec[at][-1 if at == "initContainers" else 0] |= fields if place == "container" else {}
        return counted(kind, spec, **(fields if place == "metadata" else {}))

    return [made(draw(fields)) for fields in strategies]


@pytest.mark.usefixtures("foreign")
def test_a_pod_takes_nothing_from_others_and_what_is_like_it_is_admitted(tenant: Person) -> None:
    def attempt(pair: Any) -> None:
        hostile, honest = pair
        assert tenant.refusal(hostile)
        assert not tenant.refusal(honest)

    try_each(twins(), attempt)
