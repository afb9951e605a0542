"""Generated pairs of objects whose GPUs a queue counts: one takes more from others, its twin is like it and allowed."""

from typing import Any, Final

import pytest
from acceptance_guards import QUEUE, RESEARCH, Person, pod_of
from hypothesis import strategies as st
from test_acceptance_guards_attempts import GANGS, OWN_GANG, PATHS, assembled, try_each, within

SERVERS: Final = {"apps/v1/Deployment", "apps/v1/StatefulSet", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"}


def counted(kind: str, spec: Any, **own: Any) -> Any:
    """An object of a kind whose GPUs a queue of the team counts."""
    labels = {"labels": {"app": "x", **({} if kind in GANGS else {QUEUE: RESEARCH})}}
    meta = {**labels, **own}
    found = assembled(kind, meta if kind == "v1/Pod" else labels, {"metadata": meta, "spec": spec})
    if kind == "batch/v1/CronJob":
        found["spec"]["jobTemplate"]["metadata"] = labels
    if kind in GANGS:
        place = within(found, GANGS[kind])
        place |= {"queue": OWN_GANG, "schedulerName": "volcano"}
        place["tasks"][0] |= {"name": "w", "replicas": 2}
    return found


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
}
"""What a pod takes from others beside the GPUs that it requests: where it is, what is hostile, and what is like it."""


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
