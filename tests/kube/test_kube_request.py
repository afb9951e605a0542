"""Which answers of a server are worth another attempt."""

import pytest

from gpu_tenancy.kube.request import transient

QUOTA = b'{"message":"Operation cannot be fulfilled on resourcequotas \\"budget\\": the object has been modified"}'


@pytest.mark.parametrize(
    ("method", "status", "content", "again"),
    [
        ("POST", 409, QUOTA, True),
        ("POST", 409, b'{"reason":"AlreadyExists"}', False),
        ("PATCH", 409, b"Operation cannot be fulfilled on jobs.batch", False),
        ("POST", 503, b"", False),
        ("POST", 429, b"", True),
        ("GET", 503, b"", True),
        ("PATCH", 500, b"failed to create typed patch object", False),
    ],
)
def test_an_object_that_a_busy_quota_refused_is_created_again_and_one_that_may_exist_is_not(
    method: str, status: int, content: bytes, *, again: bool
) -> None:
    assert transient(method, status, content) is again
