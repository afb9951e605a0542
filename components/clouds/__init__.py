"""One interface for the clusters of all clouds; a cloud's module is imported on first use, as its SDK is an extra."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Protocol, Self, TypeVar

import pulumi
import pulumi_kubernetes as kubernetes

from gpu_tenancy.base.installing import missing
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.pools import NodeTaint

from ..objects import Options

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Api:
    """The Kubernetes API of a cluster, as providers of Pulumi."""

    name: str
    # A fixed name of the cluster: without it, a new certificate or endpoint would replace every resource.
    identifier: pulumi.Input[str]
    kubeconfig: pulumi.Input[str] | None  # content or a path; None for kubectl's defaults
    context: pulumi.Input[str] | None = None  # None for the current one
    opts: Options = None
    # Names of users and IDs of file systems that only the cloud decides, by their placeholders in the plan
    users: Mapping[str, pulumi.Output[str]] = field(default_factory=dict[str, pulumi.Output[str]])

    def output(self) -> Mapping[str, pulumi.Input[str] | Mapping[str, pulumi.Output[str]] | None]:
        """Outputs that other Pulumi stacks of the environment need to access it: no credentials."""
        users = {"users": self.users} if self.users else {}
        return {"identifier": self.identifier, "kubeconfig": self.kubeconfig, **users}

    @classmethod
    def of(cls, name: str, output: pulumi.Output[Mapping[str, Any]], users: Iterable[str]) -> Self:
        """The API by the output of another Pulumi stack; `users` are placeholders in the plan.

        `name` is the provider's name there: an object keeps its provider when it moves between the stacks.
        """
        named = {user: output["users"][user] for user in users}
        return cls(name, output["identifier"], output["kubeconfig"], users=named)

    def provider(self, *, adopts: bool | None = None) -> kubernetes.Provider:
        """The provider of all objects; it refuses objects that exist already.

        With `adopts`, a second one that takes over existing objects, and forces the fields that the stack sets. An
        object that changes between the two is not replaced, because `identifier` is the same.
        """
        return kubernetes.Provider(
            f"{self.name}-adopting" if adopts else self.name,
            # With None, the SDK writes the path in KUBECONFIG into the state, which differs between two machines.
            kubeconfig="" if self.kubeconfig is None else self.kubeconfig,
            context=self.context,
            cluster_identifier=self.identifier,
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            enable_secret_mutable=True,  # else pods that start meanwhile would not find a changed Secret
            upsert_existing_objects=adopts,
            enable_patch_force=adopts,
            opts=self.opts,
        )


class Cluster(Protocol):
    """The interface of a cluster, common to all clouds; `kubernetes` is its provider, without credentials.

    `system` are dependencies of everything in a created cluster: system nodes, and objects that set up nodes for pods.
    It never has a pool of the stack: one without capacity would block all teams.
    """

    api: Api
    kubernetes: kubernetes.Provider
    system: Sequence[pulumi.Resource]


def open_cluster(name: str, plan: ClusterPlan, opts: Options = None) -> Cluster:
    """Creates or looks up the cluster of a plan; raises RunError if the cloud's package is not installed."""
    cloud = plan.section.cloud
    try:
        module = import_module(f"{__name__}.{cloud}")
    except ModuleNotFoundError as error:
        problem = missing(error, f"cluster.cloud: {cloud}")
        if problem is None or (error.name or "").replace("_", "-") != clouds()[cloud].package:
            raise
        raise pulumi.RunError(str(problem)) from error
    return module.open_cluster(name, plan, opts)


def section_of(plan: ClusterPlan, kind: type[S]) -> S:
    """The section of a plan for one cloud; raises TypeError if the plan is for another cloud."""
    if not isinstance(plan.section, kind):
        raise TypeError(f"{plan.section.cloud} is another cloud")
    return plan.section


def once_there(value: pulumi.Input[str], *others: pulumi.Output[str]) -> pulumi.Output[str]:
    """The value, known once others are: a resource that uses it comes after the resources of the others."""
    return pulumi.Output.all(value, *others).apply(lambda values: values[0])


_EFFECTS: Final = {"NoSchedule": "NO_SCHEDULE", "NoExecute": "NO_EXECUTE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}


def node_taints(taints: Iterable[NodeTaint]) -> list[Any]:
    """Taints as inputs of node pools of EKS and GKE."""
    return [{"key": taint.key, "value": taint.value, "effect": _EFFECTS[taint.effect]} for taint in taints]
