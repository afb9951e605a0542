"""Guards where pods can claim channels of ComputeDomains: no claim gets a GPU that no quota counts."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from acceptance_guards import GPU, TOLERATION, Door, Person, guards_of, in_force, job, pod_of
from builders import Data, pool, stack, team
from builders import job as training

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

TEAM: Final = "guards-of-claims"
CHANNEL: Final = "compute-domain-default-channel.nvidia.com"
DRIVER: Final = "compute-domain.nvidia.com"
UNCOUNTED: Final = "which no queue counts; request GPUs under resources of the containers"
SEVERAL: Final = "claims more than its channel; remove adminAccess, allocationMode and count"


def sections() -> Data:
    """Machines with NVLink between them, and a job that shares memory between two of them."""
    return stack(
        pools={"cpu": pool("m7i.8xlarge", 2, labels={"node-type": "cpu"}), "gb200": pool("p6e-gb200.36xlarge", 2)},
        teams={
            TEAM: team(
                gpus={"gb200": {"guaranteed": 8}}, training={"fit": training(workers=2, gpus=4, computeDomain=True)}
            )
        },
        guards={"action": "deny", "exempt": ["system:serviceaccounts:guards-exempt"]},
    )


@pytest.fixture(scope="module")
def person(cluster: Cluster, door: Door) -> Iterator[Person]:
    with door.newcomer("carol", "cluster-admin", TEAM) as carol, in_force(cluster, guards_of(sections())):
        yield carol


def exact(device_class: str = CHANNEL, **fields: Any) -> Any:
    return {"name": "channel", "exactly": {"deviceClassName": device_class, **fields}}


def template(*requests: Any, version: str = "v1") -> Any:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "own", "namespace": TEAM},
        "spec": {"spec": {"devices": {"requests": list(requests)}}},
    }


def claim(*requests: Any) -> Any:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "own", "namespace": TEAM},
        "spec": {"devices": {"requests": list(requests)}},
    }


@pytest.mark.parametrize("make", [template, claim])
def test_a_channel_can_be_claimed(person: Person, make: Any) -> None:
    assert not person.refusal(make(exact()))
    assert not person.refusal(make(exact(allocationMode="ExactCount", count=1)))


@pytest.mark.parametrize("make", [template, claim])
@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([exact("gpu.nvidia.com")], f"claims devices of DeviceClass gpu.nvidia.com, {UNCOUNTED}"),
        ([exact("mig.nvidia.com")], f"claims devices of DeviceClass mig.nvidia.com, {UNCOUNTED}"),
        ([exact("compute-domain-daemon.nvidia.com")], "claims devices of DeviceClass compute-domain-daemon.nvidia.com"),
        ([exact(), {**exact("gpu.nvidia.com"), "name": "gpu"}], "claims devices of DeviceClass gpu.nvidia.com"),
        ([exact(adminAccess=True)], SEVERAL),
        ([exact(allocationMode="All")], SEVERAL),
        ([exact(count=2)], SEVERAL),
        ([{"name": "any", "firstAvailable": [{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]}],
         "claims one of several devices by firstAvailable, which no queue counts"),
        ([{"name": "any", "firstAvailable": [{"name": "channel", "deviceClassName": CHANNEL}]}],
         "claims one of several devices by firstAvailable, which no queue counts"),
        ([exact("gpu.nvidia.com", selectors=[{"cel": {"expression": f"device.driver == '{DRIVER}'"}}])],
         "claims devices of DeviceClass gpu.nvidia.com"),
    ],
    ids=["gpu", "mig", "daemon", "two", "admin", "all", "count", "first", "first-channel", "selector"],
)  # fmt: skip
def test_no_other_device_can_be_claimed(person: Person, make: Any, requests: list[Any], words: str) -> None:
    refusal = person.refusal(make(*requests))
    assert words in refusal or ("adminAccess" in str(requests) and "admin-access" in refusal)


def test_a_selector_cannot_widen_what_the_class_selects(person: Person) -> None:
    """The selectors of the class and of the request must both match, so a channel stays a channel."""
    assert not person.refusal(template(exact(selectors=[{"cel": {"expression": "true"}}])))


def test_a_template_cannot_become_one_for_gpus(cluster: Cluster, person: Person) -> None:
    cluster.apply(template(exact()))
    try:
        other = template(exact("gpu.nvidia.com"))
        assert person.patch_refusal(other, {"spec": other["spec"]})
    finally:
        cluster.delete(Reference.of(template(exact())))


@pytest.mark.parametrize("role", ["system:controller:resource-claim-controller", "system:kube-scheduler"])
def test_who_makes_claims_for_pods_everywhere_is_not_bound(person: Person, door: Door, role: str) -> None:
    assert person.refusal(claim(exact("gpu.nvidia.com")))
    with door.let_in(role.rpartition(":")[2], role) as maker:
        assert not maker.refusal(claim(exact("gpu.nvidia.com")))


def test_whom_the_stack_exempts_is_not_bound_in_its_namespaces(person: Person, door: Door) -> None:
    assert person
    with door.let_in("exempt", "cluster-admin", TEAM, home="guards-exempt") as free:
        door.cluster.wait_for(lambda: not free.refusal(claim(exact("gpu.nvidia.com"))), what="rights")


def test_a_pod_that_claims_a_channel_needs_a_queue_and_gpus(person: Person) -> None:
    claiming = {"resourceClaims": [{"name": "channel", "resourceClaimTemplateName": "own"}]}
    assert not person.refusal(job(TEAM, TEAM, pod_of(4, **claiming)))
    assert "requests GPUs without a queue" in person.refusal(job(TEAM, None, pod_of(4, **claiming)))
    alone = person.refusal(job(TEAM, TEAM, pod_of(0, tolerations=[TOLERATION], **claiming)))
    assert f"tolerates {GPU} but requests no GPU; remove the toleration" in alone
