"""The Kubernetes API of a cluster, as providers of Pulumi."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pulumi
import pulumi_kubernetes as kubernetes


@dataclass(frozen=True, slots=True)
class Api:
    """The Kubernetes API of a cluster.

    Attributes:
        identifier: fixed name of the cluster. A kubeconfig with another certificate or endpoint is still the same
            cluster: without it, every resource would be replaced.
        kubeconfig: content or path; None for the same defaults as for kubectl.
        context: in the kubeconfig; None for its current one.
        users: names of users and IDs of file systems that only the cloud decides, by their placeholders in the plan.
    """

    name: str
    identifier: pulumi.Input[str]
    kubeconfig: pulumi.Input[str] | None
    context: pulumi.Input[str] | None = None
    opts: pulumi.ResourceOptions | None = None
    users: Mapping[str, pulumi.Output[str]] = field(default_factory=dict[str, pulumi.Output[str]])

    def output(self) -> Mapping[str, pulumi.Input[str] | Mapping[str, pulumi.Output[str]] | None]:
        """What other Pulumi stacks of the environment need to access it: no credentials."""
        users = {"users": self.users} if self.users else {}
        return {"identifier": self.identifier, "kubeconfig": self.kubeconfig, **users}

    @classmethod
    def of(cls, name: str, output: pulumi.Output[Mapping[str, Any]], users: Iterable[str] = ()) -> Self:
        """The API as another Pulumi stack has it.

        Args:
            name: of the provider, as there: an object keeps its provider when it moves between the stacks.
            output: of the other stack.
            users: names in the plan of users that only the cloud decides.
        """
        named = {user: output["users"][user] for user in users}
        return cls(name, output["identifier"], output["kubeconfig"], users=named)

    def provider(self) -> kubernetes.Provider:
        """The provider of all objects; it refuses objects that exist already."""
        return self._provider(self.name)

    def adopting(self) -> kubernetes.Provider:
        """A provider that takes over objects that exist already, and forces the fields that the stack sets.

        An object can change between the two providers at any time: since `identifier` is the same, it is not replaced.
        """
        return self._provider(f"{self.name}-adopting", adopts=True)

    def _provider(self, name: str, *, adopts: bool | None = None) -> kubernetes.Provider:
        return kubernetes.Provider(
            name,
            kubeconfig=self.kubeconfig,
            context=self.context,
            cluster_identifier=self.identifier,
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            enable_secret_mutable=True,  # else pods that start meanwhile would not find a changed Secret
            upsert_existing_objects=adopts,
            enable_patch_force=adopts,
            opts=self.opts,
        )
