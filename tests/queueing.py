"""A platform with Kueue's manager, for tests of its decisions."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from builders import GPU, Data, stack
from removing import remove
from repository import ROOT

from gpu_tenancy.base.json import Json, text_at
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


def a_job(name: str, namespace: str, amounts: Mapping[str, Json], tolerated: str = GPU, **labels: str) -> Manifest:
    """A Job whose pod has these amounts and tolerates a taint, in the queue with the namespace's name."""
    resources: Json = {"requests": dict(amounts), "limits": dict(amounts)}
    container: Json = {"name": "main", "image": "registry.example.com/job:1", "resources": resources}
    tolerations: Json = [{"key": tolerated, "operator": "Exists"}]
    pod: Json = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    queued: Json = {"kueue.x-k8s.io/queue-name": namespace, **labels}
    metadata: Json = {"name": name, "namespace": namespace, "labels": queued}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def workload_of(cluster: Cluster, job: str, namespace: str) -> Manifest:
    """The Workload of a Job; empty if there is none yet."""
    found = cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=namespace)
    of_job = (one for one in found if text_at(one, "metadata", "name").startswith(f"job-{job}-"))
    return next(of_job, dict[str, Json]())


@dataclass(frozen=True, slots=True)
class Queueing:
    """A platform and the controllers of one stack at a time, set by `run`."""

    platform: Platform
    cluster: Cluster
    report: Report

    @contextmanager
    def deployed(self, sections: Data, name: str, kinds: Iterable[str]) -> Generator[list[Manifest]]:
        """Applies a stack's nodes and its objects of `kinds`, in this order; yields all its objects."""
        declared = load(Source(sections))
        self.run(declared)
        made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack=name, config=to_config(Source(sections))))
        every = [dict(item.manifest) for item in made]
        objects = [one for kind in kinds for one in every if one["kind"] == kind]
        bring_nodes(self.cluster, node_shapes(declared))
        for manifest in objects:
            self.cluster.apply(manifest)
        yield every
        remove(self.cluster, objects)
        bring_nodes(self.cluster, ())
        self.run(load(Source(stack())))

    def run(self, stack: Stack) -> None:
        """Runs the controllers of a stack's operators with its configuration; applies neither queues nor guards."""
        rows = table.rows_of(Tree(stack))
        self.platform.install(fetch(definitions_of(stack), self.platform.cache, self.report), self.report)
        found, unavailable = table.find(rows, self.platform.cache, self.report)
        assert unavailable == {}
        self.platform.controllers.bring(self.cluster, table.wanted(stack, found), self.platform.cache, self.report)
