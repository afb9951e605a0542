"""Jobs with a ComputeDomain under the real Kueue and Kubeflow Trainer: Kueue counts channels, and pods get them.

The embedded platform acts for NVIDIA's driver: `gpu_tenancy.embedded.drivers`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest
import yaml
from builders import Data, job, pool, stack, team
from queueing import Queueing, a_job
from removing import remove
from repository import ROOT

from gpu_tenancy.base.json import map_at, maps_at, text_at
from gpu_tenancy.cluster.demand import demand, target_of
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.cluster.references import kinds_claimed, with_channels
from gpu_tenancy.cluster.workloads import PodSet
from gpu_tenancy.embedded.definitions import fetch, install
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.drivers import bring_channels, bring_templates
from gpu_tenancy.explain import fit
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import COMPUTE_DOMAIN, COMPUTE_DOMAINS
from gpu_tenancy.model.source import Source

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
RESOURCE: Final = "resource.k8s.io/v1"
CHANNELS: Final = "compute-domain.nvidia.com/channel"
RACK: Final = "nvidia.com/gpu.clique"
TEAM: Final = "channels"
APPLIED: Final = (
    "Namespace", "ResourceQuota", "ServiceAccount", "Topology", "ResourceFlavor", "Cohort", "ClusterQueue",
    "LocalQueue",
)  # fmt: skip
JOBS: Final = ("ComputeDomain", "TrainingRuntime", "Job", "TrainJob")
PATIENCE: Final = 90


def sections() -> Data:
    """Three racks of two machines each, and two jobs that each need a rack; and nodes without channels."""
    gb200 = pool("p6e-gb200.36xlarge", 6, topology={"rack": RACK})
    of_job: Data = {"workers": 2, "gpus": 4, "computeDomain": True, "together": "rack", "flavor": "gb200"}
    of_team = team(
        gpus={"gb200": {"guaranteed": 24}},
        compute={"requests": {"cpu": 900, "memory": "6000Gi"}},
        training={"plain": job(**of_job), "torch": job(framework="pytorch", **of_job)},
    )
    cpu = pool("m7i.8xlarge", 1, labels={"node-type": "cpu"})
    return stack(pools={"cpu": cpu, "gb200": gb200}, teams={TEAM: of_team})


@dataclass(frozen=True)
class Running:
    cluster: Cluster

    def workload(self, owner: str) -> Any:
        found = self.cluster.list(KUEUE, "Workload", namespace=TEAM)
        return next((one for one in found if f"-{owner}-" in text_at(one, "metadata", "name")), None) or {}

    def admitted(self, owner: str) -> Any:
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
        """The racks of a job's pods, when each is on its own node."""
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
    cluster = queueing.cluster
    definitions = fetch(needed(read_pins(), {COMPUTE_DOMAINS}), queueing.platform.cache, queueing.report)
    install(cluster, definitions, queueing.platform.cache, queueing.report)
    with queueing.deployed(sections(), TEAM, APPLIED) as made:
        bring_channels(cluster, load(Source(sections())))
        jobs = [one for kind in JOBS for one in made if one["kind"] == kind]
        for one in jobs:
            cluster.apply(one)
        bring_templates(cluster)
        yield Running(cluster)
        remove(cluster, jobs)
    bring_channels(cluster, load(Source(stack())))
    for pin in definitions:
        group, _, plural = pin.file.removesuffix(".yaml").partition("_")
        cluster.delete(Reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{group}"))


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


def test_the_namespace_quota_counts_gpus_and_no_channels(running: Running) -> None:
    for name in ("plain", "torch"):
        running.racks(name)
    read = partial(running.cluster.get, "v1", "ResourceQuota", "budget", TEAM)
    running.cluster.wait_for(
        lambda: text_at(read() or {}, "status", "used", "requests.nvidia.com/gpu") == "16",
        timeout=PATIENCE,
        what="the quota to count the GPUs",
    )
    assert not [key for key in map_at(read() or {}, "status", "used") if "channel" in key]


def asked(running: Running, manifest: Any) -> tuple[fit.Fitting, Why]:
    """The result of `fit` before a job is submitted, and of `why` afterwards when the reason is known."""
    cluster = running.cluster
    demanded = demand(manifest, TEAM)
    state = read(cluster, fit.KINDS, TEAM, only=fit.OWN).joined(read(cluster, (), TEAM, only=kinds_claimed([demanded])))
    fitting = fit.judge(state, TEAM, demanded)
    cluster.create(manifest)
    name = manifest["metadata"]["name"]
    try:

        def known() -> Why | None:
            found = read(cluster, KINDS, TEAM, only=OWN)
            answer = why(target_of(cluster.get("batch/v1", "Job", name, TEAM) or {}, found), found)
            return answer if "claim" in answer.reason or "channel" in answer.reason else None

        return fitting, cluster.wait_for(known, timeout=PATIENCE, what=f"the reason why {name} waits")
    finally:
        cluster.delete(Reference("batch/v1", "Job", name, TEAM), wait=PATIENCE)


def own_job(name: str, template: str) -> Any:
    """A user's job of one pod with one GPU, which claims a channel."""
    found: Any = a_job(name, TEAM, {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"})
    pod = found["spec"]["template"]
    pod["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}}
    pod["spec"]["resourceClaims"] = [{"name": "channel", "resourceClaimTemplateName": template}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "channel"}]
    return found


def test_fit_and_why_name_a_template_that_does_not_exist(running: Running) -> None:
    running.racks("plain")
    fitting, answer = asked(running, own_job("alone", "missing"))
    assert fitting.verdict == "never"
    assert "its pods claim devices by ResourceClaimTemplate missing, which does not exist" in answer.reason


def test_kueue_admits_no_claim_of_gpus(running: Running) -> None:
    """The guards refuse the template; without them, Kueue does not admit the pods."""
    gpus: Manifest = {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": TEAM},
        "spec": {
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
        },
    }
    running.cluster.apply(gpus)
    try:
        fitting, answer = asked(running, own_job("greedy", "gpus"))
    finally:
        running.cluster.delete(Reference.of(gpus))
    assert fitting.verdict == "never"
    assert "DeviceClass gpu.nvidia.com" in answer.reason


def test_fit_counts_the_channels_that_kueue_counts(running: Running) -> None:
    usage = running.admitted("plain")["resourceUsage"]
    manifest = running.cluster.get("batch/v1", "Job", "plain", TEAM) or {}
    state = read(running.cluster, ("ResourceClaimTemplate",), TEAM)
    (template,) = demand(manifest, TEAM).templates
    (counted,) = with_channels(
        state, TEAM, [PodSet(template.name, template.count, requests(template.spec), template.spec)]
    )
    assert {name: str(amount) for name, amount in counted.total.items() if "/" in name} == {
        name: amount for name, amount in usage.items() if "/" in name
    }


def test_a_team_submits_the_job_of_the_page(running: Running) -> None:
    """The objects of docs/operators.md, in another namespace: the queue admits them, and they run in one rack."""
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    blocks = [list(yaml.safe_load_all(text)) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (objects,) = (block for block in blocks if block[0].get("kind") == "ComputeDomain")
    for one in objects:
        one["metadata"] |= {"namespace": TEAM}
        if one["kind"] == "Job":
            one["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": TEAM}}
        running.cluster.create(one)
    bring_templates(running.cluster)
    try:
        assert len(running.racks("own")) == 1
        running.cluster.wait_for(lambda: len(running.allocated("own")) == 2, timeout=PATIENCE, what="both channels")
        assert running.admitted("own")["resourceUsage"][CHANNELS] == "2"
    finally:
        for one in reversed(objects):
            running.cluster.delete(Reference.of(one), wait=PATIENCE)


def test_a_claim_template_is_deleted_with_its_domain(running: Running) -> None:
    domain: Manifest = {
        "apiVersion": COMPUTE_DOMAIN[0],
        "kind": "ComputeDomain",
        "metadata": {"name": "gone", "namespace": TEAM},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "gone-channel"}}},
    }
    running.cluster.apply(domain)
    bring_templates(running.cluster)
    assert running.cluster.exists(RESOURCE, "ResourceClaimTemplate", "gone-channel", TEAM)
    running.cluster.delete(Reference.of(domain))
    running.cluster.wait_for(
        lambda: not running.cluster.exists(RESOURCE, "ResourceClaimTemplate", "gone-channel", TEAM),
        timeout=PATIENCE,
        what="the deletion of the template",
    )
