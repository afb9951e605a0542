"""What API servers answer, read without one."""

from dataclasses import replace

import pytest

from gpu_tenancy.base.json import Json
from gpu_tenancy.kube.applier import immutable
from gpu_tenancy.kube.errors import ApiError, Cause, api_error
from gpu_tenancy.kube.live import Live
from gpu_tenancy.kube.request import FIELD_MANAGER

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


def test_immutable_fields_in_the_one_message_of_a_webhook_are_understood() -> None:
    """Kueue's webhook of LeaderWorkerSets answers so."""
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
