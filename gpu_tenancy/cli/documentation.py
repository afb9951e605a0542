"""The pages of docs/ that are generated: the stack and command references, and tables of clouds, people and operators.

`make docs`, or `python -m gpu_tenancy.cli.documentation`, writes them.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer
from rich.markup import render
from typer.core import TyperArgument, TyperGroup, TyperOption

from gpu_tenancy.base.output import write_text
from gpu_tenancy.cli.catalogue import abilities
from gpu_tenancy.cli.main import app
from gpu_tenancy.cli.stack_reference import Reference, escaped, head, stack_page, table
from gpu_tenancy.model.catalogue.access import Rule, roles
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.preflight import Need, needs
from gpu_tenancy.model.project import project_folder, read_stack, stack_names
from gpu_tenancy.model.schema import file_schema

COMMANDS: Final = Path("docs/commands.md")
STACK: Final = Path("docs/stack-reference.md")
CLOUDS: Final = Path("docs/clouds.md")
PEOPLE: Final = Path("docs/people.md")
OPERATORS: Final = Path("docs/operators.md")

_TABLE: Final = re.compile(
    r"(?P<start><!-- table of (?P<name>\w+): written by `make docs` -->\n).*?(?=<!-- end of the table -->)", re.DOTALL
)


def pages(project: Path) -> dict[Path, str]:
    """The generated pages: text by path, relative to the project."""
    stacks = [read_stack(name, project).sections for name in stack_names(project)]
    with_tables = {path: (project / path).read_text(encoding="utf-8") for path in (CLOUDS, PEOPLE, OPERATORS)}
    return {
        COMMANDS: commands_page(),
        STACK: stack_page(Reference(file_schema(), stacks)),
        **{
            path: _TABLE.sub(lambda match: match["start"] + _TABLES[match["name"]](), page)
            for path, page in with_tables.items()
        },
    }


def _block(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table between empty lines."""
    return "\n".join(["", *table(headings, rows), "", ""])


def clouds_table() -> str:
    """What each cloud supports, as a Markdown table."""
    return _block(*abilities())


def needs_table() -> str:
    """What objects of a stack need, and what provides it on each cloud, as a Markdown table."""
    names = {name: rules.title for name, rules in clouds().items() if rules.package}
    headings = ("in `provides`", "needed by", *names.values(), "means")
    rows = [
        (f"`{name}`", need.of, *(_provider(need, cloud) for cloud in names), need.means)
        for name, need in needs().items()
    ]
    return _block(headings, rows)


def _provider(need: Need, cloud: str) -> str:
    if cloud in need.cloud:
        return need.cloud[cloud]
    return f"with `create`: {need.made[cloud].by}" if cloud in need.made else "declare it"


_READS: Final = frozenset({"get", "list", "watch"})


def roles_table() -> str:
    """What each role of people adds to the one that it includes, as a Markdown table."""
    rows = [
        (
            f"`{name}`",
            "the cluster" if role.scope == "cluster" else "a team",
            f"`{role.includes}`" if role.includes else "",
            _resources(rule for rule in role.rules if _READS.issuperset(rule.verbs)),
            _resources(rule for rule in role.rules if not _READS.issuperset(rule.verbs)),
        )
        for name, role in roles().items()
    ]
    return _block(("role", "in", "includes", "reads", "creates, changes, deletes"), rows)


def _resources(rules: Iterable[Rule]) -> str:
    return ", ".join(dict.fromkeys(resource for rule in rules for resource in rule.resources))


def operators_table() -> str:
    """When each operator is installed by default, as a Markdown table."""
    rows = [(operator.title, operator.installed_if) for operator in operators().values()]
    return _block(("operator", "installed if"), rows)


_KUBERNETES: Final = re.compile(r"^\s*k8s\.io/kubernetes v([\d.]+)$", re.MULTILINE)
"""In the Go module of the embedded control plane, with whose API server everything is tested."""


