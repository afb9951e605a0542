"""Jobs with a ComputeDomain under the real Kueue and Kubeflow Trainer: channels are counted, and pods get theirs.

NVIDIA's driver is played by the embedded platform: `gpu_tenancy.console.embedded.channels`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from builders import Data, job, pool, stack, team
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.references import Reference
from gpu_tenancy.console.cluster.waiting import is_true
from gpu_tenancy.console.embedded.channels import DOMAINS, bring_channels, bring_templates
from gpu_tenancy.console.embedded.definitions.fetching import fetch
from gpu_tenancy.console.embedded.definitions.installing import install
from gpu_tenancy.console.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.console.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.console.offline.objects import kubernetes_objects
from gpu_tenancy.console.offline.render import render
from gpu_tenancy.console.offline.wire import maps_at, text_at
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, to_config

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
RESOURCE: Final = "resource.k8s.io/v1"
CHANNELS: Final = "compute-domain.nvidia.com/channel"
RACK: Final = "nvidia.com/gpu.clique"
TEAM: Final = "channels"
APPLIED: Final = (
    "Namespace", "ResourceQuota", "ServiceAccount", "Topology", "ResourceFlavor", "Cohort", "ClusterQueue",
    "LocalQueue", "ComputeDomain", "TrainingRuntime", "Job", "TrainJob",
)  # fmt: skip
PATIENCE: Final = 90


def sections() -> Data:
    """Two racks of two machines each, and two jobs that each need a rack; and nodes without channels."""
    gb200 = pool("p6e-gb200.36xlarge", 4, topology={"rack": RACK})
    of_job: Data = {"workers": 2, "gpus": 4, "computeDomain": True, "together": "rack", "flavor": "gb200"}
    of_team = team(
        gpus={"gb200": {"guaranteed": 16}},
        compute={"requests": {"cpu": 600, "memory": "4000Gi"}},
        training={"plain": job(**of_job), "torch": job(framework="pytorch", **of_job)},
    )
    cpu = pool("m7i.8xlarge", 1, labels={"node-type": "cpu"})
    return stack(pools={"cpu": cpu, "gb200": gb200}, teams={TEAM: of_team})


@dataclass(frozen=True)
class Running:
    """The stack on the platform."""

    cluster: Cluster

    def workload(self, owner: str) -> Any:
        """The Workload of a job."""
        found = self.cluster.list(KUEUE, "Workload", namespace=TEAM)
        return next((one for one in found if f"-{owner}-" in text_at(one, "metadata", "name")), {})

    def admitted(self, owner: str) -> Any:
        """How Kueue admits the pods of a job."""
        self.cluster.wait_for(
            lambda: is_true(self.workload(owner), "Admitted"), timeout=PATIENCE, what=f"the admission of {owner}"
        )
        (assigned,) = self.workload(owner)["status"]["admission"]["podSetAssignments"]
        return assigned

    def pods(self, name: str) -> list[Manifest]:
        return [
            one
            for one in self.cluster.list("v1", "Pod", namespace=TEAM)
            if text_at(one, "metadata", "name").startswith(f"{name}-")
        ]

    def racks(self, name: str) -> set[str]:
        """The racks of a job's pods, when all are on a node of their own."""
        nodes = {text_at(one, "metadata", "name"): one for one in self.cluster.list("v1", "Node")}

        def placed() -> list[str]:
            return sorted({node for one in self.pods(name) if (node := text_at(one, "spec", "nodeName"))})

        self.cluster.wait_for(lambda: len(placed()) == 2, timeout=PATIENCE, what=f"the pods of {name} on two nodes")
        return {text_at(nodes[node], "metadata", "labels", RACK) for node in placed()}

    def allocated(self, name: str) -> list[tuple[str, str]]:
        """Driver and device of the claims of a job's pods."""
        owners = {text_at(one, "metadata", "name") for one in self.pods(name)}
        claims = [
            one
            for one in self.cluster.list(RESOURCE, "ResourceClaim", namespace=TEAM)
            if owners & {text_at(owner, "name") for owner in maps_at(one, "metadata", "ownerReferences")}
        ]
        return [
            (text_at(device, "driver"), text_at(device, "device"))
            for one in claims
            for device in maps_at(one, "status", "allocation", "devices", "results")
        ]


@pytest.fixture(scope="module")
def running(queueing: Queueing) -> Iterator[Running]:
    declared, cluster = load(Source(sections())), queueing.cluster
    queueing.run(declared)
    definitions = fetch(needed(read_pins(), {DOMAINS}), queueing.platform.cache, queueing.report)
    install(cluster, definitions, queueing.report)
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack=TEAM, config=to_config(Source(sections()))))
    objects = [item.manifest for kind in APPLIED for item in made if item.kind == kind]
    bring_nodes(cluster, node_shapes(declared))
    bring_channels(cluster, declared)
    for one in objects:
        cluster.apply(one)
    bring_templates(cluster)
    yield Running(cluster)
    for one in reversed(objects):
        cluster.delete(Reference.of(one), wait=PATIENCE)
    bring_nodes(cluster, ())
    plain = load(Source(stack()))
    bring_channels(cluster, plain)
    for pin in definitions:
        name = pin.file.removesuffix(".yaml").partition("_")
        cluster.delete(Reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{name[2]}.{name[0]}"))
    queueing.run(plain)


@pytest.mark.parametrize("name", ["plain", "torch"])
def test_each_pod_of_a_declared_job_gets_a_channel_in_one_rack(running: Running, name: str) -> None:
    usage = running.admitted(name)["resourceUsage"]
    assert (usage[CHANNELS], usage["nvidia.com/gpu"]) == ("2", "8")
    assert running.admitted(name)["flavors"][CHANNELS] == "gb200"
    assert len(running.racks(name)) == 1
    running.cluster.wait_for(
        lambda: running.allocated(name) == [("compute-domain.nvidia.com", "channel-0")] * 2,
        timeout=PATIENCE,
        what="the channels of the pods",
    )
    (container,) = maps_at(running.pods(name)[0], "spec", "containers")
    assert maps_at(container, "resources", "claims") == [{"name": "channel"}]


def test_the_namespaces_quota_counts_the_gpus_and_not_the_channels(running: Running) -> None:
    for name in ("plain", "torch"):
        running.racks(name)
    quota: Any = running.cluster.get("v1", "ResourceQuota", "budget", TEAM)
    assert quota["status"]["used"]["requests.nvidia.com/gpu"] == "16"
    assert not [key for key in quota["status"]["used"] if "channel" in key]


def test_a_template_goes_with_its_domain(running: Running) -> None:
    domain: Manifest = {
        "apiVersion": f"{DOMAINS}/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "own", "namespace": TEAM},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "own-channel"}}},
    }
    running.cluster.apply(domain)
    bring_templates(running.cluster)
    assert running.cluster.exists(RESOURCE, "ResourceClaimTemplate", "own-channel", TEAM)
    running.cluster.delete(Reference.of(domain))
    running.cluster.wait_for(
        lambda: not running.cluster.exists(RESOURCE, "ResourceClaimTemplate", "own-channel", TEAM),
        timeout=PATIENCE,
        what="the deletion of the template",
    )
