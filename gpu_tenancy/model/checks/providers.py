"""Checks that everything in a stack has what it needs to work: made here, part of the cloud, or declared."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.fabric import pod_fabric
from gpu_tenancy.model.plan.needs import has
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import service_of, stored, with_snapshots


def provider_problems(tree: Tree) -> Iterator[Problem]:
    """Needs of the stack that nothing provides, as far as the program and the stack tell."""
    for name, need in needs().items():
        place = next(places(tree, name), None)
        if place is not None and not has(tree.stack, name):
            yield Problem(
                ("cluster", "provides"),
                f"does not include {name}, which {need.of} need ({dotted(place)}): without {need.means}, they"
                f" {need.without}",
                f"add {name} if the cluster has it",
                about=(place, ("cluster",)),
            )


def places(tree: Tree, name: str) -> Iterator[Path]:
    """The places of a stack that have a need, by its name."""
    return _PLACES[name](tree)


def _teams(tree: Tree) -> Iterator[Path]:
    return (("teams", name) for name in tree.stack.teams)


def _autoscalers_on_cpu(tree: Tree) -> Iterator[Path]:
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            if server.autoscaled and (server.scale_on is None or server.scale_on.cpu is not None):
                yield ("teams", team, "serving", name)


def _claims(tree: Tree) -> Iterator[Path]:
    for name, team in tree.stack.teams.items():
        for place, storage in stored(team):
            if storage.storage_class is None and service_of(tree.stack.cluster, storage)[1] is None:
                yield ("teams", name, *place)
    if tree.stack.metrics.storage and tree.stack.metrics.storage.storage_class is None:
        yield ("metrics", "storage")


def _snapshots(tree: Tree) -> Iterator[Path]:
    return (("teams", team, "storage", name, "snapshots") for team, name, _, _ in with_snapshots(tree.stack.teams))


def _datasets(scheme: str) -> Callable[[Tree], Iterator[Path]]:
    def of_scheme(tree: Tree) -> Iterator[Path]:
        for name, dataset in tree.stack.datasets.items():
            if dataset.scheme == scheme and dataset.accelerate is None:
                yield ("datasets", name)

    return of_scheme


def _provisioned_pools(tree: Tree) -> Iterator[Path]:
    for check in provisioning_checks(tree):
        yield ("pools", tree.flavors[check.flavor].pools[0].name)


def _workloads_with_efa(tree: Tree) -> Iterator[Path]:
    for team, spec in tree.stack.teams.items():
        for path, workload in workloads(team, spec):
            flavor = flavor_of(tree, team, workload)
            fabric = pod_fabric(tree, flavor.name, workload) if flavor else None
            if fabric and fabric.name == "efa":
                yield path


def _exposed(tree: Tree) -> Iterator[Path]:
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            if server.expose:
                yield ("teams", team, "serving", name, "expose")
        if spec.notebooks and spec.notebooks.expose:
            yield ("teams", team, "notebooks", "expose")


_PLACES: Final[Mapping[str, Callable[[Tree], Iterator[Path]]]] = {
    "networkPolicies": _teams,
    "resourceMetrics": _autoscalers_on_cpu,
    "defaultStorageClass": _claims,
    "s3Volumes": _datasets("s3"),
    "gcsVolumes": _datasets("gs"),
    "blobVolumes": _datasets("az"),
    "volumeSnapshots": _snapshots,
    "provisioningRequests": _provisioned_pools,
    "efaDevices": _workloads_with_efa,
    "gateways": _exposed,
}
"""Where a stack has each need."""
