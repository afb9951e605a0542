"""Generates pages of docs/: stack and command references, and tables of clouds, roles and operators.

`make docs`, or `python -m gpu_tenancy.cli.documentation`, writes them.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import typer
from rich.markup import render
from typer.core import TyperArgument, TyperGroup, TyperOption

from gpu_tenancy.base.output import write_text
from gpu_tenancy.cli.commands.catalogue import abilities
from gpu_tenancy.cli.main import app
from gpu_tenancy.cli.stack_reference import Reference, escaped, head, stack_page, table
from gpu_tenancy.model.catalogue.access import Rule, roles
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.project import project_folder, read_stack, stack_names
from gpu_tenancy.model.schema import file_schema

COMMANDS: Final = Path("docs/commands.md")
STACK: Final = Path("docs/stack-reference.md")
CLOUDS: Final = Path("docs/clouds.md")
_WITH_TABLES: Final = (CLOUDS, Path("docs/people.md"), Path("docs/operators.md"))
Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[str]]]  # headings and rows

_TABLE: Final = re.compile(
    r"(?P<start><!-- table of (?P<name>\w+): written by `make docs` -->\n).*?(?=<!-- end of the table -->)", re.DOTALL
)


def pages(project: Path) -> dict[Path, str]:
    """Text of the generated pages by path, relative to the project."""
    stacks = [read_stack(name, project).sections for name in stack_names(project)]
    with_tables = {path: (project / path).read_text(encoding="utf-8") for path in _WITH_TABLES}
    return {
        COMMANDS: commands_page(),
        STACK: stack_page(Reference(file_schema(), stacks)),
        **{path: _TABLE.sub(_with_table, page) for path, page in with_tables.items()},
    }


def _with_table(match: re.Match[str]) -> str:
    return "\n".join([match["start"], *table(*_TABLES[match["name"]]()), "", ""])


def needs_table() -> Table:
    """Needs of a stack's objects, and their provider on each cloud."""
    names = {name: rules.title for name, rules in clouds().items() if rules.package}
    rows: list[list[str]] = []
    for name, need in needs().items():
        made = {cloud: f"with `create`: {way.by}" for cloud, way in need.made.items()}
        providers = [need.cloud.get(cloud, made.get(cloud, "declare it")) for cloud in names]
        rows.append([f"`{name}`", need.of, *providers, need.means])
    return ["in `provides`", "needed by", *names.values(), "means"], rows


_READS: Final = frozenset({"get", "list", "watch"})


def roles_table() -> Table:
    """Rights that each role adds to the role that it includes."""
    return ["role", "in", "includes", "reads", "creates, changes, deletes"], [
        [
            f"`{name}`",
            "the cluster" if role.scope == "cluster" else "a team",
            f"`{role.includes}`" if role.includes else "",
            _resources(rule for rule in role.rules if _READS.issuperset(rule.verbs)),
            _resources(rule for rule in role.rules if not _READS.issuperset(rule.verbs)),
        ]
        for name, role in roles().items()
    ]


def _resources(rules: Iterable[Rule]) -> str:
    return ", ".join(dict.fromkeys(resource for rule in rules for resource in rule.resources))


def operators_table() -> Table:
    """Default condition for the installation of each operator."""
    return ["operator", "installed if"], [[operator.title, operator.installed_if] for operator in operators().values()]


# In the Go module of the embedded control plane; all tests use its API server.
_KUBERNETES: Final = re.compile(r"^\s*k8s\.io/kubernetes v([\d.]+)$", re.MULTILINE)


def versions_table() -> Table:
    """Versions that this version requires, is tested with and installs."""
    project = project_folder()
    declared = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pulumi = next(entry for entry in declared["optional-dependencies"]["deploy"] if entry.startswith("pulumi>"))
    module = (project / "gpu_tenancy/embedded/controlplane/go.mod").read_text(encoding="utf-8")
    (kubernetes,) = _KUBERNETES.findall(module)
    return ["of", "version", "which is"], [
        ("Python", f"`{declared['requires-python']}`", "required"),
        ("Pulumi, SDK and CLI", f"`{pulumi.removeprefix('pulumi')}`", "required"),
        ("Kubernetes", kubernetes, "tested"),
        *(
            (f"{operator.title}, chart `{name}`", chart.version, "installed; `operators` overrides it")
            for operator in operators().values()
            for name, chart in operator.charts.items()
        ),
    ]


# Generated tables by name in the page.
_TABLES: Final[Mapping[str, Callable[[], Table]]] = {
    "clouds": abilities,
    "needs": needs_table,
    "operators": operators_table,
    "roles": roles_table,
    "versions": versions_table,
}


def main() -> None:
    """Writes the pages into the project of the working directory."""
    project = project_folder()
    for path, text in pages(project).items():
        write_text(project / path, text)


def commands_page() -> str:
    """The command reference: every command with its arguments and options."""
    commands = dict(command_tree(typer.main.get_command(app)))
    index = [[f"[`{name}`](#{name.replace(' ', '-')})", _paragraphs(command)[0]] for name, command in commands.items()]
    lines = [head("commands"), "", *table(["command", "description"], index)]
    for name, command in commands.items():
        lines += ["", *_command(name, command)]
    return "\n".join(lines) + "\n"


def command_tree(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Commands of a group and its subgroups, with the words after `tenancy`."""
    if not isinstance(command, TyperGroup):
        yield name, command
        return
    for inner, below in command.commands.items():
        yield from command_tree(below, f"{name} {inner}".strip())


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption) and not parameter.hidden]
    yield from (f"## {name}", "")
    # The last paragraph is an example.
    *paragraphs, example = _paragraphs(command)
    yield from (line for paragraph in paragraphs for line in (escaped(paragraph), ""))
    usage = [_label(one) + ("..." if one.nargs != 1 else "") for one in arguments]
    usage = [text if one.required else f"[{text}]" for text, one in zip(usage, arguments, strict=True)]
    yield from ("```text", " ".join(["tenancy", name, *usage, *(["[OPTIONS]"] if options else [])]), "```")
    yield from ("", "Example:", "", "```sh", example, "```")
    if arguments:
        rows = [[f"`{_label(one)}`", _default(one), one.help or ""] for one in arguments]
        yield from ("", *table(["argument", "default", "description"], rows))
    if options:
        rows = [[_option(one), _default(one), one.help or ""] for one in options]
        yield from ("", *table(["option", "default", "description"], rows))


def _paragraphs(command: Any) -> list[str]:
    return [render(" ".join(part.split())).plain for part in command.help.split("\n\n")]


def _label(argument: TyperArgument) -> str:
    return (argument.metavar or (argument.name or "").upper()).strip("[].")


def _option(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    kind = getattr(option.type_descriptor.annotation, "__name__", "")
    placeholder = option.metavar or {"Path": "PATH", "int": "INTEGER", "float": "NUMBER"}.get(kind, "TEXT")
    return f"{names} `{placeholder}`" + (" (repeatable)" if option.multiple else "")


def _default(parameter: TyperArgument | TyperOption) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter, TyperOption) and parameter.is_flag:
        return "on" if parameter.default else "off"
    default = parameter.default
    return "none" if default in (None, False, "", ()) or default == [] else f"`{default}`"


if __name__ == "__main__":
    main()
