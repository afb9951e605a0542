"""Networks that may reach the API server of a created cluster."""

import pytest
from builders import EKS, errors, stack

CREATE = {
    "version": "1.35",
    "system": {"machine": "m7i.large"},
    "admins": ["arn:aws:iam::123456789012:role/platform"],
}


def reached_from(*networks: str) -> list[str]:
    subnets = {"eu-central-1a": "subnet-0123456789abcdef0", "eu-central-1b": "subnet-0123456789abcdef1"}
    cluster = {**EKS, "subnets": subnets, "create": {**CREATE, "allowFrom": list(networks)}}
    return [problem for problem in errors(stack(cluster=cluster)) if "allowFrom" in problem]


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        (("0.0.0.0/1", "128.0.0.0/1"), "IPv4 addresses than a /7 network"),
        (("0.0.0.0/1",), "IPv4 addresses than a /7 network"),
        (tuple(f"{first}.0.0.0/8" for first in range(1, 255)), "IPv4 addresses than a /7 network"),
        (("::/1", "8000::/1"), "IPv6 addresses than a /16 network"),
        (("10.0.0.0/8", "2000::/3"), "IPv6 addresses than a /16 network"),
    ],
)
def test_networks_that_together_are_the_internet_are_refused(networks: tuple[str, ...], words: str) -> None:
    [problem] = reached_from(*networks)
    assert problem == (
        f"cluster.create.allowFrom: opens the API server to more public {words} has;"
        " list only the networks that need access, such as 203.0.113.0/24"
    )


def test_networks_of_an_organisation_are_allowed() -> None:
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fd00::/8")
    assert reached_from("17.0.0.0/8", "203.0.113.0/24", "2a01:4f8::/29", *private) == []
