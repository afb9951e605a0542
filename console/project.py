"""This project's stacks, read and rendered without Pulumi's engine."""

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

ROOT: Final = Path(__file__).parents[1]
"""Folder of `Pulumi.yaml`."""


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


def stack_names() -> list[str]:
    """The stacks that have a file."""
    return sorted(file.stem.removeprefix("Pulumi.") for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))


def read_stack(name: str) -> Source:
    """The source of a stack by its name.

    Raises:
        ConsoleError: there is no such stack.
        StackError: its file is no YAML or has no config.
    """
    file = ROOT / "stacks" / f"Pulumi.{name}.yaml"
    if not file.is_file():
        raise ConsoleError(f"there is no stack {name}", f"{nearest(name, stack_names())}; or write stacks/{file.name}")
    return read_file(file, f"stacks/{file.name}")


def preview(name: str) -> Preview:
    """Reads a stack, judges it, and runs the program on it.

    Raises:
        ConsoleError: there is no such stack.
        StackError: with everything that is wrong in it.
        RenderError: what it declares cannot be deployed.
    """
    source = read_stack(name)
    stack = load(source)
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))["name"]
    rendered = render(ROOT, project=project, stack=name, config=to_config(source))
    if found := problems(rendered):
        raise RenderError(found)
    return Preview(name, stack, rendered, kubernetes_objects(rendered))


def elsewhere(source: Source, kubeconfig: Path) -> Source:
    """The same stack on another cluster: what runs a stack on the embedded platform, wherever it is meant for."""
    cluster = {
        **{key: value for key, value in source.sections.get("cluster", {}).items() if key == "autoscaler"},
        "cloud": "existing",
        "kubeconfig": str(kubeconfig),
    }
    return replace(source, sections={**source.sections, "cluster": cluster})
