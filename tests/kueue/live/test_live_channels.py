"""Claims of channels, as NVIDIA's ComputeDomains have them, under the real Kueue: how it counts them, and where not.

The driver's controller makes the ResourceClaimTemplate of a ComputeDomain, which is played here:
https://github.com/NVIDIA/k8s-dra-driver-gpu/blob/main/templates/compute-domain-workload-claim-template.tmpl.yaml.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml
from builders import Data, job, pool, stack, team
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.references import Reference
from gpu_tenancy.console.cluster.waiting import is_true
from gpu_tenancy.console.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.console.offline.objects import kubernetes_objects
from gpu_tenancy.console.offline.render import render
from gpu_tenancy.console.offline.wire import Json, maps_at, text_at
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators.kueue import kueue_values
from gpu_tenancy.model.source import Source, to_config

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
RESOURCE: Final = "resource.k8s.io/v1"
DRIVER: Final = "compute-domain.nvidia.com"
CLASS: Final = "compute-domain-default-channel.nvidia.com"
CHANNELS: Final = "nvidia.com/imex-channel"
"""What Kueue counts channels as."""
TEAM: Final = "channels"
APPLIED: Final = (
    "Namespace", "ServiceAccount", "Topology", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue",
)  # fmt: skip
PATIENCE: Final = 60


def sections(**pool_keys: Any) -> Data:
    """Two machines for a job of two pods, each with a whole machine."""
    of_team = team(gpus={"h100": {"guaranteed": 16}}, training={"train": job(workers=2, gpus=8)})
    return stack(pools={"h100": pool(nodes=2, **pool_keys)}, teams={TEAM: of_team})


def mapped(declared: Data, *, excluded: bool = False) -> Data:
    """The same stack with Kueue's mapping of the channels' DeviceClass, and channels among what needs no quota."""
    values: Any = deepcopy(kueue_values(load(Source(declared))))
    configuration = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    mapping = {"name": CHANNELS, "deviceClassNames": [CLASS]}
    configuration["resources"]["deviceClassMappings"] = [mapping]
    if excluded:
        configuration["resources"]["excludeResourcePrefixes"].append(CHANNELS)
    text = yaml.safe_dump(configuration, sort_keys=False)
    own = {"install": "here", "values": {"managerConfig": {"controllerManagerConfigYaml": text}}}
    return {**declared, "operators": {"kueue": own}}


@dataclass(frozen=True)
class Tried:
    """A stack on the platform, and its job with a claim."""

    cluster: Cluster
    job: Manifest

    @property
    def workload(self) -> Any:
        found = self.cluster.list(KUEUE, "Workload", namespace=TEAM)
        return found[0] if found else {}

    def nodes(self) -> list[str]:
        pods = self.cluster.list("v1", "Pod", namespace=TEAM)
        return sorted(node for pod in pods if (node := text_at(pod, "spec", "nodeName")))

    def admitted(self) -> Any:
        """How Kueue admits the pods of the job."""
        self.cluster.wait_for(lambda: is_true(self.workload, "Admitted"), timeout=PATIENCE, what="the admission")
        return self.workload["status"]["admission"]["podSetAssignments"][0]

    def refused(self, reason: str) -> None:
        """Waits until Kueue gives a reason."""

        def said() -> bool:
            found = maps_at(self.workload, "status", "conditions")
            return any(reason in text_at(one, "message") for one in found if text_at(one, "status") == "False")

        self.cluster.wait_for(said, timeout=PATIENCE, what=f"the reason {reason}")


@pytest.fixture
def tried(queueing: Queueing, request: pytest.FixtureRequest) -> Iterator[Tried]:
    """The parameter: the stack, and whether its queue has quota for channels."""
    declared, covered = request.param
    loaded = load(Source(declared))
    queueing.run(loaded)
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack=TEAM, config=to_config(Source(declared))))
    objects: list[Any] = [deepcopy(dict(item.manifest)) for kind in APPLIED for item in made if item.kind == kind]
    if covered:
        for one in objects:
            if one["kind"] == "ClusterQueue":
                _cover(one)
    claim: Json = {"devices": {"requests": [{"name": "channel", "exactly": {"deviceClassName": CLASS}}]}}
    selector: Json = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    objects += [
        {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": {"selectors": selector}},
        *(_slice(node.name) for node in node_shapes(loaded)),
        {
            "apiVersion": RESOURCE,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "train", "namespace": TEAM},
            "spec": {"spec": claim},
        },
    ]
    (manifest,) = (deepcopy(dict(item.manifest)) for item in made if (item.kind, item.name) == ("Job", "train"))
    _claim(manifest)
    bring_nodes(queueing.cluster, node_shapes(loaded))
    for one in [*objects, manifest]:
        queueing.cluster.apply(one)
    yield Tried(queueing.cluster, manifest)
    for one in reversed([*objects, manifest]):
        queueing.cluster.delete(Reference.of(one), wait=PATIENCE)
    bring_nodes(queueing.cluster, ())
    queueing.run(load(Source(stack())))


def _cover(queue: Any) -> None:
    """Quota for channels, more than any job needs, in the flavor of the GPUs."""
    for group in queue["spec"]["resourceGroups"]:
        group["coveredResources"].append(CHANNELS)
        for flavor in group["flavors"]:
            flavor["resources"].append({"name": CHANNELS, "nominalQuota": "1000"})


def _claim(manifest: Any) -> None:
    """One channel for each pod of a job."""
    spec = manifest["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "channel", "resourceClaimTemplateName": "train"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "channel"}]


def _slice(node: str) -> Manifest:
    devices: Json = [{"name": "channel-0"}]
    published: Json = {"name": f"{node}-channels", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-channels"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": published, "devices": devices},
    }


@pytest.mark.parametrize("tried", [(sections(), False)], indirect=True)
def test_without_a_mapping_no_pod_with_a_channel_is_admitted(tried: Tried) -> None:
    tried.refused(f"DeviceClass {CLASS} is not mapped")


@pytest.mark.parametrize("tried", [(mapped(sections(), excluded=True), False)], indirect=True)
def test_channels_need_quota_even_if_kueue_is_to_exclude_them(tried: Tried) -> None:
    tried.refused(f"resource {CHANNELS} unavailable in ClusterQueue")


@pytest.mark.parametrize("tried", [(mapped(sections()), True)], indirect=True)
def test_with_a_mapping_channels_are_counted_and_all_pods_run(tried: Tried) -> None:
    usage = tried.admitted()["resourceUsage"]
    assert (usage[CHANNELS], usage["nvidia.com/gpu"]) == ("2", "16")
    tried.cluster.wait_for(lambda: tried.nodes() == ["h100-0", "h100-1"], timeout=PATIENCE, what="both pods on nodes")


@pytest.mark.parametrize("tried", [(mapped(sections(topology="node")), True)], indirect=True)
def test_pods_with_a_channel_are_placed_on_a_flavor_with_a_topology(tried: Tried) -> None:
    """GPUs of the device plugin and claims of channels alone are placed; GPUs by claims are not: keps/2941-DRA."""
    admitted = tried.admitted()
    assert admitted["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]
    assert admitted["resourceUsage"][CHANNELS] == "2"
    tried.cluster.wait_for(lambda: tried.nodes() == ["h100-0", "h100-1"], timeout=PATIENCE, what="both pods on nodes")
