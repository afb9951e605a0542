"""Pods that should run and do not: refused by the API server, without a node, or stuck on one."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.console.cluster.waiting import condition
from gpu_tenancy.console.live.amounts import many
from gpu_tenancy.console.live.nodes import judge_nodes
from gpu_tenancy.console.live.placing import spots
from gpu_tenancy.console.live.pods import Manifest, called, home, requests
from gpu_tenancy.console.live.reading import State
from gpu_tenancy.console.live.subject import Subject, owners
from gpu_tenancy.console.live.verdicts import Held, Why
from gpu_tenancy.console.live.workloads import PodSet
from gpu_tenancy.console.offline.wire import at, maps_at, text_at

_GATE: Final = "kueue.x-k8s.io/admission"


def refused_pods(subject: Subject, state: State) -> tuple[str, ...]:
    """What the API server last said where a controller wanted to make pods of an object, newest first."""
    uids = {subject.uid, *(owner for each in subject.pods for owner in owners(each))}
    names = {called(subject.manifest)}
    found = [
        each
        for each in state.of("Event", home(subject.manifest))
        if text_at(each, "reason") == "FailedCreate"
        and (text_at(each, "involvedObject", "uid") in uids or _of(each, names))
    ]
    latest = sorted(found, key=_when, reverse=True)
    asked = sum(each.count for each in subject.demand.templates)
    if len(subject.pods) >= asked:
        return ()  # It was refused once, and got them since.
    return tuple(dict.fromkeys(f"refused: {text_at(each, 'message')}" for each in latest[:3]))


def _of(event: Manifest, names: Iterable[str]) -> bool:
    """Whether an event is about something that an object made, such as a Deployment's ReplicaSet."""
    about = text_at(event, "involvedObject", "name")
    return any(about == each or about.startswith(f"{each}-") for each in names)


def _when(event: Manifest) -> str:
    return (
        text_at(event, "lastTimestamp")
        or text_at(event, "eventTime")
        or text_at(event, "metadata", "creationTimestamp")
    )


def held_pods(pods: Sequence[Manifest], state: State) -> Held | None:
    """What holds the first pods that do not run; None where all run or are about to."""
    nowhere = [each for each in pods if not text_at(each, "spec", "nodeName")]
    if gated := [each for each in nowhere if maps_at(each, "spec", "schedulingGates")]:
        return _gated(gated)
    if unplaced := [each for each in nowhere if text_at(condition(each, "PodScheduled"), "status") == "False"]:
        return _unplaced(unplaced, state)
    if stuck := [words for each in pods if (words := _stuck(each))]:
        return Held(tuple(dict.fromkeys(stuck)), f"its containers cannot start: {stuck[0]}", "mend what it names")
    if nowhere:
        reason = f"{many(len(nowhere), 'pod')} without a node, of which no scheduler has said anything"
        return Held((), reason, "see that the scheduler it names runs")
    return None


def _gated(pods: Sequence[Manifest]) -> Held:
    gates = sorted({text_at(gate, "name") for each in pods for gate in maps_at(each, "spec", "schedulingGates")})
    mend = "see its Workload: kubectl get workloads" if _GATE in gates else "whoever put the gate there takes it away"
    return Held((), f"{many(len(pods), 'pod')} held by the gate {', '.join(gates)}", mend)


def _unplaced(pods: Sequence[Manifest], state: State) -> Held:
    first = pods[0]
    message = text_at(condition(first, "PodScheduled"), "message")
    words = [f"{many(len(pods), 'pod')} without a node; the scheduler says of {called(first)}: {message}"]
    claims = _claims(first, state)
    spec = at(first, "spec")
    if claims:
        return Held((*words, *claims), f"its volumes are not there: {claims[0]}", "see the claim: kubectl describe pvc")
    if not state.knows("Node") or not isinstance(spec, dict):
        words += [str(each) for each in state.refused("Node")]
        return Held(tuple(words), "no node takes its pods", "see what the scheduler says")
    nodes = spots(state.of("Node"), state.of("Pod"))
    answer, _ = judge_nodes(nodes, PodSet("pod", len(pods), requests(spec), spec))
    mends = {"never": "ask for what the nodes have, or tolerate their taint", "later": "wait, or have nodes added"}
    mend = mends.get(answer.verdict, "see what the scheduler says; room alone does not hold it")
    said = message if answer.verdict == "now" else answer.words[0]
    return Held((*words, *answer.words), f"no node takes its pods: {said}", mend)


def _claims(pod: Manifest, state: State) -> tuple[str, ...]:
    """The pod's claims that are not there or not bound, unless they wait for the pod to have a node."""
    if not state.knows("PersistentVolumeClaim"):
        return ()
    there = {called(each): text_at(each, "status", "phase") for each in state.of("PersistentVolumeClaim", home(pod))}
    wanted = [text_at(each, "persistentVolumeClaim", "claimName") for each in maps_at(pod, "spec", "volumes")]
    return tuple(
        f"claim {each} is {there.get(each) or 'not there'}" for each in wanted if each and there.get(each) != "Bound"
    )


def _stuck(pod: Manifest) -> str:
    """Why a container of a pod that has a node does not start; empty where it does or is about to."""
    for each in (*maps_at(pod, "status", "initContainerStatuses"), *maps_at(pod, "status", "containerStatuses")):
        reason, message = (text_at(each, "state", "waiting", key) for key in ("reason", "message"))
        if reason and reason not in {"ContainerCreating", "PodInitializing"}:
            return f"{text_at(each, 'name')}: {reason}{': ' + message if message else ''}"
    return ""


def running(subject: Subject, state: State, found: tuple[str, ...]) -> Why:
    """Nothing holds it in a queue: what becomes of its pods."""
    refused = refused_pods(subject, state)
    if refused:
        mend = "free what the quota counts, or have it raised: tenancy usage " + home(subject.manifest)
        return Why(
            subject.title,
            (*found, *refused),
            "the API server refuses its pods",
            mend if "quota" in refused[0] else "mend what it says",
        )
    held = held_pods(subject.pods, state)
    alive = sum(1 for each in subject.pods if text_at(each, "status", "phase") == "Running")
    if held:
        beside = [f"{many(alive, 'other pod runs', 'other pods run')}"] if alive else []
        return Why(subject.title, (*found, *beside, *held.words), held.reason, held.mend)
    wanted = sum(each.count for each in subject.demand.templates)
    if alive or not wanted:
        reason = many(alive, "pod runs", "pods run") if alive else "it asks for no pods"
        return Why(subject.title, found, f"it does not wait: {reason}", "", waits=False)
    return Why(subject.title, found, *_none(subject, state))


def _none(subject: Subject, state: State) -> tuple[str, str]:
    """Why there are no pods, and what would mend it."""
    if "Pod" in state.missing:
        return "its pods may not be seen", f"ask {state.missing['Pod'].who}"
    if at(subject.manifest, "spec", "suspend") is True:
        return "it is suspended (spec.suspend)", "set spec.suspend to false, or let Kueue do it"
    return "it has no pods yet", "see the controller that makes them: kubectl describe says its events"
