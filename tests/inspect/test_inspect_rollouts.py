"""`why` about rollouts of Deployments and LeaderWorkerSets that do not complete."""

from typing import Any

import live_builders
import pytest

from gpu_tenancy.cluster.target import target_of
from gpu_tenancy.explain.why import why

_EXCEEDED = (
    'pods "chat-b-x" is forbidden: exceeded quota: quota, requested: requests.nvidia.com/gpu=8, used:'
    " requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16"
)


def _deployment(*conditions: tuple[str, str, str, str], new: int, replicas: int) -> dict[str, Any]:
    keys = ("type", "status", "reason", "message")
    selector: dict[str, Any] = {"matchLabels": {"app": "chat"}}
    template: dict[str, Any] = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [{"name": "server"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "serving", "uid": "d"},
        "spec": {"replicas": 2, "progressDeadlineSeconds": 900, "selector": selector, "template": template},
        "status": {
            "replicas": replicas,
            "updatedReplicas": new,
            "availableReplicas": 2,
            "conditions": [dict(zip(keys, one, strict=True)) for one in conditions],
        },
    }


def _pod(name: str, **status: Any) -> dict[str, Any]:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "serving", "uid": name, "labels": {"app": "chat"}},
        "spec": {"nodeName": "n", "containers": [{"name": "server"}]},
        "status": ready | status,
    }


def _new(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return _pod(
        "chat-b", conditions=[], containerStatuses=[{"name": "server", "restartCount": 0, "state": state} | status]
    )


_LATE = ("Progressing", "False", "ProgressDeadlineExceeded", "")
_CRASHED = {"terminated": {"exitCode": 1, "reason": "Error"}}
_PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
_LOGS = "see `kubectl -n serving logs chat-b -c server --previous`"
_USED = "16 of 16 requests.nvidia.com/gpu in use"
_SERVE = "rollout not complete, 2 replicas serve: "


@pytest.mark.parametrize(
    ("conditions", "new", "conclusion"),
    [
        ((), _new({"running": {}}), "rollout in progress: 3 pods running"),
        (
            (_LATE,),
            _new({"running": {}}),
            f"{_SERVE}pod chat-b runs, but is not ready; see `kubectl -n serving describe pod chat-b` for its probes",
        ),
        (
            (),
            _new({"running": {}}, restartCount=3, lastState=_CRASHED),
            f"{_SERVE}pod chat-b: container server ended 3 times, last with code 1 (Error); {_LOGS}",
        ),
        ((), _new(_PULL), f"{_SERVE}containers do not start: server: ImagePullBackOff: not found; fix this error"),
        (
            (("ReplicaFailure", "True", "FailedCreate", _EXCEEDED),),
            None,
            f"{_SERVE}new pods are rejected: ResourceQuota quota has {_USED}, and a pod requests 8; wait until",
        ),
        (
            (("ReplicaFailure", "True", "FailedCreate", "denied by a guard"),),
            None,
            f"{_SERVE}new pods are rejected: denied by a guard; fix this error",
        ),
    ],
)
def test_a_rollout_that_does_not_complete_has_its_cause_and_a_fix(
    conditions: tuple[tuple[str, str, str, str], ...], new: dict[str, Any] | None, conclusion: str
) -> None:
    manifest = _deployment(*conditions, new=1 if new else 0, replicas=3 if new else 2)
    pods = [_pod("chat-a1"), _pod("chat-a2"), *([new] if new else [])]
    state = live_builders.state(Pod=pods)
    answer = why(target_of(manifest, state), state)
    assert conclusion in answer.conclusion
    assert answer.waits is not conclusion.startswith("rollout in progress")
    late = "; it is late: no new pod became ready in 15m" if _LATE in conditions else ""
    assert answer.lines[0] == f"rollout: {1 if new else 0} of 2 replicas are new, 2 available{late}"


def test_a_deployment_that_is_not_rolled_out_has_no_line_about_it() -> None:
    manifest = _deployment(new=2, replicas=2)
    state = live_builders.state(Pod=[_pod("chat-a1"), _pod("chat-a2")])
    assert why(target_of(manifest, state), state).conclusion == "not pending: 2 pods running"


_BEGUN = "2026-11-26T10:00:00Z"
_RECREATED = "Worker pod chat-1-1 failed, deleted leader pod chat-1 to recreate group 1"


def _groups(*, new: int) -> dict[str, Any]:
    """A server of two groups of two pods, of which one is replaced."""
    updating = {"type": "UpdateInProgress", "status": "True", "lastTransitionTime": _BEGUN}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "chat", "namespace": "serving", "uid": "l"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "server"}]}}},
        },
        "status": {"replicas": 2, "updatedReplicas": new, "readyReplicas": 1, "conditions": [updating]},
    }


def _of_group(name: str, *, ready: bool = True, **status: Any) -> dict[str, Any]:
    pod = _pod(name, **({} if ready else {"conditions": []}), **status)
    pod["metadata"]["labels"] = {"leaderworkerset.sigs.k8s.io/name": "chat"}
    return pod


def _event(at: str = "2026-11-26T10:20:00.000000Z", leader: str = "chat-1", about: str = "chat") -> dict[str, Any]:
    """As LeaderWorkerSet 0.9 records it, in the view of the API v1: the set, and the leader of the group."""
    return {
        "metadata": {"name": "e", "namespace": "serving"},
        "reason": "RecreateGroup",
        "message": _RECREATED,
        "involvedObject": {"kind": "LeaderWorkerSet", "name": about},
        "related": {"kind": "Pod", "name": leader},
        "eventTime": _BEGUN,
        "series": {"count": 6, "lastObservedTime": at},
    }


@pytest.mark.parametrize(
    ("status", "events", "conclusion"),
    [
        ({}, [], "rollout in progress: "),
        (
            {},
            [_event()],
            f"rollout not complete, 1 replica serves: a group was recreated 6 times: {_RECREATED}; see `kubectl",
        ),
        ({}, [_event("2026-11-26T09:59:00.000000Z")], "rollout in progress: "),
        ({}, [_event(leader="chat-0")], "rollout in progress: "),
        ({}, [_event(about="other")], "rollout in progress: "),
        (
            {"containerStatuses": [{"name": "server", "restartCount": 0, "state": _PULL}]},
            [],
            "rollout not complete, 1 replica serves: containers do not start: server: ImagePullBackOff: not found",
        ),
    ],
    ids=["starts", "ends again and again", "ended before", "runs again", "of another set", "has no image"],
)
def test_a_rollout_of_groups_that_does_not_complete_has_its_cause(
    status: dict[str, Any], events: list[dict[str, Any]], conclusion: str
) -> None:
    pods = [_of_group("chat-0"), _of_group("chat-0-1"), _of_group("chat-1", ready=False, **status)]
    state = live_builders.state(Pod=pods, Event=events)
    answer = why(target_of(_groups(new=1), state), state)
    assert answer.conclusion.startswith(conclusion)
    assert answer.lines[0] == "rollout: 1 of 2 replicas are new, 1 available"


def test_groups_that_are_not_rolled_out_have_no_line_about_it() -> None:
    state = live_builders.state(Pod=[_of_group("chat-0"), _of_group("chat-0-1")], Event=[_event()])
    assert "rollout" not in why(target_of(_groups(new=2), state), state).conclusion
