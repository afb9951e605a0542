"""What `fit`, `why` and `usage` say of pods that claim channels of ComputeDomains, and of channels themselves."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from live_builders import (
    GPU,
    Data,
    cluster_queue,
    condition,
    flavor,
    job,
    local_queue,
    meta,
    node,
    only_gpus,
    owned,
    pod,
    state,
    workload,
)

from gpu_tenancy.base.amounts import amounts_text, leading_text
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.answers import Check
from gpu_tenancy.cluster.channels import kinds_claimed
from gpu_tenancy.cluster.demand import demand, read_demands
from gpu_tenancy.cluster.target import target_of
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.usage import measure
from gpu_tenancy.explain.why import why

TEAM: Final = "research"
CHANNEL: Final = "compute-domain.nvidia.com/channel"
CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
TEMPLATE: Final = "ResourceClaimTemplate train-channel"
DRIVER: Final = "NVIDIA's DRA driver makes it for a ComputeDomain"
CREATE: Final = "create a ComputeDomain with spec.channel.resourceClaimTemplate.name: train-channel"
REQUEST: Final = "request GPUs under resources of the containers"
DOMAIN: Final[Data] = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": meta("train", TEAM),
    "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "train-channel"}}},
}


def claiming(**claim: str) -> Data:
    found = only_gpus(job())
    found["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "channel", **(claim or {"resourceClaimTemplateName": "train-channel"})}
    ]
    return found


def template(device_class: str = CHANNEL_CLASS) -> Data:
    requests = [{"name": "channel", "exactly": {"deviceClassName": device_class}}]
    return {"metadata": meta("train-channel", TEAM), "spec": {"spec": {"devices": {"requests": requests}}}}


def queue(channels: str | None = "1M", interfaces: str | None = None) -> Data:
    """The team's queue, with quota for channels or interfaces, or without them."""
    found = cluster_queue(TEAM)
    (group,) = found["spec"]["resourceGroups"]
    for name, quota in ((CHANNEL, channels), ("mrdma.google.com/interface", interfaces)):
        if quota is not None:
            group["coveredResources"].append(name)
            group["flavors"][0]["resources"].append({"name": name, "nominalQuota": quota})
    return found


def judged(about: Data, channels: str | None = "1M", interfaces: str | None = None, **objects: list[Data]) -> Any:
    found = state(
        ClusterQueue=[queue(channels, interfaces)],
        LocalQueue=[local_queue(TEAM)],
        ResourceFlavor=[flavor()],
        Node=[node()],
        **objects,  # type: ignore[arg-type]
    )
    return judge(found, TEAM, demand(about, TEAM))


def lines(fitting: Any, check: Check) -> list[str]:
    return [line for answer in fitting.answers if answer.check is check for line in answer.lines]


def test_claims_of_channels_fit_and_are_shown_as_no_limit() -> None:
    fitting = judged(claiming(), ResourceClaimTemplate=[template()])
    assert fitting.verdict == "now"
    assert lines(fitting, Check.CLAIMS) == [
        "each pod claims the channel of its node by ResourceClaimTemplate train-channel; channels have no limit"
    ]
    assert not [line for line in lines(fitting, Check.QUEUE) if CHANNEL in line]


def test_claims_of_interfaces_are_counted_and_are_no_limit_either() -> None:
    rdma = template("mrdma.google.com")
    rdma["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 8
    fitting = judged(claiming(), interfaces="1M", ResourceClaimTemplate=[rdma])
    assert fitting.verdict == "now"
    assert lines(fitting, Check.CLAIMS) == [
        f"each pod claims 8 RDMA interfaces of its node by {TEMPLATE}; they have no limit"
    ]
    uncovered = judged(claiming(), ResourceClaimTemplate=[rdma])
    assert uncovered.verdict == "never"
    assert "has nodes with RDMA interfaces of DRANET" in "".join(lines(uncovered, Check.QUEUE))


def test_pods_without_claims_cause_no_requests() -> None:
    assert lines(judged(only_gpus(job())), Check.CLAIMS) == []
    assert kinds_claimed([demand(only_gpus(job()), TEAM)]) == ()
    assert kinds_claimed([demand(claiming(), TEAM)]) == ("ResourceClaimTemplate", "ComputeDomain")


@pytest.mark.parametrize(
    ("claim", "templates", "words"),
    [
        (
            {},
            [],
            f"{TEMPLATE} not found; {CREATE}",
        ),
        (
            {},
            [template("gpu.nvidia.com")],
            f"{TEMPLATE} claims devices of DeviceClass gpu.nvidia.com, which Kueue does not admit; {REQUEST}",
        ),
        (
            {"resourceClaimName": "shared"},
            [],
            "Kueue admits no pod with a ResourceClaim (shared); set resourceClaimTemplateName instead",
        ),
    ],
    ids=["no template", "GPUs", "a shared claim"],
)
def test_claims_that_kueue_never_admits_do_not_fit(claim: Data, templates: list[Data], words: str) -> None:
    fitting = judged(claiming(**claim), ResourceClaimTemplate=templates)
    assert fitting.verdict == "never"
    assert lines(fitting, Check.CLAIMS) == [words]


def test_a_template_that_the_driver_will_make_is_enough() -> None:
    fitting = judged(claiming(), ComputeDomain=[DOMAIN])
    assert fitting.verdict == "now"
    assert lines(fitting, Check.CLAIMS) == [
        "ResourceClaimTemplate train-channel is made by NVIDIA's DRA driver for its ComputeDomain"
    ]


def test_a_file_of_domains_alone_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "domain.yaml"
    file.write_text(yaml.safe_dump(DOMAIN))
    with pytest.raises(ConsoleError, match="only ComputeDomains; add a Pod, a Job or another workload"):
        read_demands(file, TEAM)


def test_a_domain_can_stand_beside_its_job_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([DOMAIN, claiming()]))
    (asked,) = read_demands(file, TEAM)
    assert (asked.title, asked.channels) == ("Job train", ("train-channel",))


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        (None, f"no flavor of queue {TEAM} has nodes with channels, so Kueue never admits the workload"),
        ("0", "nodes of flavor a100 have no channels"),
    ],
)
def test_a_queue_without_channels_never_admits_pods_that_claim_one(channels: str | None, words: str) -> None:
    fitting = judged(claiming(), channels, ResourceClaimTemplate=[template()])
    assert fitting.verdict == "never"
    assert words in lines(fitting, Check.QUEUE)


