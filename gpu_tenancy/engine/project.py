"""A Pulumi project and its stacks, read and rendered without the Pulumi engine."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml
from pydantic.alias_generators import to_camel

from gpu_tenancy.base.characters import shortened
from gpu_tenancy.base.errors import ConsoleError, RenderError
from gpu_tenancy.base.problems import StackError, nearest
from gpu_tenancy.engine.checks import adoption_problems, problems
from gpu_tenancy.engine.embedded import CONTEXT, with_named_classes
from gpu_tenancy.engine.isolation import relaxed_collector
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.catalogue.needs import needs
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import OF_JOBS, there
from gpu_tenancy.model.source import Source, read_file, to_config
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of

_FILE: Final = "Pulumi.yaml"
"""The file that marks a folder as a Pulumi project."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Preview:
    """A stack with its rendered resources.

    Attributes:
        stack: as it was rendered.
        declared: as its file declares it; the same unless it was rendered for another cluster.
    """

    name: str
    stack: Stack
    rendered: Rendered
    objects: tuple[KubernetesObject, ...]
    declared: Stack


def project_folder(given: Path | None = None) -> Path:
    """The folder of `Pulumi.yaml`, the program and its stacks.

    Args:
        given: the folder that the user specified; None for the working directory or its nearest parent that has a
            `Pulumi.yaml`.

    Raises:
        ConsoleError: there is no Pulumi project.
    """
    if given:
        if not (given / _FILE).is_file():
            raise ConsoleError(
                f"{given}: no {_FILE} in this folder", "specify the folder of a Pulumi project with --project"
            )
        return given
    working = Path.cwd()
    for folder in (working, *working.parents):
        if (folder / _FILE).is_file():
            return folder
    raise ConsoleError(
        f"{working}: no {_FILE} in this folder or its parents",
        "change to a Pulumi project, specify one with --project, or create one with `tenancy stack init FOLDER`",
    )


def stack_names(project: Path | None = None) -> list[str]:
    """The names of a project's stacks, by their files in `stacks`, sorted.

    Raises:
        ConsoleError: the project does not exist or has no stacks.
    """
    project = project_folder(project)
    names = existing_stacks(project)
    if not names:
        raise ConsoleError(f"{project / 'stacks'}: no stack files", "add a file stacks/Pulumi.NAME.yaml")
    return names


def existing_stacks(project: Path) -> list[str]:
    """The same of a project that may have none, as after a change that removes its last stack.

    Raises:
        ConsoleError: a file has a name that is not one of a stack.
    """
    names = sorted(file.stem.removeprefix("Pulumi.") for file in (project / "stacks").glob("Pulumi.*.yaml"))
    for name in names:
        check_name(name)
    return names


def check_name(name: str) -> None:
    """Checks a stack's name, which is part of paths and of lines that scripts read.

    Raises:
        ConsoleError: Pulumi does not allow it: https://www.pulumi.com/docs/iac/concepts/stacks/#create-stack.
    """
    if not _NAME.fullmatch(name):
        fix = "use at most 100 letters, digits, '-', '_' and '.'; start with a letter, digit or '_'"
        raise ConsoleError(f"stack {shortened(name)} is not a valid name", fix)


def project_name(project: Path | None = None) -> str:
    """The name in a project's `Pulumi.yaml`.

    Raises:
        ConsoleError: the project does not exist.
    """
    file = project_folder(project) / _FILE
    return yaml.safe_load(file.read_text(encoding="utf-8"))["name"]


def stack_file(project: Path, name: str) -> Path:
    """Where a project has the file of a stack, whether or not it exists."""
    return project / "stacks" / f"Pulumi.{name}.yaml"


def read_stack(name: str, project: Path | None = None) -> Source:
    """The source of a stack by its name.

    Raises:
        ConsoleError: the stack does not exist, or its name is not valid.
        StackError: its file is not valid YAML or has no config.
    """
    project = project_folder(project)
    check_name(name)
    file = stack_file(project, name)
    if not file.is_file():
        known = nearest(name, existing_stacks(project))
        raise ConsoleError(f"stack {name} does not exist", f"{known}; or add stacks/{file.name}")
    return read_file(file, f"stacks/{file.name}")


