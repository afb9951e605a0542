"""How to access a cluster's Kubernetes API, without credentials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pulumi
import pulumi_kubernetes as kubernetes


def provider_name(cluster: str) -> str:
    """The name of the provider of a cloud's cluster, the same in every Pulumi stack of an environment."""
    return f"{cluster}-kubernetes"


@dataclass(frozen=True)
class Connection:
    """What the provider of a cluster's Kubernetes API is created from.

    Attributes:
        kubeconfig: path or content of a kubeconfig without credentials; None for kubectl's default.
        identifier: which cluster it is, whatever its address and certificate. Without a fixed name, every object would
            be replaced when the kubeconfig changes.
        context: of the kubeconfig; None for its current context.
    """

    kubeconfig: pulumi.Input[str] | None
    identifier: pulumi.Input[str]
    context: pulumi.Input[str] | None = None

    def provider(self, name: str, opts: pulumi.ResourceOptions | None = None) -> kubernetes.Provider:
        """A provider of the cluster's Kubernetes API."""
        return kubernetes.Provider(
            name,
            kubeconfig=self.kubeconfig,
            context=self.context,
            cluster_identifier=self.identifier,
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            opts=opts,
        )

    def output(self) -> Mapping[str, pulumi.Input[str] | None]:
        """The same as an output of a Pulumi stack, for the stacks that deploy to the cluster."""
        return {"kubeconfig": self.kubeconfig, "identifier": self.identifier}

    @classmethod
    def of(cls, output: pulumi.Output[Mapping[str, str]]) -> Self:
        """Read from the output of another Pulumi stack."""
        return cls(output.apply(_kubeconfig), output.apply(_identifier))


def _kubeconfig(output: Mapping[str, str]) -> str:
    return output["kubeconfig"]


def _identifier(output: Mapping[str, str]) -> str:
    return output["identifier"]
