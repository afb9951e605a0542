"""Ways in for clients outside of the cluster: the host of a server, and the part of its requests that a canary gets."""

import re
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.fields import Cidr, Host, Matching, Name, Seconds, Section, WorkloadName, refuse

Gateway: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"),
        "is not a Gateway",
        "use NAMESPACE/NAME of a Gateway that exists, such as infra/edge",
    ),
]
"""A Gateway of Gateway API."""


class ApiKey(Section):
    """A key of a Secret in the team's namespace, which you create: the stack has only its name."""

    secret: Name
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")] = "api-key"
    """Key of the Secret, whose value clients send as `Authorization: Bearer VALUE`."""


class ServerExpose(Section):
    """The way of clients outside of the cluster to a server: a route of Gateway API.

    `network.expose` of the team must allow its host, its Gateway, and `reach: public`.
    """

    host: Host
    """DNS name that clients use, such as chat.example.com. Its record and its certificate are those of the Gateway."""
    gateway: Gateway
    """The Gateway that takes the requests, as NAMESPACE/NAME: it exists, and allows routes of the team's namespace."""
    listener: Name = "https"
    """Name of the Gateway's listener, which ends TLS. Other listeners, such as those without TLS, do not get the route.
    """
    reach: Literal["internal", "public"] = "internal"
    """Who reaches the Gateway: `internal`: your own networks; `public`: the internet. It is what you state: the Gateway
    decides. `public` needs `apiKey` or `anonymous`."""
    from_namespaces: list[Name] = []
    """Namespaces with the pods of the Gateway. Default: that of the Gateway, if `fromCidrs` is not set."""
    from_cidrs: list[Cidr] = []
    """CIDRs of a Gateway outside of the cluster, such as the subnets of its load balancer, or its proxy-only subnet and
    the ranges of its health checks."""
    api_key: ApiKey | None = None
    """Key that the server asks of each request, from pods of the cluster too. Only for engines that can, as `vllm`."""
    anonymous: bool = False
    """That there is no key for `reach: public`: anyone may send requests, unless the Gateway or the server itself asks
    who it is."""
    timeout: Annotated[Seconds, Field(ge=1, le=86400)] = 600.0
    """Time that a request may take, as the route's timeout, for Gateways that have such timeouts."""

    @model_validator(mode="after")
    def _open_or_closed(self) -> Self:
        if self.host.startswith("*."):
            raise refuse(f"host {self.host} is not one host", "set the name that clients use, such as chat.example.com")
        if self.anonymous and (self.api_key or self.reach == "internal"):
            other = "apiKey" if self.api_key else "reach: internal"
            raise refuse(f"sets anonymous and {other}", "remove anonymous")
        if self.reach == "public" and not self.api_key and not self.anonymous:
            raise refuse(
                "is public, but says neither who may send requests nor that anyone may",
                "set apiKey, or anonymous: true if the Gateway or the server itself asks who it is",
            )
        if wide := next((cidr for cidr in self.from_cidrs if cidr.endswith("/0")), None):
            rule = f"fromCidrs has {wide}, by which every address reaches the pods past the Gateway"
            raise refuse(rule, "set the addresses of the Gateway")
        return self

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods of the Gateway."""
        return tuple(self.from_namespaces) or (() if self.from_cidrs else (self.gateway.partition("/")[0],))


class Canary(Section):
    """A server that gets a part of another one's requests."""

    of: WorkloadName
    """The server of the team whose host, Gateway and key it shares: it sets `expose`."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Percent of the requests. 0: none yet. It is a server of its own, with its own replicas, GPUs and image."""
