"""A project's stacks, read and rendered without Pulumi's engine."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.objects import KubernetesObject, kubernetes_objects, problems
from gpu_tenancy.console.offline.render import Rendered, render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.problems import nearest
from gpu_tenancy.model.source import Source, read_file, to_config
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of

_FILE: Final = "Pulumi.yaml"
"""What makes a folder a Pulumi project."""


class RenderError(Exception):
    """What a stack declares cannot be deployed; each problem names object, value, rule and mend.

    It means a mistake in the program: what a stack may get wrong is said before it is rendered.
    """

    def __init__(self, found: tuple[str, ...]) -> None:
        self.problems = found
        super().__init__("\n".join(found))


@dataclass(frozen=True, slots=True)
class Preview:
    """A stack, and all that it will be."""

    name: str
    stack: Stack
    rendered: Rendered
    objects: tuple[KubernetesObject, ...]


def project_folder(given: Path | None = None) -> Path:
    """The folder of `Pulumi.yaml`, the program and its stacks.

    Args:
        given: by the user; left out, the working directory or the nearest above it that has a `Pulumi.yaml`.

    Raises:
        ConsoleError: there is no Pulumi project.
    """
    if given:
        if not (given / _FILE).is_file():
            raise ConsoleError(f"{given} has no {_FILE}", "specify the folder of a Pulumi project")
        return given
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / _FILE).is_file():
            return folder
    raise ConsoleError(
        f"no {_FILE} in {here} or in a folder above it",
        "change to a project, specify it with --project, or run `tenancy init FOLDER` to make one",
    )


def stack_names(project: Path | None = None) -> list[str]:
    """The stacks of a project that have a file.

    Raises:
        ConsoleError: there is no such project, or it has no stack.
    """
    project = project_folder(project)
    names = _stack_names(project)
    if not names:
        raise ConsoleError(f"{project / 'stacks'} has no stack", "add a file stacks/Pulumi.NAME.yaml")
    return names


def _stack_names(project: Path) -> list[str]:
    return sorted(file.stem.removeprefix("Pulumi.") for file in (project / "stacks").glob("Pulumi.*.yaml"))


def project_name(project: Path | None = None) -> str:
    """The name in a project's `Pulumi.yaml`.

    Raises:
        ConsoleError: there is no such project.
    """
    file = project_folder(project) / _FILE
    return yaml.safe_load(file.read_text(encoding="utf-8"))["name"]


def read_stack(name: str, project: Path | None = None) -> Source:
    """The source of a stack by its name.

    Raises:
        ConsoleError: there is no such stack.
        StackError: its file is no YAML or has no config.
    """
    project = project_folder(project)
    file = project / "stacks" / f"Pulumi.{name}.yaml"
    if not file.is_file():
        known = nearest(name, _stack_names(project))
        raise ConsoleError(f"there is no stack {name}", f"{known}; or write stacks/{file.name}")
    return read_file(file, f"stacks/{file.name}")


def preview(name: str, project: Path | None = None, *, onto: Path | None = None) -> Preview:
    """Reads a stack, judges it, and runs the program on it.

    Args:
        name: of the stack.
        project: folder of `Pulumi.yaml`, the program and its stacks; left out, found from the working directory.
        onto: kubeconfig of another cluster, to see what the stack would put there.

    Raises:
        ConsoleError: there is no such project or stack.
        StackError: with everything that is wrong in it.
        RenderError: what it declares cannot be deployed.
    """
    project = project_folder(project)
    called = project_name(project)
    source = read_stack(name, project)
    stack = load(source)
    if onto:
        source = elsewhere(source, stack, onto)
        stack = load(source)
    rendered = render(project, project=called, stack=name, config=to_config(source))
    if found := problems(rendered):
        raise RenderError(found)
    return Preview(name, stack, rendered, kubernetes_objects(rendered))


def elsewhere(source: Source, stack: Stack, kubeconfig: Path) -> Source:
    """The same stack on another cluster, with nodes like those that its cloud would have made.

    So a stack runs on the embedded platform, wherever it is meant for: taints, labels and partitions stay its cloud's.
    """
    service = service_of(stack.cluster)
    like = {"provider": service} if service != "existing" else {}
    cluster = {"cloud": "existing", "kubeconfig": str(kubeconfig), "autoscaler": stack.cluster.grows, **like}
    # Operators are as on any cluster that exists: its owner's.
    kept = {key: section for key, section in source.sections.items() if key != "operators"}
    return replace(source, sections={**kept, "cluster": cluster})
