"""Waits for asynchronous work of an API server or a controller."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpu_tenancy.base.json import Json, list_at, maps_at, text_at
from gpu_tenancy.base.progress import patient
from gpu_tenancy.kube.errors import WaitTimeoutError

_T = TypeVar("_T")
_FIRST_PAUSE = 0.01


def wait_for(
    condition: Callable[[], _T | None],
    *,
    what: str,
    timeout: float = 60,
    poll: float = 0.25,
    fix: Callable[[], str] = lambda: "run the same command again",
) -> _T:
    """Polls a condition until it returns a value other than None or False, and returns the value.

    The pause grows from 10 ms to `poll` seconds, since most conditions are met within milliseconds. After `timeout`
    seconds (on a machine that is not slow, see `patient`), raises WaitTimeoutError; its message has `what`, such as
    `Namespace ml to be deleted`.
    """
    timeout = patient(timeout)
    end = time.monotonic() + timeout
    pause = min(_FIRST_PAUSE, poll)
    while True:
        value = condition()
        if value is not None and value is not False:
            return value
        if time.monotonic() >= end:
            raise WaitTimeoutError(f"timed out after {timeout:g} s waiting for {what}", fix())
        time.sleep(pause)
        pause = min(pause * 2, poll)


def condition(manifest: Mapping[str, Json], kind: str) -> Mapping[str, Json]:
    """A status condition of an object, such as `Ready`; empty if not set."""
    for item in maps_at(manifest, "status", "conditions"):
        if text_at(item, "type") == kind:
            return item
    return {}


def is_true(manifest: Mapping[str, Json], kind: str) -> bool:
    """Whether a status condition is True."""
    return text_at(condition(manifest, kind), "status") == "True"


def holders(manifest: Mapping[str, Json] | None) -> str:
    """Finalizers and conditions of an object, which explain why it is not deleted or not ready."""
    if manifest is None:
        return "the object does not exist; check the controller that creates it"
    reasons = [f"finalizer {finalizer}" for finalizer in list_at(manifest, "metadata", "finalizers")]
    reasons += [
        " ".join(text_at(item, key) for key in ("type", "status", "message")).strip()
        for item in maps_at(manifest, "status", "conditions")
    ]
    if not reasons:
        return "the object has no finalizers and no conditions; check the log of its controller"
    return "check its finalizers and conditions: " + "; ".join(reasons)
