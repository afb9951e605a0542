"""The objects of jobs whose pods share memory between machines: a ComputeDomain, and claims of its channels."""

from typing import Any, cast

import pytest
from builders import Data, job, pool, stack, team
from components_builders import tenancy

CHANNEL = "compute-domain.nvidia.com/channel"
CLAIM = [{"name": "channel", "resourceClaimTemplateName": "fit-channel"}]
ROLES: dict[str, tuple[str, tuple[str | int, ...]]] = {
    "job": ("Job", ("template", "spec")),
    "pytorch": ("TrainingRuntime", ("template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec")),
    "jax": ("TrainingRuntime", ("template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec")),
    "mpi": ("TrainingRuntime", ("template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec")),
    "deepspeed": ("TrainingRuntime", ("template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec")),
    "jobset": ("JobSet", ("replicatedJobs", 0, "template", "spec", "template", "spec")),
    "ray": ("RayJob", ("rayClusterSpec", "workerGroupSpecs", 0, "template", "spec")),
    "leader-worker": ("LeaderWorkerSet", ("leaderWorkerTemplate", "workerTemplate", "spec")),
}
"""The object with the pods of each framework's workers, and their place in it."""


def sections(**of_job: Any) -> Data:
    training = {"fit": job(**{"workers": 2, "gpus": 4, "computeDomain": True, "flavor": "gb200", **of_job})}
    gpus = {"gb200": {"guaranteed": 8, "limit": 12}, "h100": {"guaranteed": 8}}
    return stack(
        pools={
            "cpu": pool("m7i.8xlarge", 3, labels={"node-type": "cpu"}),
            "gb200": pool("p6e-gb200.36xlarge", 4),
            "h100": pool(),
        },
        teams={"a": team(gpus=gpus, training=training), "b": team(gpus={"h100": {"guaranteed": 8}})},
    )


def pod_of(framework: str, **fields: Any) -> Any:
    kind, path = ROLES[framework]
    found = tenancy(sections(framework=framework, command=["/train"], **fields)).spec(kind)
    for key in path:
        found = found[key]
    return found


@pytest.mark.parametrize("framework", ROLES)
def test_each_pod_and_its_container_claim_a_channel(framework: str) -> None:
    pod = pod_of(framework)
    assert pod["resourceClaims"] == CLAIM
    (container,) = pod["containers"]
    assert container["resources"]["claims"] == [{"name": "channel"}]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize("framework", ROLES)
def test_without_a_domain_pods_claim_nothing(framework: str) -> None:
    pod = pod_of(framework, computeDomain=False)
    assert "resourceClaims" not in pod
    assert "claims" not in pod["containers"][0].get("resources", {})


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_a_train_job_leaves_the_resources_of_its_pods_to_its_runtime(framework: str) -> None:
    """Trainer 2.3 would merge requests and limits, and drop the claims."""
    made = tenancy(sections(framework=framework))
    assert "resourcesPerNode" not in made.spec("TrainJob")["trainer"]
    plain = tenancy(sections(framework=framework, computeDomain=False))
    assert plain.spec("TrainJob")["trainer"]["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_such_a_runtime_has_what_the_policy_packs_require_of_pods_with_gpus(framework: str) -> None:
    pod = pod_of(framework)
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-GB200"}
    assert [one["key"] for one in pod["tolerations"]] == ["nvidia.com/gpu"]
    assert [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]] == ["/dev/shm"]  # noqa: S108 - of the pod


def test_the_domain_comes_before_its_job_and_is_replaced_as_a_whole() -> None:
    made = tenancy(sections())
    domain = cast("Any", made.only("ComputeDomain").manifest)
    assert domain["apiVersion"] == "resource.nvidia.com/v1beta1"
    assert (domain["metadata"]["name"], domain["metadata"]["namespace"]) == ("fit", "a")
    assert domain["spec"] == {
        "numNodes": 0,
        "channel": {"resourceClaimTemplate": {"name": "fit-channel"}, "allocationMode": "Single"},
    }
    by_type = {one.type.rpartition(":")[2]: one for one in made.children("TrainingJob")}
    assert by_type["ComputeDomain"].urn in by_type["Job"].dependencies
    assert by_type["ComputeDomain"].replace_on_changes == ("spec",)


def test_every_flavor_of_a_queue_with_channels_has_quota_for_them_that_never_binds() -> None:
    made = tenancy(sections())
    (group,) = made.spec("ClusterQueue", "a")["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu", CHANNEL]
    quotas = {flavor["name"]: flavor["resources"][-1] for flavor in group["flavors"]}
    assert quotas == {
        "cpu": {"name": CHANNEL, "nominalQuota": "0"},
        "gb200": {"name": CHANNEL, "nominalQuota": "1M"},
        "h100": {"name": CHANNEL, "nominalQuota": "0"},
    }
    assert all([one["name"] for one in flavor["resources"]] == group["coveredResources"] for flavor in group["flavors"])


def test_queues_without_such_nodes_and_cohorts_have_none() -> None:
    made = tenancy(sections())
    others = [made.spec("ClusterQueue", "b"), *(cast("Any", one.manifest)["spec"] for one in made.every("Cohort"))]
    assert CHANNEL not in str(others)
