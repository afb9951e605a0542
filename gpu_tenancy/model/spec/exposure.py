"""Ways in for clients outside of the cluster: hosts of servers and notebooks, and the part of requests of a canary."""

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


class GatewayRoute(Section):
    """The Gateway of a route of Gateway API, and where its requests come from."""

    gateway: Gateway
    """The Gateway that takes the requests, as NAMESPACE/NAME: it exists, and allows routes of the team's namespace."""
    listener: Name = "https"
    """Name of the Gateway's listener, which ends TLS. Other listeners, such as those without TLS, do not get the route.
    """
    from_namespaces: list[Name] = []
    """Namespaces with the pods of the Gateway. Default: that of the Gateway, if `fromCidrs` is not set."""
    from_cidrs: list[Cidr] = []
    """CIDRs of a Gateway outside of the cluster, such as the subnets of its load balancer, or its proxy-only subnet and
    the ranges of its health checks."""

    @model_validator(mode="after")
    def _past_no_gateway(self) -> Self:
        if wide := next((cidr for cidr in self.from_cidrs if cidr.endswith("/0")), None):
            rule = f"fromCidrs has {wide}, by which every address reaches the pods past the Gateway"
            raise refuse(rule, "set the addresses of the Gateway")
        return self

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods of the Gateway."""
        return tuple(self.from_namespaces) or (() if self.from_cidrs else (self.gateway.partition("/")[0],))


class ServerExpose(GatewayRoute):
    """The way of clients outside of the cluster to a server: a route of Gateway API.

    `network.expose` of the team must allow its host, its Gateway, and `reach: public`.
    """

    host: Host
    """DNS name that clients use, such as chat.example.com. Its record and its certificate are those of the Gateway."""
    reach: Literal["internal", "public"] = "internal"
    """Who reaches the Gateway: `internal`: your own networks; `public`: the internet. It is what you state: the Gateway
    decides. `public` needs `apiKey` or `anonymous`."""
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
        return self


class NotebooksExpose(GatewayRoute):
    """Hosts of notebooks: `tenancy notebook open` then forwards no port. Never for a Gateway of the internet.

    `network.expose` of the team must allow its hosts and its Gateway. People of the team can create no routes, so the
    stack has one for each name.
    """

    domain: Host
    """DNS name below which each notebook has a host of its own: below lab.example.com the notebook `ann` has
    ann.lab.example.com. Records and certificates, such as those of *.lab.example.com, are those of the Gateway."""
    names: Annotated[list[WorkloadName], Field(min_length=1)]
    """Names of the notebooks that have a host, if they are started with them. Others are reached by a forwarded port.
    """

    @model_validator(mode="after")
    def _one_host_each(self) -> Self:
        if self.domain.startswith("*."):
            raise refuse(f"domain {self.domain} is not one domain", f"set {self.domain[2:]}")
        if twice := next((name for name in self.names if self.names.count(name) > 1), None):
            raise refuse(f"names has {twice} twice", "remove one of them")
        return self

    @property
    def hosts(self) -> dict[str, str]:
        """The host of each notebook, by its name."""
        return {name: f"{name}.{self.domain}" for name in self.names}


class Canary(Section):
    """A server that gets a part of another one's requests."""

    of: WorkloadName
    """The server of the team whose host, Gateway and key it shares: it sets `expose`."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Percent of the requests. 0: none yet. It is a server of its own, with its own replicas, GPUs and image."""
