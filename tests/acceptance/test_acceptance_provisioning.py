"""Nodes that come only when the queue asks for them: the check and its words, on a real API server."""

from pathlib import Path
from typing import Any, Final

from acceptance_builders import declared, flat, in_waves, only, refusal
from builders import pool, stack, team
from removing import remove

from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster

QUEUED: Final = {"kind": "queued", "maxRun": "2d"}


def queued() -> tuple[KubernetesObject, ...]:
    cpu = pool("n2-standard-32", 3, labels={"node-type": "cpu"})
    h100 = pool("a3-highgpu-8g", {"min": 0, "max": 2}, capacity=QUEUED)
    return declared(
        stack(
            cluster={"cloud": "existing", "provider": "gcp"},
            pools={"cpu": cpu, "h100": h100},
            teams={"a": team(gpus={"h100": {"guaranteed": 8}})},
        )
    )


def test_the_check_its_words_and_the_queue_that_it_holds_are_accepted(cluster: Cluster, tmp_path: Path) -> None:
    waves = in_waves(queued())
    apply(cluster, waves, tmp_path / "inventory.json")
    found: Any = cluster.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", "a")
    remove(cluster, flat(waves))
    (held,) = found["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert held == {"name": "provision-h100", "onFlavors": ["h100"]}


def test_the_check_comes_before_the_queue_and_its_words_before_the_check() -> None:
    kinds = [manifest["kind"] for manifest in flat(in_waves(queued()))]
    assert kinds.index("ProvisioningRequestConfig") < kinds.index("AdmissionCheck") < kinds.index("ClusterQueue")


def test_a_parameter_longer_than_kueue_takes_is_refused(cluster: Cluster) -> None:
    config = only(queued(), "ProvisioningRequestConfig")
    config["spec"]["parameters"]["maxRunDurationSeconds"] = "1" * 256
    assert "Too long" in refusal(lambda: cluster.apply(config, dry_run=True))


def test_the_queue_asks_for_the_nodes_in_gkes_own_words() -> None:
    config = only(queued(), "ProvisioningRequestConfig")
    assert config["spec"] == {
        "provisioningClassName": "queued-provisioning.gke.io",
        "parameters": {"maxRunDurationSeconds": "172800"},
        "managedResources": ["nvidia.com/gpu"],
        "podSetUpdates": {
            "nodeSelector": [
                {
                    "key": "autoscaling.gke.io/provisioning-request",
                    "valueFromProvisioningClassDetail": "ResizeRequestName",
                }
            ]
        },
    }
