"""Secrets, ConfigMaps, claims of storage and of devices that pods refer to."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from live_builders import (
    GPU,
    Data,
    checked,
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

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.quantity import amounts_text, leading_text
from gpu_tenancy.cluster.demand import demand, read_demands, target_of
from gpu_tenancy.cluster.dry_run import pod_of
from gpu_tenancy.cluster.reading import Check, Missing
from gpu_tenancy.cluster.references import kinds_claimed, kinds_named
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.usage import measure
from gpu_tenancy.explain.why import why

TEAM: Final = "research"


def row(name: str, *keys: str, kind: str = "Opaque", count: int | None = None) -> Data:
    """A Secret or ConfigMap as the API server's table shows it, with a record of the keys that were written."""
    fields: Data = {"f:data": {".": {}, **{f"f:{key}": {} for key in keys}}, "f:type": {}}
    managers: list[Data] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]
    cells = {"Name": name, "Type": kind, "Data": len(keys) if count is None else count}
    return {"metadata": meta(name, TEAM, managedFields=managers), "cells": cells}


def using(container: Data | None = None, **spec: Any) -> Data:
    manifest = only_gpus(job())
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0] |= container or {}
    pod |= spec
    return manifest


def variable(field: str = "secretKeyRef", name: str = "wandb", **more: Any) -> Data:
    return {"env": [{"name": "TOKEN", "valueFrom": {field: {"name": name, "key": "token", **more}}}]}


def only(manifest: Data, **objects: list[Data]) -> tuple[str, str]:
    (answer,) = checked(manifest, Check.REFERENCES, **objects)
    return answer.verdict, answer.lines[0]


def test_a_workload_without_references_causes_no_requests() -> None:
    assert checked(only_gpus(job()), Check.REFERENCES) == []
    assert kinds_named([demand(only_gpus(job()), TEAM)]) == ()


def test_only_the_kinds_that_pods_name_are_read() -> None:
    assert kinds_named([demand(using(variable()), TEAM)]) == ("Secret",)
    assert kinds_named([demand(using(variable("configMapKeyRef")), TEAM)]) == ("ConfigMap",)
    assert kinds_named([demand(using(variable(optional=True)), TEAM)]) == ()


FILES: Final = {
    "volumes": [{"name": "tls", "secret": {"secretName": "wandb", "items": [{"key": "token", "path": "t"}]}}]
}
PROJECTED: Final = {"volumes": [{"name": "all", "projected": {"sources": [{"secret": {"name": "wandb"}}]}}]}


@pytest.mark.parametrize(
    ("manifest", "where"),
    [
        (using(variable()), "env TOKEN of container main"),
        (using({"envFrom": [{"secretRef": {"name": "wandb"}}]}), "envFrom of container main"),
        (using(initContainers=[{"name": "fetch", **variable()}]), "env TOKEN of container fetch"),
        (using(None, **FILES), "volume tls"),
        (using(None, **PROJECTED), "volume all"),
    ],
    ids=["env", "envFrom", "init container", "files", "projected files"],
)
def test_a_secret_that_does_not_exist_is_named_with_its_place(manifest: Data, where: str) -> None:
    assert only(manifest, Secret=[row("wandb-2")]) == (
        "never",
        (
            f"Secret wandb not found ({where}), so pods do not start; create it, or set another one;"
            " did you mean 'wandb-2'? Known: wandb-2"
        ),
    )
    assert only(manifest, Secret=[row("wandb", "token")])[0] == "now"


@pytest.mark.parametrize("manifest", [using(variable()), using(None, **FILES)], ids=["env", "files"])
def test_a_key_that_a_secret_lacks_is_named(manifest: Data) -> None:
    verdict, line = only(manifest, Secret=[row("wandb", "tokens")])
    assert verdict == "never"
    assert line.startswith("Secret wandb has no key token (")
    assert line.endswith("add it, or set another one; did you mean 'tokens'? Known: tokens")


def test_applied_string_data_counts_if_all_keys_are_there() -> None:
    applied = row("wandb", "other", count=2)
    applied["metadata"]["managedFields"].append({"operation": "Apply", "fieldsV1": {"f:stringData": {"f:token": {}}}})
    assert only(using(variable()), Secret=[applied]) == ("now", "Secret wandb has the key token")
    applied["cells"]["Data"] = 1  # somebody deleted one of them
    assert only(using(variable()), Secret=[applied])[0] == "never"
    applied["cells"]["Data"] = 3  # another one has no record
    assert only(using(variable()), Secret=[applied])[0] == "unknown"


def test_binary_keys_of_a_config_map_count() -> None:
    binary = row("wandb", count=1)
    binary["metadata"]["managedFields"][0]["fieldsV1"] = {"f:binaryData": {".": {}, "f:token": {}}}
    assert only(using(variable("configMapKeyRef")), ConfigMap=[binary]) == ("now", "ConfigMap wandb has the key token")


