"""What servers serve and measure: the model, names of metrics, and the service level."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpu_tenancy.model import fields
from gpu_tenancy.model.spec.data import Storage

EngineName: TypeAlias = Literal["custom", "vllm"]

Series: TypeAlias = Annotated[str, Field(pattern=r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+=~?"[^"{}\\]*"\})?$')]
"""Name of a metric in Prometheus, with at most one matcher of a label."""

MODEL_PATH: Final = "/model"
"""Where a server has its model, unless it mounts the dataset or volume at another path."""


class Model(fields.Section):
    """The model of a server: a folder of a dataset, of a volume of the team, or of an image."""

    dataset: fields.Name | None = None
    """Dataset of the team with the model."""
    volume: fields.Name | None = None
    """Storage of the team with the model."""
    image: fields.Image | None = None
    """Image or OCI artifact with the model, which nodes pull as a volume. Requires Kubernetes 1.35."""
    path: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)*)?$")
    """Folder of the model in its source, such as `llama-3.1-8b`; default: its root."""
    name: str | None = Field(default=None, min_length=1)
    """Name by which requests ask for the model; default: the last part of `path`, or the name of its source."""
    size: Annotated[fields.Bytes, Field(gt=0)] | None = None
    """Size of the weights, such as `16Gi`. It must fit the memory of a replica's GPUs, and lengthens the default of
    `startup`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if sum(source is not None for source in (self.dataset, self.volume, self.image)) != 1:
            yield "needs one source", "set one of dataset, volume and image"

    @property
    def served(self) -> str:
        """Name by which requests ask for it."""
        image = (self.image or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
        return self.name or self.path.rpartition("/")[2] or self.dataset or self.volume or image


class ServerMetrics(fields.Section):
    """Names of what a server measures about itself, as Prometheus has them.

    Of `engine: vllm` they are known.
    """

    running: Series | None = None
    """Gauge: number of requests that are worked on, such as `sglang:num_running_reqs`."""
    waiting: Series | None = None
    """Gauge: number of requests that wait, such as `sglang:num_queue_reqs`."""
    cache: Series | None = None
    """Gauge: part of the KV cache that is used, from 0 to 1, such as `sglang:token_usage`."""
    tokens: Series | None = None
    """Counter: generated tokens, such as `sglang:generation_tokens_total`."""
    first_token: Series | None = None
    """Histogram: time to the first token in seconds, such as `sglang:time_to_first_token_seconds`."""
    latency: Series | None = None
    """Histogram: time to the whole answer in seconds, such as `sglang:e2e_request_latency_seconds`."""
    requests: Series | None = None
    """Counter: requests, such as `nv_inference_request_success`."""
    failures: Series | None = None
    """Counter: requests that failed, such as `http_requests_total{status="5xx"}`."""


class ServerLevel(fields.Section):
    """The service level of a server, of which alerts say when its error budget is used up too fast."""

    first_token: Annotated[fields.Duration, Field(ge=0.001)] | None = None
    """Time to the first token, such as `500ms`: a bound of the histogram's buckets. Requires `metrics.firstToken`."""
    latency: Annotated[fields.Duration, Field(ge=0.001)] | None = None
    """Time to the whole answer, such as `10s`: a bound of the histogram's buckets. Requires `metrics.latency`."""
    share: Annotated[float, Field(ge=50, le=99.99)] = 99
    """Percent of the requests, in 30 days, that must be answered within each of these times, and without a failure."""


class Probes(fields.Section):
    """Times of a server's probes."""

    period: Annotated[fields.Seconds, Field(ge=1, le=3600)] = 10
    """Time between two probes."""
    timeout: Annotated[fields.Seconds, Field(ge=1, le=3600)] = 5
    """Time in which the server must answer a probe."""
    failures: fields.Positive = 3
    """Failed probes in a row after which a pod gets no requests, or restarts."""
    ready_after: Annotated[fields.Seconds, Field(le=86400)] = 30
    """Time from the start of the container to the first readiness probe."""
    alive_after: Annotated[fields.Seconds, Field(le=86400)] = 60
    """Time from the start of the container to the first liveness probe."""


NO_METRICS: Final = ServerMetrics()

Gateway: TypeAlias = Annotated[
    str,
    fields.Matching(
        re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"),
        "is not a Gateway",
        "use NAMESPACE/NAME of a Gateway that exists, such as infra/edge",
    ),
]
"""A Gateway of Gateway API."""


class ApiKey(fields.Section):
    """A key of a Secret in the team's namespace, which you create: the stack has only its name."""

    secret: fields.Name
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")] = "api-key"
    """Key of the Secret, whose value clients send as `Authorization: Bearer VALUE`."""


class GatewayRoute(fields.Section):
    """The Gateway of a route of Gateway API, and where its requests come from."""

    gateway: Gateway
    """The Gateway that takes the requests, as NAMESPACE/NAME: it exists, and allows routes of the team's namespace."""
    listener: fields.Name = "https"
    """Name of the Gateway's listener with TLS, the only one that gets the route."""
    from_namespaces: list[fields.Name] = []
    """Namespaces with the pods of the Gateway. Default: that of the Gateway, if `fromCidrs` is not set."""
    from_cidrs: list[fields.Cidr] = []
    """CIDRs of a Gateway outside of the cluster, such as the subnets of its load balancer, or its proxy-only subnet and
    the ranges of its health checks."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if wide := next((cidr for cidr in self.from_cidrs if cidr.endswith("/0")), None):
            rule = f"fromCidrs has {wide}, by which every address reaches the pods past the Gateway"
            yield rule, "set the addresses of the Gateway"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with pods of the Gateway."""
        return tuple(self.from_namespaces) or (() if self.from_cidrs else (self.gateway.partition("/")[0],))


class ServerExpose(GatewayRoute):
    """A route of Gateway API, by which clients outside of the cluster reach a server.

    `network.expose` of the team must allow its host, its Gateway, and `reach: public`.
    """

    host: fields.Host
    """DNS name that clients use, such as chat.example.com. Its record and its certificate are those of the Gateway."""
    reach: Literal["internal", "public"] = "internal"
    """Who reaches the Gateway: your own networks, or the internet. You state it; the Gateway decides. `public` needs
    `apiKey` or `anonymous`."""
    api_key: ApiKey | None = None
    """Key that the server asks of each request, from pods of the cluster too. Only for engines that can, as `vllm`."""
    anonymous: bool = False
    """That there is no key for `reach: public`: anyone may send requests, unless the Gateway or the server itself asks
    who it is."""
    timeout: Annotated[fields.Seconds, Field(ge=1, le=86400)] = 600
    """Time that a request may take, as the route's timeout, for Gateways that have such timeouts."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if self.host.startswith("*."):
            yield f"host {self.host} is not one host", "set the name that clients use, such as chat.example.com"
        if self.anonymous and (self.api_key or self.reach == "internal"):
            other = "apiKey" if self.api_key else "reach: internal"
            yield f"sets anonymous and {other}", "remove anonymous"
        if self.reach == "public" and not self.api_key and not self.anonymous:
            rule = "is public, but says neither who may send requests nor that anyone may"
            yield rule, "set apiKey, or anonymous: true if the Gateway or the server itself asks who it is"


class NotebooksExpose(GatewayRoute):
    """Hosts of notebooks: `tenancy notebook open` then forwards no port.

    Never for a Gateway of the internet. `network.expose` of the team must allow its hosts and its Gateway.
    """

    domain: fields.Host
    """DNS name below which each notebook has a host: below lab.example.com the notebook `ann` has ann.lab.example.com.
    Records and certificates are those of the Gateway."""
    names: Annotated[list[fields.WorkloadName], Field(min_length=1)]
    """Names of the notebooks that have a host, if they are started with them. Others are reached by a forwarded
    port."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if self.domain.startswith("*."):
            yield f"domain {self.domain} is not one domain", f"set {self.domain[2:]}"
        if twice := next((name for name in self.names if self.names.count(name) > 1), None):
            yield f"names has {twice} twice", "remove one of them"

    @property
    def hosts(self) -> dict[str, str]:
        """The host of each notebook, by its name."""
        return {name: f"{name}.{self.domain}" for name in self.names}


class Canary(fields.Section):
    """A server that gets a part of another one's requests."""

    of: fields.WorkloadName
    """The server of the team whose host, Gateway and key it shares: it sets `expose`."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Percent of the requests. 0: none yet. It is a server of its own, with its own replicas, GPUs and image."""


class NotebookSize(fields.Section):
    """The resources of a notebook."""

    gpus: fields.Count = 0
    """GPUs, or MIG partitions of a flavor whose GPUs are partitioned."""
    flavor: fields.Name | None = None
    """Flavor to run on; required if the team has several GPU flavors."""
    cpu: fields.Cpu | None = None
    """CPUs; default: 90 % of its GPUs' share of the machine, or `containers.defaultRequest`."""
    memory: fields.Bytes | None = None
    """Memory; default: 90 % of its GPUs' share of the machine, or `containers.defaultRequest`."""


class Notebooks(fields.Section):
    """JupyterLab for the people of a team, by `tenancy notebook`, in the team's queue.

    A researcher can start any server in the namespace: this is what `tenancy notebook` offers, and stops.
    """

    images: Annotated[list[fields.Image], Field(min_length=1)]
    """Images to choose from; the first is the default. They have JupyterLab, Python and a user other than root."""
    sizes: Annotated[dict[fields.Name, NotebookSize], Field(min_length=1)]
    """Sizes to choose from, by name; the first is the default."""
    home: Storage
    """Storage of each notebook, under /home/notebook. It stays when the notebook stops or is deleted."""
    idle: Annotated[fields.Seconds, Field(ge=300)] = 3600
    """Time without a running cell and without output of a terminal, after which a notebook stops. An open browser does
    not count."""
    longest: Annotated[fields.Seconds, Field(ge=600)] = 43200
    """Time after which a running notebook stops, whatever it does."""
    expose: NotebooksExpose | None = None
    """Hosts by which browsers reach notebooks; default: none, only `kubectl port-forward` reaches them."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.home.snapshots:
            yield "sets home.snapshots, which are taken of storage of the team only", "remove home.snapshots"
