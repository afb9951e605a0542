"""Stacks of a Pulumi project, rendered without the Pulumi engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.errors import RenderError
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.engine import relaxed_collector
from gpu_tenancy.engine.checks import adoption_problems, problems
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import EMBEDDED_CONTEXT
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import OF_JOBS, there
from gpu_tenancy.model.plan.storage import SnapshotPlan, class_name, snapshots
from gpu_tenancy.model.plan.storage import service_of as storage_service
from gpu_tenancy.model.project import Declared, declared
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.data import Storage

_OF_CREATED: Final = ("class", "keep", "snapshots")  # keys of storage that need a class of a created cluster


@dataclass(frozen=True, slots=True)
class Preview:
    """A stack with its rendered resources. `declared` differs from `stack` if it was rendered for another cluster."""

    name: str
    stack: Stack
    rendered: Rendered
    objects: tuple[KubernetesObject, ...]
    declared: Stack


@relaxed_collector()
def preview(name: str, project: Path | None = None, *, onto: Path | None = None) -> Preview:
    """Reads and validates a stack, and runs the program on it.

    Raises ConsoleError if the project or the stack does not exist, StackError with every problem of an invalid file,
    and RenderError if the rendered resources cannot be deployed.
    """
    return rendered(declared(name, project), onto=onto)


def rendered(read: Declared, *, onto: Path | None = None) -> Preview:
    """Runs the program on a stack; raises RenderError if the rendered resources cannot be deployed.

    Raises StackError if the stack is not valid on the other cluster, or adopts an object that it does not have.
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
    """The same environment as one Pulumi stack, with the same objects."""
    return replace(source, sections={key: section for key, section in source.sections.items() if key != "split"})


def for_embedded(source: Source, stack: Stack, kubeconfig: Path, adopt: Sequence[str] | None = None) -> Source:
    """The stack for the embedded platform, with taints, labels and GPU partitions of its own cloud's nodes."""
    service = service_of(stack.cluster)
    like = {"provider": service} if service != "existing" else {}
    if stack.cluster.kubernetes:
        like["version"] = stack.cluster.kubernetes
    cluster = {
        "cloud": "existing",
        "kubeconfig": str(kubeconfig),
        "context": EMBEDDED_CONTEXT,
        "autoscaler": stack.cluster.grows,
        # Nodes of the embedded platform run no pods: nothing of it is missing there.
        "provides": list(needs()),
        "adopt": [name for name in (stack.cluster.adopt if adopt is None else adopt) if "=" not in name],
        **like,
    }
    # Operators on an existing cluster belong to its owner, so the stack does not install them. Rights and guards follow
    # from those that run jobs, also where no job of the stack needs them.
    environment = Environment(stack)
    operators = {to_camel(name): "installed" for name in OF_JOBS if there(environment, name)}
    sections: dict[str, Any] = {**whole(source).sections, "cluster": cluster, "operators": operators}
    if "teams" in sections:
        sections["teams"] = {
            name: {**team, **_with_named_classes(team, stack, name)} for name, team in sections["teams"].items()
        }
    return replace(source, sections=sections)


def _with_named_classes(written: Mapping[str, Any], stack: Stack, team: str) -> dict[str, Any]:
    """A team's sections with classes by name: the embedded platform creates none, and its claims need none."""
    spec = stack.teams[team]
    taken = {planned.claim: planned for planned in snapshots(stack.cluster, team, spec)}
    changed: dict[str, Any] = {}
    if spec.storage:
        changed["storage"] = {
            name: _stored(written["storage"][name], stack, storage, taken.get(name))
            for name, storage in spec.storage.items()
        }
    if spec.notebooks:
        home = _stored(written["notebooks"]["home"], stack, spec.notebooks.home, None)
        changed["notebooks"] = {**written["notebooks"], "home": home}
    return changed


def _stored(
    written: Mapping[str, Any], stack: Stack, storage: Storage, taken: SnapshotPlan | None
) -> Mapping[str, Any]:
    service, made = storage_service(stack.cluster, storage)
    # Whether a class is made for storage that could not be had without it.
    if made is None or not (storage.kind or storage.mode == "shared" or not storage.keep or storage.snapshots):
        return written
    kept = {key: value for key, value in written.items() if key not in _OF_CREATED}
    if taken:
        kept["snapshots"] = {"schedule": taken.schedule, "keep": taken.keep, "class": taken.snapshot_class}
    return {**kept, "storageClass": class_name(service, storage)}
