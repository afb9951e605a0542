"""A project's stacks, read and rendered without Pulumi's engine."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from console.errors import ConsoleError
from console.offline.objects import KubernetesObject, kubernetes_objects, problems
from console.offline.render import Rendered, render
from model.load import load
from model.problems import nearest
from model.source import Source, read_file, to_config
from model.spec import Stack
from model.spec.cluster import service_of

ROOT: Final = Path(__file__).parents[1]
"""This project: the folder of `Pulumi.yaml`, the program and its stacks."""


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


def stack_names(project: Path = ROOT) -> list[str]:
    """The stacks that have a file."""
    return sorted(file.stem.removeprefix("Pulumi.") for file in (project / "stacks").glob("Pulumi.*.yaml"))


def project_name(project: Path = ROOT) -> str:
    """The name in a project's `Pulumi.yaml`.

    Raises:
        ConsoleError: the folder has none.
    """
    file = project / "Pulumi.yaml"
    if not file.is_file():
        raise ConsoleError(f"{project} has no Pulumi.yaml", "name the folder of a Pulumi project")
    return yaml.safe_load(file.read_text(encoding="utf-8"))["name"]


def read_stack(name: str, project: Path = ROOT) -> Source:
    """The source of a stack by its name.

    Raises:
        ConsoleError: there is no such stack.
        StackError: its file is no YAML or has no config.
    """
    file = project / "stacks" / f"Pulumi.{name}.yaml"
    if not file.is_file():
        known = nearest(name, stack_names(project))
        raise ConsoleError(f"there is no stack {name}", f"{known}; or write stacks/{file.name}")
    return read_file(file, f"stacks/{file.name}")


def preview(name: str, project: Path = ROOT, *, onto: Path | None = None) -> Preview:
    """Reads a stack, judges it, and runs the program on it.

    Args:
        name: of the stack.
        project: folder of `Pulumi.yaml`, the program and its stacks.
        onto: kubeconfig of another cluster, to see what the stack would put there.

    Raises:
        ConsoleError: there is no such project or stack.
        StackError: with everything that is wrong in it.
        RenderError: what it declares cannot be deployed.
    """
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
