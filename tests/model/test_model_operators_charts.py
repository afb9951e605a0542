"""The tables of charts, and Kueue's own configuration."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import pytest
import yaml
from builders import Data, planned, pool, stack, team
from operators_builders import (
    AMD_POOL,
    STACKS,
    every_release,
    kueue,
    made_here,
    plan_of,
    release,
    with_gangs,
    with_jobs,
)
from originals import described, original

from gpu_tenancy.model.catalogue import allocatable, machines
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import FREE, chart_values, charts, contained_values, operators
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.plan.needs import CONDITIONS


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        # What the chart around it says there, what the chart's own table says, what its values.yaml has no default of.
        ("kube-prometheus-stack", {"grafana": {"defaultDashboardsEnabled": False}}),
        ("kube-prometheus-stack", {"grafana": {"persistence": {"enabled": True, "size": "10Gi"}}}),
        ("kube-prometheus-stack", {"grafana": {"persistence": {"storageClassName": "fast"}, "adminPassword": "x"}}),
        ("kube-prometheus-stack", {"grafana": {"grafana.ini": {"server": {"root_url": "https://example.com"}}}}),
        ("kube-prometheus-stack", {"kube-state-metrics": {"metricLabelsAllowlist": ["nodes=[*]"]}}),
        ("kube-prometheus-stack", {"prometheus-node-exporter": {"updateStrategy": {"rollingUpdate": {"any": 1}}}}),
        # A section for the chart around it, free for the chart itself.
        ("gpu-operator", {"node-feature-discovery": {"worker": {"config": {"core": {"labelWhiteList": "x"}}}}}),
        ("gpu-operator-charts", {"node-feature-discovery": {"image": {"tag": "v0.18.3"}}, "kmm": {"watch": False}}),
        ("kubeflow-trainer", {"jobset": {"controller": {"replicas": 2}}, "lws": {"replicaCount": 2}}),
        ("cert-manager", {"image": {"tag": "v1.21.1"}, "livenessProbe": {"enabled": False}}),
    ],
    ids=lambda each: each if isinstance(each, str) else None,
)
def test_a_value_that_a_chart_or_a_chart_in_it_takes_is_taken(chart: str, values: Data) -> None:
    assert list(chart_values()[chart].unknown(values)) == []


@pytest.mark.parametrize(
    ("chart", "place", "nearest"),
    [
        ("kube-prometheus-stack", "grafana.sidecar.dashboards.folderAnotation", "folderAnnotation"),
        ("kube-prometheus-stack", "grafana.persistence.storageClass", "storageClassName"),
        ("kube-prometheus-stack", "grafana.defaultDashboardEnabled", "defaultDashboardsEnabled"),
        ("kube-prometheus-stack", "kube-state-metrics.metricLabelAllowlist", "metricLabelsAllowlist"),
        ("kube-prometheus-stack", "prometheus-node-exporter.extraArg", "extraArgs"),
        ("kube-prometheus-stack", "prometheus-windows-exporter.service.nodeport", "nodePort"),
        ("kube-prometheus-stack", "crds.upgradeJobs", "upgradeJob"),
        ("gpu-operator", "node-feature-discovery.worker.toleration", "tolerations"),
        ("gpu-operator-charts", "node-feature-discovery.master.replicas", "replicaCount"),
        ("gpu-operator-charts", "kmm.controller.replica", "replicas"),
        ("gpu-operator-charts", "remediation.installCRD", "installCRDs"),
        ("kubeflow-trainer", "jobset.controller.replica", "replicas"),
        ("kubeflow-trainer", "lws.replicasCount", "replicaCount"),
    ],
)
def test_misspelt_values_of_subcharts_name_the_nearest(chart: str, place: str, nearest: str) -> None:
    keys = tuple(place.split("."))
    values: object = "x"
    for key in reversed(keys):
        values = {key: values}
    assert list(chart_values()[chart].unknown(cast("Data", values))) == [(keys, f"did you mean '{nearest}'?")]


def test_descriptions_of_operators_name_what_exists() -> None:
    for name, operator in operators().items():
        assert {operator.needed, operator.required or operator.needed} <= set(CONDITIONS), name
        assert {operator.after or name, *operator.requires} <= set(operators()), name
        assert set(operator.charts) <= set(chart_values()), name


def test_every_subchart_has_a_table_of_values() -> None:
    assert {inner for values in chart_values().values() for inner in values.contains} == set(contained_values())


COMPARED = sorted(name for name, row in chart_values().items() if row.sha256)


def test_tables_of_the_usual_charts_are_compared() -> None:
    assert {"gpu-operator", "keda", "kube-prometheus-stack", "kubeflow-trainer", "kueue", "volcano"} <= set(COMPARED)


OLDER: Final = {"volcano": ("1.15.1", "the chart of 1.15.2 only has other tags of images: volcano-sh/volcano#5902")}
"""Charts whose table was made of another version than the installed one, and why that is enough."""


@pytest.mark.parametrize("chart", COMPARED)
def test_a_table_names_the_version_of_its_chart(chart: str) -> None:
    version, _ = OLDER.get(chart, (charts()[chart].version, ""))
    assert chart_values()[chart].version == version


@pytest.mark.parametrize("chart", COMPARED)
def test_the_table_agrees_with_the_chart_itself(chart: str) -> None:
    content = original(f"charts/{chart}/values.yaml").read_bytes()
    assert chart_values()[chart].sha256 == hashlib.sha256(content).hexdigest()
    assert chart_values()[chart].keys == described(cast("Data", yaml.safe_load(content)))


@pytest.mark.parametrize("file", STACKS, ids=lambda f: f.stem)
def test_every_value_that_is_set_is_one_of_the_charts(file: Path) -> None:
    for one in plan_of(file).operators:
        assert list(chart_values()[one.name].unknown(one.values)) == []


def test_every_value_that_could_be_set_is_one_of_the_charts() -> None:
    every = list(every_release())
    assert {one.name for one in every} == set(chart_values())
    for one in every:
        assert list(chart_values()[one.name].unknown(one.values)) == []


def test_a_described_chart_has_its_keys_and_free_maps() -> None:
    values = {"a": 1, "b": {"c": [1], "d": {}, "nodeSelector": {"x": "y"}}, "e": None}
    assert described(values) == {".": f"a e{FREE}", "b": f"c d{FREE} nodeSelector{FREE}"}


def test_every_chart_has_a_digest_or_the_reason_why_not() -> None:
    pinned = {**cloud_charts(), **charts()}
    unknown = {name for name, chart in pinned.items() if chart.digest is None}
    assert unknown == {name for name, row in pinned.items() if row.digest_source.startswith("unknown, because ")}


def test_helm_gets_the_digest_of_a_chart_in_an_oci_registry() -> None:
    kueue, keda = release(made_here(), "kueue"), release(made_here(), "keda")
    assert kueue.chart == f"oci://registry.k8s.io/kueue/charts/kueue@{charts()['kueue'].digest}"
    assert (keda.chart, keda.digest) == ("keda", charts()["keda"].digest)


def test_other_versions_of_a_chart_have_no_digest() -> None:
    other = f"sha256:{'a' * 64}"
    for operator, digest in (
        ({"version": "0.19.1"}, None),
        ({"version": charts()["kueue"].version}, charts()["kueue"].digest),
        ({"version": "0.19.1", "digest": other}, other),
        ({"digest": other}, other),
    ):
        kueue = release(made_here(operators={"kueue": operator}), "kueue")
        assert kueue.digest == digest
        assert kueue.chart == "oci://registry.k8s.io/kueue/charts/kueue" + (f"@{digest}" if digest else "")


def test_a_digest_belongs_to_the_chart_that_the_stack_configures() -> None:
    other = f"sha256:{'a' * 64}"
    intel = made_here(operators={"intelDevicePlugin": {"install": "here", "digest": other}})
    assert release(intel, "intel-device-plugins-gpu").digest == other
    whole = release(intel, "intel-device-plugins-operator")
    assert whole.digest == charts()["intel-device-plugins-operator"].digest


def test_operators_fit_on_the_smallest_system_node() -> None:
    requests = [chart.requests for chart in charts().values()]
    cpu, memory = sum(row.cpu for row in requests), sum(row.memory for row in requests)
    for (cloud, name), machine in machines().items():
        if cloud in clouds() and cloud != "existing" and not machine.gpus:
            room = allocatable(machine)
            assert (cpu <= room[0], memory <= room[1]) == (True, True), name


# Kueue's configuration.


def test_kueue_manages_every_kind_of_work_that_a_team_may_start() -> None:
    found = kueue(made_here())["integrations"]
    assert found["frameworks"] == ["batch/job", "pod", "deployment", "statefulset"]
    assert found["labelKeysToCopy"] == ["gpu-tenancy.dev/user"]


@pytest.mark.parametrize(
    ("framework", "kinds"),
    [
        ("pytorch", ["jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]),
        ("ray", ["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"]),
        ("leader-worker", ["leaderworkerset.x-k8s.io/leaderworkerset"]),
    ],
)
def test_kueue_queues_the_kinds_of_the_operators_that_are_there(framework: str, kinds: list[str]) -> None:
    always = kueue(made_here())["integrations"]["frameworks"]
    sections = with_jobs(framework=framework, command=["/train"])
    assert kueue(sections)["integrations"]["frameworks"] == [*always, *kinds]


def test_kueue_leaves_pods_of_gangs_to_volcano() -> None:
    assert kueue(with_gangs())["integrations"]["externalFrameworks"] == ["Job.v1alpha1.batch.volcano.sh"]
    assert release(with_gangs(), "kueue").reads == (("batch.volcano.sh", "jobs"),)
    assert release(made_here(), "kueue").reads == ()


@pytest.mark.parametrize("said", ["here", "installed"])
def test_kueue_leaves_pods_of_caches_to_fluid(said: str) -> None:
    sections = made_here(operators={"fluid": said})
    left = kueue(sections)["integrations"]["externalFrameworks"]
    assert "JuiceFSRuntime.v1alpha1.data.fluid.io" in left
    assert "DataLoad.v1alpha1.data.fluid.io" in left
    assert not [kind for kind in left if kind.startswith(("DataProcess", "DaemonSet"))], "Kueue counts these"
    reads = release(sections, "kueue").reads
    assert {f"{resource}.{group}" for group, resource in reads} == {
        f"{kind.partition('.')[0].lower()}s.data.fluid.io" for kind in left
    }


def test_kueue_leaves_gangs_and_caches_alone() -> None:
    sections = with_gangs(operators={"fluid": "here"})
    gang, *caches = kueue(sections)["integrations"]["externalFrameworks"]
    assert gang == "Job.v1alpha1.batch.volcano.sh"
    assert len(release(sections, "kueue").reads) == 1 + len(caches)


@pytest.mark.parametrize("file", STACKS, ids=lambda f: f.stem)
def test_only_team_namespaces_hold_workloads_without_a_queue(file: Path) -> None:
    plan = plan_of(file)
    selector = kueue(with_gangs())["managedJobsNamespaceSelector"]
    for team_plan in plan.teams:
        named = {"kubernetes.io/metadata.name": team_plan.namespace.name}
        assert _selects(selector, {**team_plan.namespace.labels, **named})
        assert all(job.queue for job in team_plan.jobs)
    for name in ("kube-system", *(row.namespace for row in charts().values())):
        ours = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
        assert not _selects(selector, {**ours, "kubernetes.io/metadata.name": name})
    assert not _selects(selector, {"kubernetes.io/metadata.name": "gke-managed-system"})


def _selects(selector: Data, labels: Mapping[str, str]) -> bool:
    """A label selector of Kubernetes, for its two forms in use."""
    (expression,) = selector["matchExpressions"]
    assert expression["operator"] == "NotIn"
    spared = labels.get(expression["key"]) in expression["values"]
    return selector["matchLabels"].items() <= labels.items() and not spared


def test_fair_sharing_is_configured_only_for_even_fairness() -> None:
    assert "fairSharing" not in kueue(made_here())
    strategies = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    assert kueue(made_here(fairness="even"))["fairSharing"] == strategies


def test_kueue_exports_quotas_and_evicts_no_slow_pods() -> None:
    configuration, values = kueue(made_here()), release(made_here(), "kueue").values
    assert configuration["metrics"]["enableClusterQueueResources"] is True
    assert "waitForPodsReady" not in configuration
    gates = {gate["name"]: gate["enabled"] for gate in values["controllerManager"]["featureGates"]}
    assert gates == {"DisableWaitForPodsReady": True, "ReclaimablePods": False}


def test_uncovered_resources_do_not_block_admission() -> None:
    prefixes = kueue(made_here())["resources"]["excludeResourcePrefixes"]
    assert {"vpc.amazonaws.com/efa", "rdma/", "networking.gke.io.networks/", "ephemeral-storage"} <= set(prefixes)
    pools = {"cpu": pool("m7i.8xlarge", 3), "fpga": {**AMD_POOL, "gpu": "card", "resource": "rdma/card"}}
    sections = stack(pools=pools, teams={"a": team()}, operators={"kueue": "here"})
    assert "rdma/" not in kueue(sections)["resources"]["excludeResourcePrefixes"]


def test_kueues_configuration_has_no_key_that_its_api_lacks() -> None:
    # configuration_types.go of v0.19.2: an unknown key ends the manager.
    known = {
        "apiVersion", "kind", "namespace", "webhook", "leaderElection", "metrics", "health", "pprofBindAddress",
        "controller", "tls", "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "internalCertManagement",
        "waitForPodsReady", "clientConnection", "integrations", "multiKueue", "fairSharing", "admissionFairSharing",
        "resources", "featureGates", "objectRetentionPolicies", "visibilityServer",
    }  # fmt: skip
    configuration = kueue(with_gangs(fairness="even"))
    assert set(configuration) <= known
    assert set(configuration["integrations"]) <= {"frameworks", "externalFrameworks", "labelKeysToCopy"}
    assert set(configuration["fairSharing"]) == {"preemptionStrategies"}


def test_the_same_stack_gives_the_same_configuration() -> None:
    second = with_gangs(fairness="even")
    assert planned(second).operators == planned(json.loads(json.dumps(second))).operators


@pytest.mark.parametrize(
    ("chart", "version", "notes"),
    [
        ("volcano", "1.14.3", ["was not tested"]),
        ("volcano", "1.15.1", ["was not tested", "stall the scheduler by claims of devices (GHSA-j38h-7pfq-cxmw)"]),
        ("volcano", "1.15.2", []),
        ("kueue", "0.19.2", ["kueue#16132); fixed in 0.19.6", "fixed in 0.19.7", "fixed in 0.19.8"]),
        (
            "kueue",
            "0.19.7",
            ["kueue 0.19.7 was not tested with this version of GPU tenancy (0.19.2 was)", "fixed in 0.19.8"],
        ),
        ("kueue", "v0.20.0", ["was not tested"]),
    ],
)
def test_versions_with_advisories_are_named(chart: str, version: str, notes: list[str]) -> None:
    found = list(charts()[chart].notes(chart, version))
    assert len(found) == len(notes)
    assert all(part in note for part, note in zip(notes, found, strict=True))