@pytest.mark.parametrize(
    ("secrets", "words"),
    [([], "not found"), ([row("hub", ".dockerconfigjson")], "has type Opaque")],
    ids=["missing", "of another type"],
)
def test_kubelet_ignores_unusable_pull_secrets(secrets: list[Data], words: str) -> None:
    verdict, line = only(using(imagePullSecrets=[{"name": "hub"}]), Secret=secrets)
    assert verdict == "now"
    assert f"Secret hub {words}" in line
    assert "the kubelet pulls images without it" in line
    fine = row("hub", ".dockerconfigjson", kind="kubernetes.io/dockerconfigjson")
    assert only(using(imagePullSecrets=[{"name": "hub"}]), Secret=[fine]) == ("now", "Secret hub exists")


def test_failures_are_listed_before_successes() -> None:
    manifest = using({**variable(), "envFrom": [{"secretRef": {"name": "missing"}}]})
    (answer,) = checked(manifest, Check.REFERENCES, Secret=[row("wandb", "token")])
    assert answer.lines[0].startswith("Secret missing not found")
    assert answer.lines[1] == "Secret wandb has the key token"


# Whether pods can mount their claims, and why not.


VOLUMES_TEAM = "research"


def claim(name: str = "ck", mode: str = "ReadWriteMany", phase: str = "Bound", **spec: Any) -> Data:
    return {"metadata": meta(name, VOLUMES_TEAM), "spec": {"accessModes": [mode], **spec}, "status": {"phase": phase}}


def mounting(name: str = "ck", pods: int = 1, *, read_only: bool = False) -> Data:
    manifest = only_gpus(job())
    manifest["spec"] |= {"parallelism": pods, "completions": pods}
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/ck", "readOnly": read_only}]
    return manifest


def volumes_only(manifest: Data, *claims: Data, **objects: list[Data]) -> tuple[str, str]:
    (answer,) = checked(manifest, Check.VOLUMES, PersistentVolumeClaim=list(claims), **objects)
    return answer.verdict, answer.lines[0]


def test_a_workload_without_claims_is_not_checked() -> None:
    assert checked(only_gpus(job()), Check.VOLUMES) == []


