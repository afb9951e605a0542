"""A platform with Kueue's manager, for tests of its decisions."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from builders import Data, stack
from removing import remove
from repository import ROOT

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.controllers import table
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import Pin, needed, read_pins
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.model.spec import Stack

QUEUES: Final = "kueue.x-k8s.io"  # Kueue's API group


def definitions_of(stack: Stack) -> tuple[Pin, ...]:
    return needed(read_pins(), {QUEUES}, table.rows_of(Tree(stack)))


@dataclass(frozen=True, slots=True)
class Queueing:
    """A platform and the controllers of one stack at a time, set by `run`."""

    platform: Platform
    cluster: Cluster
    report: Report

    @contextmanager
    def deployed(self, sections: Data, name: str, kinds: Iterable[str]) -> Generator[dict[str, Manifest]]:
        """Applies a stack's nodes and its objects of `kinds`, in this order; yields all its objects by kind."""
        declared = load(Source(sections))
        self.run(declared)
        made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack=name, config=to_config(Source(sections))))
        objects: list[Manifest] = [dict(item.manifest) for kind in kinds for item in made if item.kind == kind]
        bring_nodes(self.cluster, node_shapes(declared))
        for manifest in objects:
            self.cluster.apply(manifest)
        yield {item.kind: dict(item.manifest) for item in made}
        remove(self.cluster, objects)
        bring_nodes(self.cluster, ())
        self.run(load(Source(stack())))

    def run(self, stack: Stack) -> None:
        """Runs the controllers of a stack's operators, with its configuration; restarts them if it differs.

        Objects of the stack are not applied: neither its queues nor its guards.
        """
        rows = table.rows_of(Tree(stack))
        self.platform.install(fetch(definitions_of(stack), self.platform.cache, self.report), self.report)
        found, unavailable = table.find(rows, self.platform.cache, self.report)
        assert unavailable == {}
        wanted = table.wanted(stack, found)
        self.platform.controllers.bring(self.cluster, wanted, self.platform.cache, self.report)
