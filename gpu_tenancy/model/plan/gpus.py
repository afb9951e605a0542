"""A pool's GPUs: machine type, model, and the resources that pods request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.model.catalogue import Machine, Network, find_gpu, find_machine
from gpu_tenancy.model.catalogue.clouds import SharingRule, driver_mode
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Pool

NVIDIA: Final = "nvidia.com/gpu"
"""The default resource of a GPU."""


def machine_of(stack: Stack, pool: Pool) -> Machine | None:
    """The machine type of a pool: the stack's row, else the catalogue's; None if neither has one."""
    if pool.machine is None:
        return None
    own, known = stack.machines.get(pool.machine), find_machine(pool.machine)
    if own is None:
        return known
    return Machine(
        name=pool.machine,
        cloud="",
        cpu=own.cpu,
        memory=own.memory,
        gpu=own.gpu,
        gpus=own.gpus,
        architecture=own.architecture,
        accelerator=own.accelerator,
        topology=own.topology,
        host_encryption=own.host_encryption,
        zones=frozenset(own.zones) if own.zones is not None else None,
        network=Network(**own.network.model_dump()) if own.network else None,
        local_disk=(known.local_disk if known else 0) if own.local_disk is None else own.local_disk,
    )


def gpu_resource(stack: Stack, pool: Pool) -> str:
    """The extended resource of a pool's whole GPUs: as set in the pool, else the model's."""
    machine = machine_of(stack, pool)
    model = find_gpu((machine.gpu if machine else pool.gpu) or "")
    return pool.resource or (model.resource if model else NVIDIA)


def product_of(stack: Stack, pool: Pool) -> str | None:
    """The model as in the node label; GPU feature discovery adds a suffix for GPUs that its plugin shares.

    https://github.com/NVIDIA/k8s-device-plugin#with-cuda-time-slicing
    """
    machine = machine_of(stack, pool)
    name = machine.gpu if machine else pool.gpu
    model = find_gpu(name or "")
    plain = model.product if model else name
    rule = sharing_rule(stack, pool)
    turns = pool.sharing is not None and pool.sharing.pods is not None
    by_operator = rule is not None and rule.by == "operator"
    marked = plain and turns and by_operator and gpu_resource(stack, pool) == NVIDIA
    return f"{plain}-SHARED" if marked else plain


@dataclass(frozen=True, slots=True)
class Nvlink:
    """NVLink between machines.

    Attributes:
        nodes: maximum number of machines that it connects; None if it is unknown.
    """

    nodes: int | None


def nvlink_of(stack: Stack, pool: Pool) -> Nvlink | None:
    """How NVLink connects the machines of a pool; None if it does not, or if pods get parts of GPUs."""
    machine = machine_of(stack, pool)
    if pool.sharing:
        return None
    if machine and machine.domain:
        return Nvlink(machine.domain)
    model = find_gpu((machine.gpu if machine else pool.gpu) or "")
    per_node = machine.gpus if machine else pool.gpus_per_node
    if model is None or model.nvlink is None or not per_node:
        return None
    return Nvlink(None if model.nvlink.gpus is None else model.nvlink.gpus // per_node)


@dataclass(frozen=True, slots=True)
class Cut:
    """The resources that one GPU provides to pods.

    Attributes:
        resource: the resource that pods request.
        replicas: number of them per GPU.
        labels: node labels to select it by, in addition to the model's.
    """

    resource: str
    replicas: int = 1
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def sharing_rule(stack: Stack, pool: Pool) -> SharingRule | None:
    """What configures the pool's GPU sharing, and how; None without sharing, or if it is not supported."""
    mode = driver_mode(service_of(stack.cluster), pool.driver)
    if pool.sharing is None or mode is None:
        return None
    return mode.sharing(pool.sharing.way)


def sharing(stack: Stack, pool: Pool) -> Cut | None:
    """The resources that one GPU of the pool provides; None if its number of partitions is unknown."""
    resource = gpu_resource(stack, pool)
    if pool.sharing is None:
        return Cut(resource)
    rule = sharing_rule(stack, pool)
    if pool.sharing.mig is None:
        turns = pool.sharing.pods or 1
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