DELETED = claim()
DELETED["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
ONE_NODE = "claim ck is ReadWriteOnce: only pods of one node can mount it, not 4 pods; use a claim with ReadWriteMany"


@pytest.mark.parametrize(
    ("manifest", "claimed", "verdict", "words"),
    [
        (mounting(pods=4), claim(), "now", "claim ck is bound (ReadWriteMany)"),
        (mounting("kc"), claim("corpus"), "never", "claim kc not found in namespace research; known: corpus"),
        (mounting(), DELETED, "never", "claim ck is being deleted; new pods cannot mount it"),
        (mounting(), claim(phase="Lost"), "never", "claim ck has lost its PersistentVolume; recreate the claim"),
        (mounting(pods=4), claim(mode="ReadWriteOnce"), "never", ONE_NODE),
    ],
    ids=["bound", "missing", "deleted", "lost", "of one node"],
)
def test_a_claim_can_be_mounted_or_not(manifest: Data, claimed: Data, verdict: str, words: str) -> None:
    assert volumes_only(manifest, claimed) == (verdict, words)


@pytest.mark.parametrize(
    ("name", "mode", "verdict", "words"),
    [
        ("disk", "WaitForFirstConsumer", "now", "when its first pod is scheduled"),
        ("disk", "Immediate", "later", "is not bound"),
        ("nvme", "Immediate", "never", "claim ck is not bound, and its StorageClass nvme does not exist"),
    ],
)
def test_a_claim_that_is_not_bound_depends_on_its_class(name: str, mode: str, verdict: str, words: str) -> None:
    disk = {"metadata": meta("disk"), "volumeBindingMode": mode}
    found = volumes_only(mounting(), claim(phase="Pending", storageClassName=name), StorageClass=[disk])
    assert found[0] == verdict
    assert words in found[1]


def test_a_claim_of_one_node_that_a_pod_mounts_is_free_later() -> None:
    running = pod("other", VOLUMES_TEAM, on="n1", phase="Running")
    running["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "ck"}}]
    found = volumes_only(mounting(), claim(mode="ReadWriteOnce"), Pod=[running], Node=[node("n1", 16)])
    assert found == (
        "later",
        "claim ck is ReadWriteOnce and mounted by pod other on node n1; end it, or run on the same node",
    )


def test_mentions_read_only_claim_mounted_for_writing() -> None:
    read_only = [claim(mode="ReadOnlyMany")]
    (answer,) = checked(mounting(), Check.VOLUMES, PersistentVolumeClaim=read_only)
    assert answer.lines[-1] == ("claim ck is read-only (ReadOnlyMany): writing fails; set readOnly: true for its mount")
    (answer,) = checked(mounting(read_only=True), Check.VOLUMES, PersistentVolumeClaim=read_only)
    assert answer.lines == ("claim ck is bound (ReadOnlyMany)",)


def test_without_the_right_to_read_claims_it_is_unknown() -> None:
    hidden = Missing("PersistentVolumeClaim", "state of volumes", "you may not list them", "a viewer")
    (answer,) = checked(mounting(), Check.VOLUMES, (hidden,))
    assert answer.verdict == "unknown"


def reference(phase: str = "NotBound") -> Data:
    """A team's Dataset of Fluid, which refers to a cache."""
    mounts = [{"mountPoint": "dataset://dataset-caches/ck/data", "name": "ck"}]
    return {"metadata": meta("ck", VOLUMES_TEAM), "spec": {"mounts": mounts}, "status": {"phase": phase}}


def test_a_claim_that_fluid_has_not_made_waits_for_its_cache() -> None:
    waits = "claim ck waits for cache dataset-caches/ck: "
    assert volumes_only(mounting(), Dataset=[reference()]) == ("later", f"{waits}it is not ready")
    assert volumes_only(mounting(), Dataset=[reference("Failed")]) == ("later", f"{waits}it is Failed")
    assert volumes_only(mounting(), Dataset=[reference("")]) == ("later", f"{waits}Fluid has not seen it")
    # Its class has no StorageClass: Fluid makes the volume, too.
    pending = claim(mode="ReadOnlyMany", phase="Pending", storageClassName="fluid")
    assert volumes_only(mounting(), pending, Dataset=[reference()])[0] == "later"
    assert volumes_only(mounting(read_only=True), claim(mode="ReadOnlyMany"), Dataset=[reference("Bound")])[0] == "now"


def test_dry_run_pod_has_volumes_of_claim_templates() -> None:
    spec: Data = {
        "containers": [{"name": "c", "image": "i:1", "volumeMounts": [{"name": "home", "mountPath": "/home"}]}]
    }
    written: Data = {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "lab"},
        "spec": {
            "template": {"spec": {**spec, "volumes": [{"name": "data", "emptyDir": {}}]}}, "volumeClaimTemplates": [],
        },
    }  # fmt: skip
    written["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "home"}, "spec": {}}]
    wanted = demand(written, "research")
    made: Data = pod_of(wanted, wanted.templates[0])
    assert made["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}, {"name": "home", "emptyDir": {}}]


# What `fit`, `why` and `usage` say of pods that claim channels of ComputeDomains, and of channels themselves.


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


def test_claims_of_interfaces_have_no_limit() -> None:
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
        ({}, [], f"{TEMPLATE} not found; {CREATE}"),
        ({}, [template("gpu.nvidia.com")],
         f"{TEMPLATE} claims devices of DeviceClass gpu.nvidia.com, which Kueue does not admit; {REQUEST}"),
        ({"resourceClaimName": "shared"}, [],
         "Kueue admits no pod with a ResourceClaim (shared); set resourceClaimTemplateName instead"),
    ],
    ids=["no template", "GPUs", "a shared claim"],
)  # fmt: skip
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
def test_queue_without_channels_never_admits_claims(channels: str | None, words: str) -> None:
    fitting = judged(claiming(), channels, ResourceClaimTemplate=[template()])
    assert fitting.verdict == "never"
    assert words in lines(fitting, Check.QUEUE)


def test_usage_has_no_row_of_channels() -> None:
    usage = measure(state(ClusterQueue=[queue()], LocalQueue=[local_queue(TEAM)]))
    assert {row.resource for row in usage.rows} == {GPU}
    assert [total.resource for total in usage.total.resources] == [GPU]


def test_amounts_for_people_have_no_channels() -> None:
    amounts = {GPU: 8, CHANNEL: 2}
    assert amounts_text(amounts) == leading_text(amounts) == f"8 {GPU}"


def pending(message: str) -> Why:
    """The result of `why` for a workload with a message of Kueue 0.19.2."""
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
        ((f"spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec for"
         f' {TEMPLATE} in podset main: ResourceClaimTemplate.resource.k8s.io "train-channel" not found'),
         f"its pods claim devices by {TEMPLATE}, which does not exist: {DRIVER}",
         f"{CREATE}, or, if there is one, check that the driver's controller is running"),
        (f"DeviceClass {CHANNEL_CLASS} is not mapped in DRA configuration for podset main",
         f"its pods claim devices of DeviceClass {CHANNEL_CLASS}, which Kueue does not count",
         f"add {CHANNEL_CLASS} to deviceClassMappings of Kueue's configuration"),
        ("DeviceClass gpu.nvidia.com is not mapped in DRA configuration for podset main",
         "its pods claim devices of DeviceClass gpu.nvidia.com, which Kueue does not count", REQUEST),
        (f"couldn't assign flavors to pod set main: resource {CHANNEL} unavailable in ClusterQueue",
         "its pods claim channels of a ComputeDomain, and no flavor that they can use has nodes with channels",
         "select nodes with NVLink between machines, or remove resourceClaims"),
        ("couldn't assign flavors to pod set main: resource mrdma.google.com/interface unavailable in ClusterQueue",
         "its pods claim RDMA interfaces of DRANET, and no flavor that they can use has nodes with them",
         "select nodes of a pool with fabric: dranet, or remove resourceClaims"),
    ],
    ids=["no template", "no mapping", "GPUs", "no channels", "no interfaces"],
)  # fmt: skip
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
