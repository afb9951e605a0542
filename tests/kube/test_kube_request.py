"""Which answers of a server are worth another attempt."""

import time

import pytest

from gpu_tenancy.kube.request import RetryBudget, transient

WEBHOOK = b'{"message":"Internal error occurred: failed calling webhook \\"vjob.kb.io\\": failed to call webhook"}'
QUOTA = b'{"message":"Operation cannot be fulfilled on resourcequotas \\"budget\\": the object has been modified"}'


@pytest.mark.parametrize(
    ("method", "status", "content", "again"),
    [
        ("POST", 409, QUOTA, True),
        ("POST", 500, WEBHOOK, True),
        ("POST", 500, b'{"message":"Internal error occurred"}', False),
        ("POST", 409, b'{"reason":"AlreadyExists"}', False),
        ("PATCH", 409, b"Operation cannot be fulfilled on jobs.batch", False),
        ("POST", 503, b"", False),
        ("POST", 429, b"", True),
        ("GET", 503, b"", True),
        ("PATCH", 500, b"failed to create typed patch object", False),
    ],
)
def test_an_object_that_a_busy_server_refused_is_created_again_and_one_that_may_exist_is_not(
    method: str, status: int, content: bytes, *, again: bool
) -> None:
    assert transient(method, status, content) is again


def test_an_outage_that_was_given_up_ends_when_nothing_failed_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = RetryBudget(30)
    repeated: dict[float, bool] = {}
    for now[0] in (100, 120, 131, 150, 170, 201, 220):
        repeated[now[0]] = budget.pause(0) is not None
    assert repeated == {100: True, 120: True, 131: False, 150: False, 170: False, 201: True, 220: True}
    now[0] = 300
    assert budget.pause(1) is None  # however long each attempt of the same request takes