def versions_table() -> str:
    """What this version requires, is tested with and installs, as a Markdown table."""
    project = project_folder()
    declared = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pulumi = next(entry for entry in declared["optional-dependencies"]["deploy"] if entry.startswith("pulumi>"))
    module = (project / "gpu_tenancy/embedded/controlplane/go.mod").read_text(encoding="utf-8")
    (kubernetes,) = _KUBERNETES.findall(module)
    rows = [
        ("Python", f"`{declared['requires-python']}`", "required"),
        ("Pulumi, SDK and CLI", f"`{pulumi.removeprefix('pulumi')}`", "required"),
        ("Kubernetes", kubernetes, "tested"),
        *(
            (f"{operator.title}, chart `{name}`", chart.version, "installed; `operators` overrides it")
            for operator in operators().values()
            for name, chart in operator.charts.items()
        ),
    ]
    return _block(("of", "version", "which is"), rows)


_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "clouds": clouds_table,
    "needs": needs_table,
    "operators": operators_table,
    "roles": roles_table,
    "versions": versions_table,
}
"""The generated tables, by their name in the page."""


def main() -> None:
    """Writes the pages into the project of the working directory."""
    project = project_folder()
    for path, text in pages(project).items():
        write_text(project / path, text)


def commands_page() -> str:
    """The command reference: every command with its arguments and options."""
    commands = dict(command_tree(typer.main.get_command(app)))
    index = [[f"[`{name}`](#{name.replace(' ', '-')})", _summary(command.help)] for name, command in commands.items()]
    lines = [head("commands"), "", *table(["command", "description"], index)]
    for name, command in commands.items():
        lines += ["", *_command(name, command)]
    return "\n".join(lines) + "\n"


def command_tree(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of a group and of the groups in it, each with the words that follow `tenancy`."""
    if not isinstance(command, TyperGroup):
        yield name, command
        return
    for inner, below in command.commands.items():
        yield from command_tree(below, f"{name} {inner}".strip())


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption) and not parameter.hidden]
    yield from (f"## {name}", "")
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    example = [part for part in paragraphs if part.startswith("[dim]")]
    yield from (line for part in paragraphs if part not in example for line in (escaped(_unmarked(part)), ""))
    yield "```text"
    yield " ".join(
        ["tenancy", name, *(_usage(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])]
    )
    yield "```"
    if example:
        yield from ("", "Example:", "", "```sh", *(_unmarked(part) for part in example), "```")
    if arguments:
        rows = [[f"`{_label(argument)}`", _argument_default(argument), argument.help or ""] for argument in arguments]
        yield from ("", *table(["argument", "default", "description"], rows))
    if options:
        rows = [[_option(option), _option_default(option), option.help or ""] for option in options]
        yield from ("", *table(["option", "default", "description"], rows))


def _summary(text: str | None) -> str:
    return _unmarked(" ".join((text or "").split("\n\n")[0].split()))


def _unmarked(text: str) -> str:
    """Text without rich's markup."""
    return render(text).plain


def _label(argument: TyperArgument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _usage(argument: TyperArgument) -> str:
    label = _label(argument) + ("..." if argument.nargs != 1 else "")
    return label if argument.required else f"[{label}]"


def _argument_default(argument: TyperArgument) -> str:
    return "required" if argument.required else _shown(argument.default)


def _option(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    return f"{names} `{option.metavar or _placeholder(option)}`" + (" (repeatable)" if option.multiple else "")


def _placeholder(option: TyperOption) -> str:
    kind = getattr(option.type_descriptor.annotation, "__name__", "")
    return {"Path": "PATH", "int": "INTEGER", "float": "NUMBER"}.get(kind, "TEXT")


def _option_default(option: TyperOption) -> str:
    if option.is_flag:
        return "on" if option.default else "off"
    return "required" if option.required else _shown(option.default)


def _shown(default: Any) -> str:
    return "none" if default in (None, False, "", ()) or default == [] else f"`{default}`"


if __name__ == "__main__":
    main()
