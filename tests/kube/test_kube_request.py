"""Recorded answers of API servers: errors, and repeated requests."""

import time
from dataclasses import replace

import pytest

from gpu_tenancy.base.json import Json
from gpu_tenancy.kube.apply import immutable
from gpu_tenancy.kube.errors import ApiError, Cause, api_error
from gpu_tenancy.kube.live import Live
from gpu_tenancy.kube.request import FIELD_MANAGER, RetryBudget, transient

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
def test_retries_create_only_if_nothing_was_stored(method: str, status: int, content: bytes, *, again: bool) -> None:
    assert transient(method, status, content) is again


def test_given_up_outage_ends_after_same_time_without_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = RetryBudget(30)
    repeated: dict[float, bool] = {}
    for now[0] in (100, 120, 131, 150, 170, 201, 220):
        repeated[now[0]] = budget.pause(0) is not None
    assert repeated == {100: True, 120: True, 131: False, 150: False, 170: False, 201: True, 220: True}
    now[0] = 300
    assert budget.pause(1) is None  # however long each attempt of the same request takes


OURS: dict[str, Json] = {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z"}
THEIRS: dict[str, Json] = {"manager": "controller", "operation": "Update", "subresource": "status"}
LIVE = Live(uid="u", resource_version="1", deleting=False, generation=1, managed=(OURS, THEIRS))


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        pytest.param(LIVE, False, id="nothing was written"),
        pytest.param(
            replace(LIVE, resource_version="2", managed=({**OURS, "time": "2026-01-01T00:00:09Z"}, THEIRS)),
            True,
            id="our entry moved",
        ),
        pytest.param(
            replace(LIVE, resource_version="2", managed=(OURS, {**THEIRS, "time": "2026-01-01T00:00:09Z"})),
            False,
            id="a controller wrote a status meanwhile",
        ),
        pytest.param(replace(LIVE, resource_version="2"), True, id="our entry moved within the same second"),
    ],
)
def test_a_change_is_ours_or_a_controllers(after: Live, *, changed: bool) -> None:
    assert after.changed_since(LIVE) is changed


def test_a_patched_status_is_not_an_apply() -> None:
    patched = replace(LIVE, managed=({**OURS, "subresource": "status"}, {**OURS, "operation": "Update"}))
    assert patched.applied is None


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value: {…}: field is immutable",
        "Forbidden: spec.persistentvolumesource is immutable after creation",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
        "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
        "Forbidden: updates to parameters are forbidden.",
        "Forbidden: may not be changed in an update.",
        "Invalid value: null: may not change once set",
        "Invalid value: {…}: cannot change roleRef",
        "Value is immutable",
        "topologyName is immutable when topologyName is set",
    ],
)
def test_all_messages_of_immutable_fields_are_recognised(message: str) -> None:
    cause = Cause("spec", "FieldValueInvalid", message)
    assert immutable(ApiError(422, "Invalid", f"spec: {message}", (cause,)))
    assert not immutable(ApiError(403, "Forbidden", message))


def test_errors_beside_an_immutable_field_count() -> None:
    causes = (Cause("spec.a", "", "field is immutable"), Cause("spec.b", "", "must be positive"))
    assert not immutable(ApiError(422, "Invalid", "spec.a: field is immutable, spec.b: must be positive", causes))


def test_reads_immutable_fields_in_webhook_message() -> None:
    """As Kueue's webhook of LeaderWorkerSets answers."""
    denied = 'admission webhook "vleaderworkerset.kb.io" denied the request: '
    first = "spec.size: Invalid value: 3: field is immutable"
    other = 'spec.template.spec.containers[0].resources: Invalid value: {"cpu":"1"}: field is immutable'
    assert immutable(ApiError(403, "", f"{denied}{first}"))
    assert immutable(ApiError(403, "", f"{denied}[{first}, {other}]"))
    assert not immutable(ApiError(403, "", f"{denied}[{first}, spec.replicas: Invalid value: -1: must be >= 0]"))
    assert not immutable(ApiError(403, "", f"{denied}the team may not set this"))


def test_an_answer_without_a_status_is_shown_verbatim() -> None:
    error = api_error(502, "Bad Gateway", b"upstream is gone\n")
    assert (error.status, error.reason, error.message) == (502, "Bad Gateway", "upstream is gone")
    assert str(api_error(504, "Gateway Timeout", b"")) == "Gateway Timeout (504 Gateway Timeout)"
