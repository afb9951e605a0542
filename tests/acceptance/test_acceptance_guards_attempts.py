"""Generated attempts of a tenant on a real API server: a queue counts every GPU of each admitted object.

The pods of controllers, and the counts of Kueue and Volcano, are computed here from the objects alone, by the sources
of these programs and not by the guards. Each run tries hundreds; `make attempts` tries thousands.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from acceptance_guards import GPU, ON_L4, QUEUE, RESEARCH, TOLERATION, Person, pod_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

ATTEMPTS: Final = int(os.environ.get("GPU_TENANCY_ATTEMPTS", "75"))
AT_ONCE: Final = 8
DRAWN: Final = settings(
    # Hypothesis repeats itself: about one of three.
    max_examples=2 * ATTEMPTS,
    deadline=None,
    database=None,
    derandomize="GPU_TENANCY_ATTEMPTS" not in os.environ,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def try_each(strategy: st.SearchStrategy[Any], attempt: Callable[[Any], None]) -> None:
    """Generates different attempts, and sends several at once: the API server works meanwhile."""
    drawn: dict[str, Any] = {}

    @DRAWN
    @given(strategy)
    def draw(found: Any) -> None:
        drawn.setdefault(repr(found), found)

    def made(found: Any) -> None:
        try:
            attempt(found)
        except AssertionError as error:
            error.add_note(f"of the attempt {found}")
            raise

    draw()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(made, islice(drawn.values(), ATTEMPTS)):
            pass


OWN_GANG, OTHERS_GANG = "ml-research-l4", "ml-serving-l4"
KUEUE, VOLCANO = "kueue.x-k8s.io/", "scheduling.volcano.sh/"
TABLE: Final = yaml.safe_load(Path(__file__).with_name("attempts.yaml").read_text(encoding="utf-8"))
PATHS: Final = {kind: tuple(path.split(".")) if path else () for kind, path in TABLE["paths"].items()}
GANGS: Final = {kind: tuple(path.split(".")) for kind, path in TABLE["gangs"].items()}
AROUND: Final = TABLE["around"]
AROUND["ray.io/v1/RayCluster"]["spec"]["headGroupSpec"] = {"template": {"spec": pod_of(0)}}
KNOWN_OWNERS: Final = [tuple(owner) for owner in TABLE["owners"]]
NOTES: Final = TABLE["notes"]


def within(found: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        found = found[int(key) if key.isdecimal() else key]
    return found


def put(target: Any, path: tuple[str, ...], value: Any) -> None:
    """Sets a value at a path; missing maps and lists of one item are created."""
    key, *rest = path
    place: Any = int(key) if key.isdecimal() else key
    if not rest:
        target[place] = value
        return
    following = rest[0]
    if place not in target if isinstance(place, str) else not target:
        fresh: Any = [{}] if following.isdecimal() else {}
        target[place] = fresh
    put(target[place], tuple(rest), value)


QUEUES = st.sampled_from([RESEARCH, RESEARCH, None, "ml-serving", ""])
SCHEDULERS = st.sampled_from([None, None, "default-scheduler", "volcano", "mine", ""])


@st.composite
def containers(draw: st.DrawFn, name: str) -> Any:
    amount = draw(st.sampled_from(["1", "1", "2", "0"]))
    limits, requests = draw(
        st.sampled_from(
            [({GPU: amount}, {GPU: amount}), ({GPU: amount}, {}), ({}, {}), ({}, {}), ({GPU: "8"}, {GPU: "8"})]
        )
    )
    found: dict[str, Any] = {"name": name, "image": "a:1", "resources": {"limits": limits, "requests": requests}}
    variable = draw(st.sampled_from([None, None, None, "all", "0", "none"]))
    if variable is not None:
        found["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": variable}]
    return found


@st.composite
def specs(draw: st.DrawFn) -> Any:
    spec: dict[str, Any] = {"containers": [draw(containers("c"))]}
    if draw(st.integers(0, 3)) == 0:
        spec["containers"].append(draw(containers("d")))
    if draw(st.integers(0, 3)) == 0:
        spec["initContainers"] = [draw(containers("i")) | draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))]
    scheduler, node = draw(SCHEDULERS), draw(st.sampled_from([None] * 6 + ["l4-0"]))
    spec |= {} if scheduler is None else {"schedulerName": scheduler}
    spec |= {} if node is None else {"nodeName": node}
    # Without it, all that has GPUs would be refused for that alone.
    spec |= {"tolerations": [TOLERATION]} if any(gpus_of(container) for container in every_container(spec)) else {}
    if draw(st.integers(0, 9)) == 0:
        spec["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "g"}]
    return spec


@st.composite
def metadata(draw: st.DrawFn) -> Any:
    found: dict[str, Any] = {"labels": {"app": "x"}, "annotations": {}}
    queue = draw(QUEUES)
    if queue is not None:
        found["labels"][QUEUE] = queue
    if draw(st.integers(0, 7)) == 0:
        found["labels"][f"{KUEUE}priority-class"] = draw(st.sampled_from(["ml-low", "system-node-critical"]))
    for key, values in NOTES.items():
        if draw(st.integers(0, 11)) == 0:
            found["annotations"][key] = draw(st.sampled_from(values))
    return found


def assembled(kind: str, own: Any, template: Any) -> Any:
    api, _, name = kind.rpartition("/")
    found: dict[str, Any] = {**deepcopy(AROUND.get(kind, {})), "apiVersion": api, "kind": name}
    found["metadata"] = {**own, "name": "attempt", "namespace": RESEARCH}
    restart = "Always" if kind.startswith("apps/") or name == "ReplicationController" else "Never"
    template["spec"]["restartPolicy"] = restart
    if kind == "v1/Pod":
        found["spec"] = template["spec"]
    else:
        put(found, PATHS[kind], template)
    if kind.startswith("apps/"):
        found["spec"]["selector"] = {"matchLabels": {"app": "x"}}
    return found


@st.composite
def wild(draw: st.DrawFn) -> Any:
    """An object of some kind, with any forbidden part."""
    kind = draw(st.sampled_from(sorted(PATHS)))
    found = assembled(kind, draw(metadata()), {"metadata": draw(metadata()), "spec": draw(specs())})
    if kind == "batch/v1/CronJob":
        found["spec"]["jobTemplate"]["metadata"] = draw(metadata())
    if kind in GANGS:
        place = within(found, GANGS[kind])
        place["tasks"][0] |= {"name": "w", "replicas": 2}
        queue = draw(st.sampled_from([OWN_GANG, OWN_GANG, None, "default", OTHERS_GANG]))
        scheduler = draw(st.sampled_from(["volcano", "volcano", None, "default-scheduler"]))
        place |= {} if queue is None else {"queue": queue}
        place |= {} if scheduler is None else {"schedulerName": scheduler}
        within(found, PATHS[kind])["spec"]["nodeSelector"] = ON_L4
    if draw(st.integers(0, 7)) == 0:
        owner_api, owner = draw(st.sampled_from([*KNOWN_OWNERS, ("example.com/v1", "Other")]))
        found["metadata"]["ownerReferences"] = owners(owner_api, owner, controller=draw(st.booleans()))
    if draw(st.integers(0, 15)) == 0:
        found["metadata"]["finalizers"] = ["orphan"]
    return found


def counted(kind: str, spec: Any, **own: Any) -> Any:
    labels = {"labels": {"app": "x", **({} if kind in GANGS else {QUEUE: RESEARCH})}}
    meta = {**labels, **own}
    found = assembled(kind, meta if kind == "v1/Pod" else labels, {"metadata": meta, "spec": spec})
    if kind == "batch/v1/CronJob":
        found["spec"]["jobTemplate"]["metadata"] = labels
    if kind in GANGS:
        place = within(found, GANGS[kind])
        place |= {"queue": OWN_GANG, "schedulerName": "volcano"}
        place["tasks"][0] |= {"name": "w", "replicas": 2}
        within(found, PATHS[kind])["spec"]["nodeSelector"] = ON_L4
    return found


def owners(api: str, kind: str, *, controller: bool = True) -> list[Any]:
    return [{"apiVersion": api, "kind": kind, "name": "o", "uid": "1", "controller": controller}]


FORGERIES: Final[list[list[tuple[str, Any]]]] = [
    [
        *(("own", {"ownerReferences": owners(*owner)}) for owner in KNOWN_OWNERS),
        ("own", {"ownerReferences": owners(*KNOWN_OWNERS[0], controller=False)}),
        ("own", {"ownerReferences": owners("example.com/v1", "Other")}),
    ],
    [
        (place, {"annotations": {key: value}})
        for key, values in NOTES.items()
        for value in values
        for place in ("own", "pods")
    ],
    [
        (place, {"labels": {"app": "x", key: value}})
        for key, value in ((QUEUE, "ml-serving"), (QUEUE, ""), (f"{KUEUE}pod-group-name", "g"), ("note", "x"))
        for place in ("own", "pods")
    ],
    *TABLE["forgeries"].values(),
]
"""Forgeries that reduce the counted GPUs, and similar valid parts, in groups: place and fields."""


@st.composite
def forged(draw: st.DrawFn) -> Any:
    """A counted object with one forgery, so that nothing else refuses it."""
    place, fields = draw(st.sampled_from(draw(st.sampled_from(FORGERIES))))
    kind = draw(st.sampled_from(sorted(GANGS if place == "gang" else PATHS)))
    found = counted(kind, pod_of())
    template = within(found, PATHS[kind])
    part = {
        "own": found["metadata"],
        "pods": template["metadata"],
        "spec": template["spec"],
        "container": template["spec"]["containers"][0],
        "gang": within(found, GANGS.get(kind, ())),
        "volcano": template["metadata"],
    }[place]
    template["spec"] |= {"schedulerName": "volcano", "nodeSelector": ON_L4} if place == "volcano" else {}
    part |= deepcopy(fields)
    return found


def attempts() -> st.SearchStrategy[Any]:
    return wild() | forged() | forged()


@dataclass(frozen=True)
class Loss:
    """GPUs that would run uncounted: `gpus` at least, and how they escape."""

    gpus: int
    reason: str


def gpus_of(container: Any, *, counted: bool = False) -> int:
    """GPUs that a container gets or, if counted from a template in a namespace with a default of 0, that Kueue sees."""
    resources = container.get("resources", {})
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    if counted:
        return int(requests.get(GPU, 0))
    return int(limits.get(GPU, requests.get(GPU, 0)))


def notes_of(meta: Any) -> Any:
    return meta.get("annotations", {})


def every_container(spec: Any) -> list[Any]:
    return [*spec["containers"], *spec.get("initContainers", [])]


def losses(found: Any) -> Iterator[Loss]:
    """The uncounted GPUs that would run if the API server admitted an object."""
    kind = f"{found['apiVersion']}/{found['kind']}"
    template = within(found, PATHS[kind])
    spec, meta = template["spec"], template["metadata"]
    asked = sum(gpus_of(container) for container in every_container(spec)) + (8 if spec.get("resourceClaims") else 0)
    for container in every_container(spec):
        visible = [each["value"] for each in container.get("env", ()) if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
        if visible and visible[0] not in {"none", "void", ""}:
            yield Loss(8, "the container runtime adds all GPUs of the node")
    if any(key.partition("/")[0].endswith("cdi.k8s.io") for key in notes_of(meta)):
        yield Loss(8, "the container runtime adds devices by an annotation")
    named = {notes_of(each).get(f"{VOLCANO}queue-name") for each in (meta, found["metadata"])}
    if OTHERS_GANG in named:
        yield Loss(asked, "it is in another team's Volcano queue")
    if not asked:
        return
    if kind in GANGS:
        yield from gang_losses(found, kind, spec, asked)
        return
    yield from kueue_losses(found, kind, template, asked)


def gang_losses(found: Any, kind: str, spec: Any, asked: int) -> Iterator[Loss]:
    """Volcano counts the pods that its scheduler binds, in the queue of the job; it does not count claims."""
    place = within(found, GANGS[kind])
    if place.get("queue", "default") != OWN_GANG:
        yield Loss(asked, "it is in no Volcano queue of the team")
    # Volcano's webhook defaults the scheduler of a Job; without it, Kubernetes' own scheduler would take the pods.
    default = "" if kind == "batch.volcano.sh/v1alpha1/Job" else "volcano"
    scheduler = spec.get("schedulerName") or place.get("schedulerName") or default
    if scheduler != "volcano":
        yield Loss(asked, "its scheduler counts in no queue")
    if "nodeName" in spec:
        yield Loss(asked, "no scheduler sees it")
    if spec.get("resourceClaims"):
        yield Loss(8, "Volcano counts no claims")


def kueue_losses(found: Any, kind: str, template: Any, asked: int) -> Iterator[Loss]:
    """Pods that start although Kueue does not count them; Kueue holds pods without a queue."""
    spec, meta = template["spec"], template["metadata"]
    owners = [each for each in found["metadata"].get("ownerReferences", ()) if each["controller"]]
    if any((each["apiVersion"], each["kind"]) in KNOWN_OWNERS for each in owners):
        yield Loss(asked, "Kueue takes it for a child of what it has counted")
    parents = {"apps/v1/StatefulSet": "statefulset", "apps/v1/Deployment": "deployment"}
    parent = notes_of(meta).get(f"{KUEUE}pod-suspending-parent")
    if parent is not None and parent != parents.get(kind):
        yield Loss(asked, "Kueue leaves its pods to another object")
    if any(KUEUE + key in {**notes_of(meta), **meta["labels"]} for key in ("pod-group-name", "prebuilt-workload-name")):
        yield Loss(asked, "Kueue counts other pods in its place")
    label = queue_of(found, kind, meta)
    if label and label != RESEARCH:
        yield Loss(asked, "it names a queue of another team")
    if label and kind in TABLE["from_template"]:
        yield from template_losses(found, kind, spec, asked)
    if spec.get("schedulerName") == "mine" or ("nodeName" in spec and kind != "v1/Pod"):
        yield Loss(asked, "no scheduler that a queue knows sees it")
    if spec.get("schedulerName") == "volcano":
        yield from pod_group_losses(meta, asked, is_gang=kind == "v1/Pod" and not label)


def template_losses(found: Any, kind: str, spec: Any, asked: int) -> Iterator[Loss]:
    """Kueue counts a template, not its pods."""
    counted = sum(gpus_of(container, counted=True) for container in every_container(spec))
    if not spec.get("resourceClaims") and counted < asked:
        yield Loss(asked - counted, "Kueue counts the default request of 0")
    if "orphan" in found["metadata"].get("finalizers", ()) and kind != "batch/v1/CronJob":
        yield Loss(asked, "its pods outlive what Kueue counts")


def pod_group_losses(meta: Any, asked: int, *, is_gang: bool) -> Iterator[Loss]:
    """Volcano counts a pod in the queue of its PodGroup."""
    if is_gang and notes_of(meta).get(f"{VOLCANO}queue-name", "default") != OWN_GANG:
        yield Loss(asked, "it is in no Volcano queue of the team")
    if notes_of(meta).get("scheduling.k8s.io/group-name", "").startswith("podgroup-"):
        yield Loss(asked, "it joins a group of another queue")


def queue_of(found: Any, kind: str, meta: Any) -> str:
    """The queue that Kueue reads; empty for none."""
    own = found["metadata"]["labels"].get(QUEUE, "")
    if kind == "batch/v1/CronJob":
        return str(found["spec"]["jobTemplate"]["metadata"]["labels"].get(QUEUE, ""))
    if kind in TABLE["pod_by_pod"] or kind.startswith("leaderworkerset"):
        return str(meta["labels"].get(QUEUE, ""))
    if kind == "apps/v1/Deployment":
        return str(own or meta["labels"].get(QUEUE, ""))
    return str(own)


@pytest.mark.usefixtures("foreign")
def test_every_gpu_of_an_admitted_pod_is_counted_by_a_queue(tenant: Person) -> None:
    admitted: list[int] = []

    def attempt(found: Any) -> None:
        if not tenant.refusal(found):
            lost = list(losses(found))
            assert lost == []
            admitted.append(1)

    try_each(attempts(), attempt)
    assert len(admitted) > ATTEMPTS / 50, "the attempts are too wild to tell anything"


def base_of(kind: str) -> Any:
    """An object of a kind without GPUs, which every tenant can create."""
    found = assembled(kind, {}, {"metadata": {"labels": {"app": "x"}}, "spec": pod_of(0)})
    found["metadata"]["name"], name = "base", found["kind"]
    if kind in GANGS:
        within(found, GANGS[kind])["tasks"][0] |= {"name": "w", "replicas": 2}
    if name in {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "LeaderWorkerSet"}:
        found["spec"]["replicas"] = 0
    return found


@pytest.fixture
def bases(cluster: Cluster, foreign: None, tenant: Person) -> Iterator[dict[str, Any]]:
    """An object of each kind except pods, whose spec never changes."""
    assert foreign is None
    made = {kind: base_of(kind) for kind in sorted(PATHS) if kind != "v1/Pod"}
    for manifest in made.values():
        tenant.cluster.create(manifest)
    yield made
    for manifest in made.values():
        cluster.delete(Reference.of(manifest))


def with_part(found: Any, part: tuple[str, ...]) -> Any:
    base = base_of(kind_of(found))
    put(base, part, within(found, part))
    return base


def kind_of(found: Any) -> str:
    return f"{found['apiVersion']}/{found['kind']}"


def of_metadata(kind: str) -> list[tuple[str, ...]]:
    of_jobs = [("spec", "jobTemplate", "metadata")] if kind == "batch/v1/CronJob" else []
    return [("metadata",), (*PATHS[kind], "metadata"), *of_jobs]


@st.composite
def updates(draw: st.DrawFn) -> Any:
    """An attempt as a whole, or one part of it."""
    found = draw(attempts())
    kind = kind_of(found)
    queue = [(*GANGS[kind], "queue")] if kind in GANGS and "queue" in within(found, GANGS[kind]) else []
    part = draw(st.sampled_from([None, *of_metadata(kind), (*PATHS[kind], "spec"), *queue]))
    return found if part is None or kind == "v1/Pod" else with_part(found, part)


def every_metadata(kind: str) -> Iterator[Any]:
    """Objects with a forbidden label or annotation, at each place of metadata."""
    for part in of_metadata(kind):
        for field, key, value in (
            ("labels", QUEUE, "ml-serving"),
            ("annotations", f"{VOLCANO}queue-name", OTHERS_GANG),
        ):
            found = base_of(kind)
            metadata = within(found, part[:-1]).setdefault("metadata", {})
            metadata[field] = {**metadata.get(field, {}), key: value}
            yield found


def test_no_update_reaches_what_creation_refuses(tenant: Person, bases: dict[str, Any]) -> None:
    refused: list[str] = []

    def is_refused_too(found: Any) -> None:
        kind = kind_of(found)
        if kind in bases and "denied request" in tenant.refusal(found):
            change = {key: value for key, value in found.items() if key not in {"apiVersion", "kind"}}
            change["metadata"] = {**found["metadata"], "name": "base"}
            assert tenant.patch_refusal(bases[kind], change), "it is refused at creation only"
            refused.append(kind)

    for kind in bases:
        for found in every_metadata(kind):
            is_refused_too({**found, "metadata": {**found["metadata"], "name": "attempt"}})
    swept = {*refused}
    try_each(updates(), is_refused_too)
    assert len(swept) > len(bases) / 2, "too few kinds are refused to tell anything"
