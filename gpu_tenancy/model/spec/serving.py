"""What servers serve and measure: the model, names of metrics, and the service level."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.fields import Bytes, Image, Name, Seconds, Section, refuse

EngineName: TypeAlias = Literal["custom", "vllm"]

Series: TypeAlias = Annotated[str, Field(pattern=r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+=~?"[^"{}\\]*"\})?$')]
"""Name of a metric in Prometheus, with at most one matcher of a label."""

MODEL_PATH: Final = "/model"
"""Where a server has its model, unless it mounts the dataset or volume at another path."""


class Model(Section):
    """The model of a server: a folder of a dataset, of a volume of the team, or of an image."""

    dataset: Name | None = None
    """Dataset of the team with the model."""
    volume: Name | None = None
    """Storage of the team with the model."""
    image: Image | None = None
    """Image or OCI artifact with the model, which nodes pull as a volume. Requires Kubernetes 1.35."""
    path: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)*)?$")
    """Folder of the model in its source, such as `llama-3.1-8b`; default: its root."""
    name: str | None = Field(default=None, min_length=1)
    """Name by which requests ask for the model; default: the last part of `path`, or the name of its source."""
    size: Annotated[Bytes, Field(gt=0)] | None = None
    """Size of the weights, such as `16Gi`. It must fit the memory of a replica's GPUs, and lengthens the default of
    `startup`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.dataset, self.volume, self.image)) != 1:
            raise refuse("needs one source", "set one of dataset, volume and image")
        return self

    @property
    def served(self) -> str:
        """Name by which requests ask for it."""
        image = (self.image or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
        return self.name or self.path.rpartition("/")[2] or self.dataset or self.volume or image


class ServerMetrics(Section):
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


class ServerLevel(Section):
    """The service level of a server, of which alerts say when its error budget is used up too fast."""

    first_token: Annotated[Seconds, Field(ge=0.001)] | None = None
    """Time to the first token, such as `500ms`: a bound of the histogram's buckets. Requires `metrics.firstToken`."""
    latency: Annotated[Seconds, Field(ge=0.001)] | None = None
    """Time to the whole answer, such as `10s`: a bound of the histogram's buckets. Requires `metrics.latency`."""
    share: Annotated[float, Field(ge=50, le=99.99)] = 99
    """Percent of the requests, in 30 days, that must be answered within each of these times, and without a failure."""


NO_METRICS: Final = ServerMetrics()