def test_usage_has_no_row_of_channels() -> None:
    found = state(ClusterQueue=[queue()], LocalQueue=[local_queue(TEAM)])
    usage = measure(found)
    assert {row.resource for row in usage.rows} == {GPU}
    assert [total.resource for total in usage.total.resources] == [GPU]


def test_amounts_for_people_have_no_channels() -> None:
    amounts = {GPU: 8, CHANNEL: 2}
    assert amounts_text(amounts) == leading_text(amounts) == f"8 {GPU}"


def pending(message: str) -> Why:
    """What `why` says of a workload with Kueue's message; the messages are those of Kueue 0.19.2."""
    about = claiming()
    waits = workload(about)
    waits["status"]["conditions"] = [
        condition("QuotaReserved", "False", "Inadmissible", message),
        condition("Requeued", "False", "Inadmissible", message),
    ]
    found = state(Workload=[waits], ClusterQueue=[queue()], LocalQueue=[local_queue(TEAM)], ResourceFlavor=[flavor()])
    return why(target_of(about, found), found)


@pytest.mark.parametrize(
    ("message", "reason", "fix"),
    [
        (
            (
                f"spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec for"
                f' {TEMPLATE} in podset main: ResourceClaimTemplate.resource.k8s.io "train-channel" not found'
            ),
            f"its pods claim devices by {TEMPLATE}, which does not exist: {DRIVER}",
            f"{CREATE}, or, if there is one, check that the driver's controller is running",
        ),
        (
            f"DeviceClass {CHANNEL_CLASS} is not mapped in DRA configuration for podset main",
            f"its pods claim devices of DeviceClass {CHANNEL_CLASS}, which Kueue does not count",
            f"add {CHANNEL_CLASS} to deviceClassMappings of Kueue's configuration",
        ),
        (
            "DeviceClass gpu.nvidia.com is not mapped in DRA configuration for podset main",
            "its pods claim devices of DeviceClass gpu.nvidia.com, which Kueue does not count",
            REQUEST,
        ),
        (
            f"couldn't assign flavors to pod set main: resource {CHANNEL} unavailable in ClusterQueue",
            "its pods claim channels of a ComputeDomain, and no flavor that they can use has nodes with channels",
            "select nodes with NVLink between machines, or remove resourceClaims",
        ),
        (
            "couldn't assign flavors to pod set main: resource mrdma.google.com/interface unavailable in ClusterQueue",
            "its pods claim RDMA interfaces of DRANET, and no flavor that they can use has nodes with them",
            "select nodes of a pool with fabric: dranet, or remove resourceClaims",
        ),
    ],
    ids=["no template", "no mapping", "GPUs", "no channels", "no interfaces"],
)
def test_why_explains_claims_that_kueue_cannot_count(message: str, reason: str, fix: str) -> None:
    found = pending(message)
    assert (found.reason, found.fix) == (reason, fix)


def test_why_does_not_blame_channels_where_gpus_are_missing() -> None:
    found = pending(
        f"couldn't assign flavors to pod set main: insufficient quota for {CHANNEL} in flavor h100, insufficient unused"
        f" quota for {GPU} in flavor a100, 8 more needed"
    )
    assert "channel" not in found.reason.split("QuotaReserved")[0].replace(CHANNEL, "")


def test_why_explains_a_pod_that_waits_for_the_channel_of_a_node() -> None:
    message = (
        "0/6 nodes are available: 1 cannot allocate all claims, 5 node(s) didn't match Pod's node affinity/selector."
    )
    waiting = owned(pod("train-0"))
    waiting["spec"]["resourceClaims"] = [{"name": "channel", "resourceClaimTemplateName": "train-channel"}]
    waiting["status"]["conditions"] = [condition("PodScheduled", "False", "Unschedulable", message)]
    about = claiming()
    found = state(
        Workload=[workload(about, admitted=True)],
        ClusterQueue=[queue()],
        LocalQueue=[local_queue(TEAM)],
        Pod=[waiting],
        Node=[node()],
    )
    answer = why(target_of(about, found), found)
    assert (
        answer.reason
        == "no node with room has a free channel: a node has one channel, for one pod with a ComputeDomain"
    )
    assert answer.fix == "request all GPUs of a node for each pod, or wait until the pod that has the channel ends"
