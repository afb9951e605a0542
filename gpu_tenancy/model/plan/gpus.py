"""A pool's GPUs: on which machine, of which model, and what one of them is to pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.model.catalogue import Machine, Network, find_gpu, find_machine
from gpu_tenancy.model.catalogue.clouds import SharingRule, driver_mode
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Pool

NVIDIA: Final = "nvidia.com/gpu"
"""The resource of a GPU of which nobody says another."""


def machine_of(stack: Stack, pool: Pool) -> Machine | None:
    """The machine type of a pool: the stack's own row, else the catalogue's; None where neither has one."""
    if pool.machine is None:
        return None
    own = stack.machines.get(pool.machine)
    if own is None:
        return find_machine(pool.machine)
    return Machine(
        name=pool.machine,
        cloud="",
        cpu=own.cpu,
        memory=own.memory,
        gpu=own.gpu,
        gpus=own.gpus,
        architecture=own.architecture,
        accelerator=own.accelerator,
        network=Network(**own.network.model_dump()) if own.network else None,
    )


def gpu_resource(stack: Stack, pool: Pool) -> str:
    """The extended resource of a pool's whole GPUs: as it says, else its model's."""
    machine = machine_of(stack, pool)
    model = find_gpu((machine.gpu if machine else pool.gpu) or "")
    return pool.resource or (model.resource if model else NVIDIA)


def product_of(stack: Stack, pool: Pool) -> str | None:
    """The model as the node label says it: GPU feature discovery marks GPUs whose pods take turns by the operator.

    https://github.com/NVIDIA/k8s-device-plugin#with-cuda-time-slicing
    """
    machine = machine_of(stack, pool)
    name = machine.gpu if machine else pool.gpu
    model = find_gpu(name or "")
    plain = model.product if model else name
    rule = sharing_rule(stack, pool)
    turns = pool.sharing is not None and pool.sharing.time_slicing is not None
    by_operator = rule is not None and rule.by == "operator"
    marked = plain and turns and by_operator and gpu_resource(stack, pool) == NVIDIA
    return f"{plain}-SHARED" if marked else plain


@dataclass(frozen=True, slots=True)
class Cut:
    """What one GPU is to pods.

    Attributes:
        resource: what they ask for.
        replicas: how many of it one GPU gives.
        labels: by which they find it, beside the model's.
    """

    resource: str
    replicas: int = 1
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def sharing_rule(stack: Stack, pool: Pool) -> SharingRule | None:
    """Who cuts the pool's GPUs, and how; None where nobody does, or nobody can."""
    mode = driver_mode(service_of(stack.cluster), pool.driver)
    if pool.sharing is None or mode is None:
        return None
    return mode.mig if pool.sharing.mig else mode.time_slicing


def sharing(stack: Stack, pool: Pool) -> Cut | None:
    """What one GPU of the pool is to pods; None where nobody knows how many partitions it has."""
    resource = gpu_resource(stack, pool)
    if pool.sharing is None:
        return Cut(resource)
    rule = sharing_rule(stack, pool)
    if pool.sharing.mig is None:
        turns = pool.sharing.time_slicing.turns if pool.sharing.time_slicing else 1
        return Cut(resource, turns, _filled(rule, turns=str(turns)))
    mig = pool.sharing.mig
    machine = machine_of(stack, pool)
    known = find_gpu((machine.gpu if machine else pool.gpu) or "")
    partitions = mig.partitions or (known.mig.get(mig.profile, 0) if known else 0)
    if not partitions:
        return None
    asked = resource if rule and rule.whole else f"{resource.partition('/')[0]}/mig-{mig.profile}"
    return Cut(asked, partitions, _filled(rule, profile=mig.profile))


def _filled(rule: SharingRule | None, **words: str) -> dict[str, str]:
    return {key: value.format(**words) for key, value in rule.labels.items()} if rule else {}
