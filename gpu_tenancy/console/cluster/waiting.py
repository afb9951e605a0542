"""Waiting for what an API server or a controller does in its own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from gpu_tenancy.console.cluster.errors import WaitTimeoutError
from gpu_tenancy.console.offline.wire import at, maps_at, text_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_tenancy.console.offline.wire import Json

_T = TypeVar("_T")
_FIRST_PAUSE = 0.01


def wait_for(
    condition: Callable[[], _T | None],
    *,
    what: str,
    timeout: float = 60,
    poll: float = 0.25,
    mend: Callable[[], str] = lambda: "try again",
) -> _T:
    """Asks until there is an answer, and returns it.

    The first questions follow one another quickly, the later ones every `poll` seconds: most of what is
    waited for takes a few milliseconds.

    Args:
        condition: returns what is waited for; None or False as long as it is not there.
        what: what is waited for, for the message: `Namespace ml to be gone`.
        timeout: seconds until giving up.
        poll: most seconds between two questions.
        mend: tells what to do where it never comes.

    Raises:
        WaitTimeoutError: it did not come in time.
    """
    end = time.monotonic() + timeout
    pause = min(_FIRST_PAUSE, poll)
    while True:
        found = condition()
        if found is not None and found is not False:
            return found
        if time.monotonic() >= end:
            raise WaitTimeoutError(f"waited {timeout:g} s in vain for {what}", mend())
        time.sleep(pause)
        pause = min(pause * 2, poll)


def condition(manifest: Mapping[str, Json], kind: str) -> Mapping[str, Json]:
    """One of the conditions that an object's controller states, such as `Ready`; empty where it does not yet."""
    for one in maps_at(manifest, "status", "conditions"):
        if text_at(one, "type") == kind:
            return one
    return {}


def is_true(manifest: Mapping[str, Json], kind: str) -> bool:
    """Whether an object's controller states a condition, and that it holds."""
    return text_at(condition(manifest, kind), "status") == "True"


def holders(manifest: Mapping[str, Json] | None) -> str:
    """Says what an object tells about why it is not as it should be: its finalizers and its conditions."""
    if manifest is None:
        return "it is not there; see what should make it"
    finalizers = at(manifest, "metadata", "finalizers")
    told = [f"finalizer {one}" for one in (finalizers if isinstance(finalizers, list) else ())]
    told += [
        " ".join(text_at(one, key) for key in ("type", "status", "message")).strip()
        for one in maps_at(manifest, "status", "conditions")
    ]
    return "it says: " + "; ".join(told) if told else "it tells nothing about why; see its controller's log"
