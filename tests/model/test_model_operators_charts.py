"""The tables of charts: what each takes, whether it is so, and whether what is set is among it."""

import hashlib
from pathlib import Path
from typing import Final, cast

import pytest
import yaml
from builders import Data
from operators_builders import STACKS, every_release, made_here, plan_of
from operators_builders import release as release_of
from originals import original

from gpu_tenancy.model.catalogue import allocatable, machines
from gpu_tenancy.model.catalogue.chart_values import FREE, chart_values, contained_values, described
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import charts, operators
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
def test_a_misspelt_value_of_a_chart_in_a_chart_is_found_with_the_nearest(chart: str, place: str, nearest: str) -> None:
    keys = tuple(place.split("."))
    values: object = "x"
    for key in reversed(keys):
        values = {key: values}
    assert list(chart_values()[chart].unknown(cast("Data", values))) == [(keys, f"did you mean '{nearest}'?")]


def test_every_description_names_conditions_and_operators_that_exist_and_the_values_of_its_charts() -> None:
    for name, operator in operators().items():
        assert {operator.needed, operator.required or operator.needed} <= set(CONDITIONS), name
        assert {operator.after or name, *operator.requires} <= set(operators()), name
        assert set(operator.charts) <= set(chart_values()), name


def test_every_chart_in_a_chart_has_a_table_of_values_and_no_other_has() -> None:
    assert {inner for values in chart_values().values() for inner in values.contains} == set(contained_values())


COMPARED = sorted(name for name, row in chart_values().items() if row.sha256)


def test_tables_are_compared_for_the_charts_that_stacks_need_most() -> None:
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
    for release in plan_of(file).operators:
        assert list(chart_values()[release.name].unknown(release.values)) == []


def test_every_value_that_could_be_set_is_one_of_the_charts() -> None:
    every = list(every_release())
    assert {release.name for release in every} == set(chart_values())
    for release in every:
        assert list(chart_values()[release.name].unknown(release.values)) == []


def test_a_described_chart_has_its_sections_its_keys_and_its_free_maps() -> None:
    values = {"a": 1, "b": {"c": [1], "d": {}, "nodeSelector": {"x": "y"}}, "e": None}
    assert described(values) == {".": f"a e{FREE}", "b": f"c d{FREE} nodeSelector{FREE}"}


def test_every_chart_has_a_digest_or_the_reason_why_not() -> None:
    pinned = {**cloud_charts(), **charts()}
    unknown = {name for name, chart in pinned.items() if chart.digest is None}
    assert unknown == {name for name, row in pinned.items() if row.digest_source.startswith("unknown, because ")}


def test_helm_gets_the_digest_of_a_chart_in_an_oci_registry() -> None:
    kueue, keda = release_of(made_here(), "kueue"), release_of(made_here(), "keda")
    assert kueue.chart == f"oci://registry.k8s.io/kueue/charts/kueue@{charts()['kueue'].digest}"
    assert (keda.chart, keda.digest) == ("keda", charts()["keda"].digest)


def test_another_version_of_a_chart_has_no_digest_until_the_stack_sets_one() -> None:
    other = f"sha256:{'a' * 64}"
    for operator, digest in (
        ({"version": "0.19.1"}, None),
        ({"version": charts()["kueue"].version}, charts()["kueue"].digest),
        ({"version": "0.19.1", "digest": other}, other),
        ({"digest": other}, other),
    ):
        kueue = release_of(made_here(operators={"kueue": operator}), "kueue")
        assert kueue.digest == digest
        assert kueue.chart == "oci://registry.k8s.io/kueue/charts/kueue" + (f"@{digest}" if digest else "")


def test_a_digest_belongs_to_the_chart_that_the_stack_configures() -> None:
    other = f"sha256:{'a' * 64}"
    intel = made_here(operators={"intelDevicePlugin": {"install": "here", "digest": other}})
    assert release_of(intel, "intel-device-plugins-gpu").digest == other
    whole = release_of(intel, "intel-device-plugins-operator")
    assert whole.digest == charts()["intel-device-plugins-operator"].digest


def test_all_operators_together_fit_on_one_node_of_the_smallest_system_machine() -> None:
    requests = [chart.requests for chart in charts().values()]
    cpu, memory = sum(row.cpu for row in requests), sum(row.memory for row in requests)
    for (cloud, name), machine in machines().items():
        if cloud in clouds() and cloud != "existing" and not machine.gpus:
            room = allocatable(machine)
            assert (cpu <= room[0], memory <= room[1]) == (True, True), name
