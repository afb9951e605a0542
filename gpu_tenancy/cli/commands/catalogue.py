"""Reference commands: machine types, the schema of stack files, policy packs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.base.terminal import ProjectFolder
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.model import catalogue
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model import schema as stack_schema
    from gpu_tenancy.model.catalogue import clouds as catalogue_clouds
    from gpu_tenancy.packs import configuration

if TYPE_CHECKING:
    from gpu_tenancy.base.json import Json
    from gpu_tenancy.model.catalogue.machines import Purchase
NO: Final = "no"


def machines(
    cloud: Annotated[str | None, typer.Option(help="Show one cloud only: aws, gcp or azure.")] = None,
    output: Output = None,
) -> None:
    """List the machine types that a stack can use, with allocatable resources and prices.

    [dim]tenancy catalogue machines --cloud gcp[/dim]
    """
    if cloud is not None and cloud not in catalogue.cloud_tables():
        terminal.error_line(f"--cloud: unknown cloud '{cloud}'; {nearest(cloud, catalogue.cloud_tables())}")
        raise typer.Exit(terminal.ExitCode.ERROR)
    chosen = [machine for (of, _), machine in catalogue.machines().items() if cloud in {None, of}]
    rows = [_row(machine) for machine in chosen]
    drop = ("capacity", "fabric", "memory", "CPUs", "cloud", "$/hour spot", "memory per GPU", "allocatable")
    table = terminal.table(*rows[0], drop=drop)
    for row in rows:
        table.add_row(*row.values())
    answer(output, [_data(machine) for machine in chosen], table)


def schema(out: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.")] = None) -> None:
    """Print the JSON schema of stack files, for validation and completion in editors.

    [dim]tenancy catalogue schema --out stacks/schema.json[/dim]
    """
    text = stack_schema.schema_text()
    if out:
        write_text(out, text)
    else:
        sys.stdout.write(text)


def packs(
    name: Annotated[str | None, typer.Argument(help="Print only the folder of this pack.", show_default=False)] = None,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """List the policy packs and their folders; with NAME, print its folder for `pulumi preview --policy-pack`.

    [dim]pulumi preview --policy-pack "$(tenancy catalogue packs workloads)"[/dim]
    """
    folder = projects.project_folder(project)
    if name:
        typer.echo(configuration.choose(name, folder, production=False).folder)
        return
    table = terminal.table("pack", "folder")
    for pack in configuration.pack_names(folder):
        table.add_row(pack, str(configuration.choose(pack, folder, production=False).folder))
    answer(output, table.records, table)


def abilities() -> tuple[list[str], list[list[str]]]:
    """What each cloud supports in a node pool: headings and rows, also for docs/clouds.md."""
    all_rules = list(catalogue_clouds.clouds().values())
    kinds = list(all_rules[0].capacity)
    topologies = [[prefix for rule in rules.topologies for prefix in rule.machines] for rules in all_rules]
    return ["", *(rules.title for rules in all_rules)], [
        *([f"`{kind}`", *(_capacity(rules.capacity[kind]) for rules in all_rules)] for kind in kinds),
        ["`compact`", *(", ".join(rules.compact) or NO for rules in all_rules)],
        ["`topology: cloud`", *(", ".join(f"{name}*" for name in prefixes) or NO for prefixes in topologies)],
        ["`fabric`", *(", ".join(rules.fabrics) or NO for rules in all_rules)],
        ["`driver` (default first)", *(", ".join(f"`{name}`" for name in rules.drivers) for rules in all_rules)],
        ["`sharing.mig` is set up by", *(_sharing(rules, "mig") for rules in all_rules)],
        ["`sharing.timeSlicing` is set up by", *(_sharing(rules, "timeSlicing") for rules in all_rules)],
        ["`sharing.mps` is set up by", *(_sharing(rules, "mps") for rules in all_rules)],
    ]


def _capacity(rule: "catalogue_clouds.CapacityRule") -> str:
    if rule.refused:
        return NO
    needs = [
        "needs a reservation" if rule.reservation else "",
        f"{rule.zones} zone" if rule.zones else "",
        f"`nodes.min: {rule.min}`" if rule.min is not None else "",
        f"at most {rule.longest / 86400:g} days" if rule.longest else "",
        "requested by Kueue" if rule.by_queue else "",
    ]
    return ", ".join(filter(None, needs)) or "yes"


def _sharing(rules: "catalogue_clouds.CloudRules", way: Literal["mig", "timeSlicing", "mps"]) -> str:
    by_driver = {name: mode.sharing(way) for name, mode in rules.drivers.items()}
    cells = [
        f"{rule.by} (driver `{name}`)" if len(by_driver) > 1 else rule.by for name, rule in by_driver.items() if rule
    ]
    return ", ".join(cells) or NO


def _data(machine: "catalogue.Machine") -> "dict[str, Json]":
    """A machine type for programs: numbers with their unit in the key; null for what is unknown or does not exist."""
    gpu = catalogue.find_gpu(machine.gpu) if machine.gpu else None
    cpu, memory = catalogue.allocatable(machine)
    return {
        "machine": machine.name,
        "cloud": machine.cloud,
        "gpu": machine.gpu,
        "gpus": machine.gpus,
        "gpu_memory_bytes": gpu.memory if gpu else None,
        "cpus": machine.cpu / 1000,
        "memory_bytes": machine.memory,
        "allocatable_cpus": cpu / 1000,
        "allocatable_memory_bytes": memory,
        "fabric": machine.network.fabric if machine.network else None,
        "network_interfaces": machine.network.interfaces if machine.network and machine.network.fabric else None,
        "capacity": list(machine.purchase.has) if machine.purchase else None,
        "capacity_unavailable": list(machine.purchase.lacks) if machine.purchase else None,
        "reservations": list(machine.purchase.reservations) if machine.purchase else None,
        "zones": [*sorted(machine.zones)] if machine.zones else None,
        "usd_per_hour": machine.price.on_demand,
        "usd_per_hour_spot": machine.price.spot,
    }


def _row(machine: "catalogue.Machine") -> dict[str, str]:
    """A row of the table, by heading."""
    gpu = catalogue.find_gpu(machine.gpu) if machine.gpu else None
    cpu, memory = catalogue.allocatable(machine)
    network, price = machine.network, machine.price
    return {
        "machine": machine.name,
        "cloud": machine.cloud,
        "GPUs": f"{machine.gpus} {machine.gpu}" if gpu else "",
        "memory per GPU": format_bytes(gpu.memory) if gpu else "",
        "CPUs": f"{machine.cpu // 1000}",
        "memory": format_bytes(machine.memory),
        "allocatable": f"{cpu // 1000} CPUs, {format_bytes(memory)}",
        "fabric": f"{network.interfaces} x {network.fabric}" if network and network.fabric else "",
        "capacity": _capacity_types(machine.purchase),
        "$/hour#": _price(price.on_demand),
        "$/hour spot#": _price(price.spot),
    }


def _capacity_types(purchase: "Purchase | None") -> str:
    """The capacity types of a machine type, with the kinds of its reservations and the only zones that have it."""
    if purchase is None or not purchase.has:
        return "unknown"
    beyond = set(purchase.reservations) - {"on-demand"}
    kinds = f" ({', '.join(purchase.reservations)})" if beyond else ""
    ways = ", ".join(f"{kind}{kinds}" if kind == "reserved" else kind for kind in purchase.has)
    return f"{ways} in {', '.join(purchase.zones)}" if purchase.zones else ways


def _price(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"
