"""`tenancy up`: a stack on the embedded platform, from its file to the proof that its promises hold."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from gpu_tenancy.console.cluster.apply import apply
from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.embedded.definitions.fetching import fetch
from gpu_tenancy.console.embedded.definitions.installing import install
from gpu_tenancy.console.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.console.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.console.embedded.platform import Platform
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.objects import KubernetesObject, waves
from gpu_tenancy.console.progress import Report
from gpu_tenancy.console.project import Preview, preview
from gpu_tenancy.console.proofs import Proof, prove
from gpu_tenancy.console.pulumi_cli import PulumiCli, find_pulumi
from gpu_tenancy.console.summary import Summary, settle, summarise
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.shares import Tree

Engine: TypeAlias = Literal["pulumi", "server-side apply"]

ACTIONS: Final = ("created", "changed", "replaced", "pruned")
"""What may become of an object, beside nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `up` did, and what there is now.

    Attributes:
        engine: who applied the objects.
        changes: how many objects were created, changed, replaced, pruned; what is 0 is left out.
        nodes: the same of the platform's nodes.
        objects: how many the stack has.
        kubeconfig: of the platform.
    """

    preview: Preview
    plan: Plan
    engine: Engine
    changes: Mapping[str, int]
    nodes: Mapping[str, int]
    objects: int
    kubeconfig: Path
    server: str
    summary: Summary
    proofs: tuple[Proof, ...]

    @property
    def holds(self) -> bool:
        """Whether every promise held."""
        return all(proof.holds for proof in self.proofs) and not self.summary.astray


def up(
    name: str,
    platform: Platform,
    report: Report,
    project: Path,
    *,
    foreshow: Callable[[Preview], None] = lambda _: None,
) -> Outcome:
    """Brings a stack of a project up on a platform, and puts its promises to the test.

    Nothing is touched where the stack is wrong.

    Args:
        name: of the stack.
        platform: where it is brought up.
        report: told of each stage.
        project: folder of `Pulumi.yaml`, the program and its stacks.
        foreshow: called with the stack's preview where the platform's programs are not there yet, so that there is
            something to read while they are downloaded or built.

    Raises:
        StackError: with everything that is wrong in the stack.
        RenderError: what it declares cannot be deployed.
        ConsoleError: the platform does not come up, or refuses an object.
    """
    report(f"reading stack {name}")
    found = preview(name, project, onto=platform.kubeconfig)
    planned, tree = plan(found.stack), Tree(found.stack)
    _same_stack(platform, name)
    if not platform.prepared:
        foreshow(found)
    # First whatever needs a network, in seconds: nobody should learn after minutes of building that there is none.
    definitions = fetch(needed(read_pins(), api_groups(found.objects)), platform.cache, report)
    platform.up(report)
    with platform.cluster() as cluster:
        install(cluster, definitions, report)
        report("making the pools' nodes")
        nodes = bring_nodes(cluster, node_shapes(found.stack))
        engine = _engine(platform, name)
        report(f"bringing up {len(found.objects)} objects by {engine}")
        changes = _apply(cluster, platform, found, engine, project)
        report("waiting for controllers and scheduler")
        settle(cluster, planned)
        report("putting the promises to the test")
        proofs = prove(cluster, planned, tree)
        summary = summarise(cluster, planned, tree)
        return Outcome(
            preview=found,
            plan=planned,
            engine=engine,
            changes=_listed(changes),
            nodes=_listed(nodes),
            objects=len(found.objects),
            kubeconfig=platform.kubeconfig,
            server=cluster.server,
            summary=summary,
            proofs=proofs,
        )


def api_groups(objects: Iterable[KubernetesObject]) -> set[str]:
    """The API groups of a stack's objects; the core group is empty."""
    return {str(found.manifest["apiVersion"]).rpartition("/")[0] for found in objects}


def _listed(counts: Counter[str]) -> dict[str, int]:
    return {action: counts[action] for action in ACTIONS if counts[action]}


def _same_stack(platform: Platform, name: str) -> None:
    carried = platform.carried()
    if carried and carried[0] != name:
        raise ConsoleError(f"the embedded platform carries stack {carried[0]}, not {name}", "run `tenancy down` first")


def _engine(platform: Platform, name: str) -> Engine:
    """The engine of the first `up`, which alone knows what is there; at first Pulumi, where there is one."""
    carried = platform.carried()
    engine: Engine = "pulumi" if (carried[1] == "pulumi" if carried else find_pulumi()) else "server-side apply"
    platform.carry(name, engine)
    return engine


def _apply(cluster: Cluster, platform: Platform, found: Preview, engine: Engine, project: Path) -> Counter[str]:
    if engine == "pulumi":
        program = find_pulumi()
        if program is None:
            raise ConsoleError(
                "this platform was brought up by Pulumi, which is no longer on the PATH",
                "put it there, or run `tenancy down` first",
            )
        cli = PulumiCli(program, platform.places.home / "pulumi", project)
        return Counter(cli.up(found.name, platform.kubeconfig))
    manifests = [[dict(each.manifest) for each in wave] for wave in waves(found.objects)]
    changes = apply(cluster, manifests, platform.places.home / "applied.json")
    return Counter(change.action for change in changes)
