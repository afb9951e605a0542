"""The pages of docs/ that are generated: the stack and command references, and tables of clouds, people and operators.

`make docs`, or `python -m gpu_tenancy.cli.documentation`, writes them.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from gpu_tenancy.base.writing import write_text
from gpu_tenancy.cli.catalogue import abilities
from gpu_tenancy.cli.command_reference import commands_page
from gpu_tenancy.cli.markdown import table
from gpu_tenancy.cli.stack_reference import Reference, stack_page
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.preflight import Need, needs
from gpu_tenancy.model.catalogue.roles import Rule, roles
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


if __name__ == "__main__":
    main()