def stack_of(team: str, folder: Path) -> str:
    """The only stack that has a team.

    Raises:
        ConsoleError: no stack or more than one has the team.
    """
    stacks = [name for name in stack_names(folder) if team in (read_stack(name, folder).sections.get("teams") or {})]
    if len(stacks) == 1:
        return stacks[0]
    if not stacks:
        raise ConsoleError(
            f"no stack has a team '{team}'", "specify a stack with --stack; `tenancy stack validate` lists all"
        )
    raise ConsoleError(f"{len(stacks)} stacks have a team '{team}'", f"specify --stack {' or --stack '.join(stacks)}")


@dataclass(frozen=True, slots=True)
class Declared:
    """A stack as its file declares it, valid and not rendered yet.

    Attributes:
        project: folder of `Pulumi.yaml`, the program and its stacks.
        project_name: name in its `Pulumi.yaml`.
    """

    name: str
    project: Path
    project_name: str
    source: Source
    stack: Stack


def declared(name: str, project: Path | None = None) -> Declared:
    """Reads and validates a stack.

    Args:
        name: of the stack.
        project: folder of `Pulumi.yaml`, the program and its stacks; None to search from the working directory.

    Raises:
        ConsoleError: the project or the stack does not exist.
        StackError: the stack file is invalid; it has every problem.
    """
    project = project_folder(project)
    named = project_name(project)
    source = read_stack(name, project)
    return Declared(name, project, named, source, load(source))


@relaxed_collector()
def preview(name: str, project: Path | None = None, *, onto: Path | None = None) -> Preview:
    """Reads and validates a stack, and runs the program on it.

    Raises:
        ConsoleError: the project or the stack does not exist.
        StackError: the stack file is invalid; it has every problem.
        RenderError: the rendered resources cannot be deployed.
    """
    return rendered(declared(name, project), onto=onto)


def rendered(read: Declared, *, onto: Path | None = None) -> Preview:
    """Runs the program on a stack.

    Raises:
        StackError: the stack is not valid on the other cluster, or adopts an object that it does not have.
        RenderError: the rendered resources cannot be deployed.
    """
    source, stack = whole(read.source), read.stack
    if onto:
        source = for_embedded(read.source, stack, onto)
        stack = load(source)
    program = render(read.project, project=read.project_name, stack=read.name, config=to_config(source))
    if invalid := problems(program):
        raise RenderError(invalid)
    # Operators are not deployed elsewhere: a name that is unknown there can be one of theirs.
    if not onto and (unknown := [*adoption_problems(source, stack, program)]):
        raise StackError(unknown)
    return Preview(read.name, stack, program, kubernetes_objects(program), read.stack)


def whole(source: Source) -> Source:
    """The same environment as one Pulumi stack: it has the same objects."""
    return replace(source, sections={key: section for key, section in source.sections.items() if key != "split"})


def for_embedded(source: Source, stack: Stack, kubeconfig: Path, adopt: Sequence[str] | None = None) -> Source:
    """The same stack for the embedded platform, with the taints, labels and GPU partitions of its own cloud's nodes.

    With this, a stack for any cloud runs there.
    """
    service = service_of(stack.cluster)
    like = {"provider": service} if service != "existing" else {}
    cluster = {
        "cloud": "existing",
        "kubeconfig": str(kubeconfig),
        "context": CONTEXT,
        "autoscaler": stack.cluster.grows,
        # Nodes of the embedded platform run no pods: nothing of it is missing there.
        "provides": list(needs()),
        "adopt": list(stack.cluster.adopt if adopt is None else adopt),
        **like,
    }
    # Operators on an existing cluster belong to its owner, so the stack does not install them. Rights and guards follow
    # from those that run jobs, also where no job of the stack needs them.
    environment = Environment(stack)
    operators = {to_camel(name): "installed" for name in OF_JOBS if there(environment, name)}
    sections = {**whole(source).sections, "cluster": cluster, "operators": operators}
    if "teams" in sections:
        sections["teams"] = with_named_classes(sections["teams"], stack)
    return replace(source, sections=sections)
