"""What the catalogue knows, for people: what each cloud can do with a pool, and its machines."""

from collections.abc import Iterator

from rich.table import Table

from gpu_tenancy.model.catalogue import Machine, allocatable, find_gpu, machines
from gpu_tenancy.model.catalogue.clouds import CapacityRule, CloudRules, DriverMode, SharingRule, clouds
from gpu_tenancy.model.quantity import format_bytes

NO = "no"


def abilities() -> tuple[list[str], list[list[str]]]:
    """What each cloud can: the headings, and a row for each ability. README's table is this one."""
    rules = list(clouds().values())
    kinds = list(rules[0].capacity)
    rows = [
        *([f"`{kind}`", *(_capacity(each.capacity[kind]) for each in rules)] for kind in kinds),
        ["`compact`", *(", ".join(each.compact) or NO for each in rules)],
        ["`fabric`", *(", ".join(each.fabrics) or NO for each in rules)],
        ["`driver`, the first if unsaid", *(", ".join(f"`{name}`" for name in each.drivers) for each in rules)],
        ["`sharing.mig` is cut by", *(_sharing(each, "mig") for each in rules)],
        ["`sharing.timeSlicing` is by", *(_sharing(each, "timeSlicing") for each in rules)],
    ]
    return ["", *(each.title for each in rules)], rows


def _capacity(rule: CapacityRule) -> str:
    if rule.refused:
        return NO
    needs = [
        "a reservation" if rule.reservation else "",
        f"{rule.zones} zone" if rule.zones else "",
        f"`nodes.min: {rule.min}`" if rule.min is not None else "",
        f"at most {rule.longest / 86400:g} days" if rule.longest else "",
        "Kueue asks" if rule.by_queue else "",
    ]
    return ", ".join(filter(None, needs)) or "yes"


def _sharing(rules: CloudRules, what: str) -> str:
    found = {name: _rule(mode, what) for name, mode in rules.drivers.items()}
    said = [f"the {rule.by} (`{name}`)" if len(found) > 1 else rule.by for name, rule in found.items() if rule]
    return ", ".join(said) or NO


def _rule(mode: DriverMode, what: str) -> SharingRule | None:
    return mode.mig if what == "mig" else mode.time_slicing


def abilities_table() -> Table:
    """The abilities, for a terminal."""
    headings, rows = abilities()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading)
    for row in rows:
        table.add_row(*(cell.replace("`", "") for cell in row))
    return table


def machines_table(cloud: str | None) -> Table:
    """The catalogue's machines, of one cloud or of all."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("machine", "cloud", "GPUs", "memory of each", "cpus", "memory", "for pods", "fabric"):
        table.add_column(heading)
    for heading in ("$ an hour", "spot"):
        table.add_column(heading, justify="right")
    for machine in _sorted(cloud):
        table.add_row(*_cells(machine))
    return table


def _sorted(cloud: str | None) -> Iterator[Machine]:
    return (machine for (of, _), machine in machines().items() if cloud in {None, of})


def _cells(machine: Machine) -> Iterator[str]:
    gpu = find_gpu(machine.gpu) if machine.gpu else None
    cpu, memory = allocatable(machine)
    yield machine.name
    yield machine.cloud
    yield f"{machine.gpus} {machine.gpu}" if gpu else ""
    yield format_bytes(gpu.memory) if gpu else ""
    yield f"{machine.cpu // 1000}"
    yield format_bytes(machine.memory)
    yield f"{cpu // 1000}, {format_bytes(memory)}"
    yield _fabric(machine)
    yield _price(machine.price.on_demand)
    yield _price(machine.price.spot)


def _fabric(machine: Machine) -> str:
    found = machine.network
    return f"{found.interfaces} x {found.fabric}" if found and found.fabric else ""


def _price(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"
