"""The operators: choice, order, values, and architectures."""

from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders import EKS, PROVIDED, Data, job, planned, pool, server, stack, team, tree_of
from operators_builders import (
    HERE,
    ROOT,
    STACKS,
    amd,
    amd_made_here,
    intel,
    made_here,
    names,
    plan_of,
    release,
    with_gangs,
    with_jobs,
)

from gpu_tenancy.base.json import at
from gpu_tenancy.model.catalogue.operators import charts, operators
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.checks.operators import unknown_architectures
from gpu_tenancy.model.plan import needs
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import Reason

# What is installed


@pytest.mark.parametrize(
    "file", [file for file in STACKS if "cloud: existing" in file.read_text()], ids=lambda f: f.stem
)
def test_no_operator_is_installed_in_an_existing_cluster(file: Path) -> None:
    assert plan_of(file).operators == ()


HISTOGRAM: Data = {"histogram": "inference_seconds"}
INSTALLED: dict[str, tuple[Data, list[str]]] = {
    "what a stack needs": (made_here(), HERE),
    "no pool with GPUs": (made_here(pools={"cpu": pool("m7i.8xlarge", 3)}, teams={"a": team()}),
        [name for name in HERE if name != "gpu-operator"]),
    "gangs bring Volcano after Kueue": (with_gangs(),
        ["kube-prometheus-stack", "gpu-operator", "kueue", "volcano", "keda"]),
    "jobs of plain Kubernetes": (with_jobs(), HERE),
    "jobs whose pods start together": (with_jobs(gang=True), [*HERE[:3], "volcano", *HERE[3:]]),
    "TrainJobs": (with_jobs(framework="pytorch"), [*HERE, "kubeflow-trainer"]),
    "RayJobs": (with_jobs(framework="ray", command=["/train"]), [*HERE, "kuberay-operator"]),
    "leaders and workers": (with_jobs(framework="leader-worker", command=["/train"]), [*HERE, "lws"]),
    "off": (made_here(operators={"prometheus": "off"}), HERE[1:]),
    "installed": (made_here(operators={"prometheus": "installed"}), HERE[1:]),
    "false": (made_here(operators={"prometheus": False}), HERE[1:]),
    "an optional operator": (made_here(operators={"fluid": "here"}), [*HERE, "fluid"]),
    "the adapter in place of KEDA": (made_here(operators={"prometheusAdapter": "here"}),
        [*HERE[:-1], "prometheus-adapter"]),
    "a histogram for KEDA": (made_here(metrics=HISTOGRAM), HERE),
    "a histogram for the adapter": (made_here(metrics={**HISTOGRAM, "by": "adapter"}),
        [*HERE[:-1], "prometheus-adapter"]),
    "in a cluster that exists": (stack(operators={"kueue": "here"}), ["kueue"]),
    "GPUs of AMD in a cluster that exists": (amd(operators={"amdGpuOperator": "here"}), ["gpu-operator-charts"]),
    "GPUs of AMD": (amd_made_here(), ["kube-prometheus-stack", "gpu-operator-charts", "kueue", "keda"]),
    "GPUs of Intel": (intel(operators={"intelDevicePlugin": "here"}),
        ["cert-manager", "intel-device-plugins-operator", "intel-device-plugins-gpu"]),
    "cert-manager for its own sake": (made_here(operators={"certManager": "here"}),
        [HERE[0], "cert-manager", *HERE[1:]]),
}  # fmt: skip


@pytest.mark.parametrize(("sections", "expected"), INSTALLED.values(), ids=INSTALLED)
def test_what_is_installed_and_in_which_order(sections: Data, expected: list[str]) -> None:
    assert names(sections) == expected


def test_cert_manager_is_installed_before_its_users() -> None:
    operators = dict.fromkeys(("prometheus", "kueue", "keda", "intelDevicePlugin"), "here")
    in_order = names(intel(operators=operators))
    assert in_order[:3] == ["kube-prometheus-stack", "cert-manager", "intel-device-plugins-operator"]


@pytest.mark.parametrize(
    "operators",
    [
        {"certManager": "installed"},
        {"intelDevicePlugin": "installed"},
        {"intelDevicePlugin": "off", "certManager": "off"},
    ],
    ids=["it is installed", "what wants it is installed", "what wants it is off"],
)
def test_cert_manager_is_left_out_where(operators: Data) -> None:
    sections = intel(operators={"kueue": "here", "intelDevicePlugin": "here", **operators})
    assert "cert-manager" not in names(sections)


def test_the_stacks_version_goes_before_the_catalogues() -> None:
    assert release(made_here(operators={"keda": {"version": "2.21.0"}}), "keda").version == "2.21.0"
    assert release(made_here(), "keda").version == charts()["keda"].version


def test_every_release_lists_its_api_groups() -> None:
    serves = {release.name: release.serves for release in plan_of(ROOT / "stacks" / "Pulumi.prod-gcp.yaml").operators}
    assert serves == {
        "kube-prometheus-stack": ("monitoring.coreos.com",),
        "gpu-operator": ("nvidia.com",),
        "kueue": ("kueue.x-k8s.io",),
        "volcano": ("scheduling.volcano.sh", "batch.volcano.sh"),
        "keda": ("keda.sh",),
        "kubeflow-trainer": ("trainer.kubeflow.org", "jobset.x-k8s.io"),
    }


# Values that follow from the stack


DRIVEN = made_here(operators={"draDriver": "here", "gpuOperator": {"values": {"devicePlugin": {"enabled": False}}}})
TOLERATION = {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
VALUES: list[tuple[Data, str, str, object]] = [  # a stack, a chart, the place of a value, and the value
    (made_here(operators={"lws": {"install": "here", "version": "0.8.0"}}), "lws", "image.manager.tag", "v0.8.0"),
    (made_here(operators={"lws": "here"}), "lws", "image.manager.tag", "v0.9.0"),
    (amd_made_here(), "gpu-operator-charts", "kmm", {"enabled": False, "watch": False}),
    (amd_made_here(), "gpu-operator-charts", "deviceConfig.spec.driver", {"enable": False}),
    (amd_made_here(), "gpu-operator-charts", "deviceConfig.spec.devicePlugin.devicePluginTolerations", [TOLERATION]),
    (with_jobs(framework="pytorch"), "kubeflow-trainer", "runtimes.torchDistributed", {"enabled": True}),
    (with_jobs(framework="pytorch"), "kubeflow-trainer", "jobset", {"install": True}),
    (made_here(), "kube-prometheus-stack", "prometheus.prometheusSpec.serviceMonitorSelectorNilUsesHelmValues", False),
    (made_here(), "kube-prometheus-stack", "grafana.sidecar.dashboards.label", "grafana_dashboard"),
    (made_here(), "keda", "crds", {"additionalAnnotations": {"helm.sh/resource-policy": "keep"}}),
    (DRIVEN, "dra-driver-nvidia-gpu", "gpuResourcesEnabledOverride", True),
    (DRIVEN, "dra-driver-nvidia-gpu", "nvidiaDriverRoot", "/"),
]


@pytest.mark.parametrize(("sections", "chart", "place", "value"), VALUES)
def test_values_follow_from_the_stack(sections: Data, chart: str, place: str, value: object) -> None:
    assert at(release(sections, chart).values, *place.split(".")) == value


@pytest.mark.parametrize(("prometheus", "monitored"), [("here", True), ("installed", True), ("off", False)])
def test_monitors_are_made_where_prometheus_is_there(prometheus: str, *, monitored: bool) -> None:
    sections = made_here(operators={"prometheus": prometheus})
    assert release(sections, "gpu-operator").values["dcgmExporter"]["serviceMonitor"] == {"enabled": monitored}
    assert release(sections, "kueue").values["enablePrometheus"] is monitored
    assert release(sections, "keda").values["prometheus"]["operator"]["serviceMonitor"] == {"enabled": monitored}
    chart_release = release(amd_made_here(operators={"prometheus": prometheus, "certManager": "here"}), "cert-manager")
    assert chart_release.values["crds"] == {"enabled": True, "keep": True}
    assert chart_release.values["prometheus"] == {"servicemonitor": {"enabled": monitored}}
    assert not chart_release.definitions_go


def test_the_gpu_operators_values_are_those_of_the_pools_drivers() -> None:
    plan = planned(made_here())
    values = next(release.values for release in plan.operators if release.name == "gpu-operator")
    assert {key: values[key] for key in plan.cluster.gpu_operator} == dict(plan.cluster.gpu_operator)


@pytest.mark.parametrize(("gangs", "loses"), [(False, True), (True, False)])
def test_a_new_driver_waits_for_the_jobs_of_one_node_at_a_time(*, gangs: bool, loses: bool) -> None:
    volcano = {"gangs": {"h100": {"guaranteed": 4, "limit": 4}}} if gangs else {}
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, **volcano)}
    own = release(stack(operators={"gpuOperator": "here"}, teams=teams), "gpu-operator").values
    assert own["driver"]["upgradePolicy"] == {
        "autoUpgrade": True,
        "maxParallelUpgrades": 1,
        "waitForCompletion": {"podSelector": "kueue.x-k8s.io/podset,kueue.x-k8s.io/managed!=true", "timeoutSeconds": 0},
        "gpuPodDeletion": {"force": False, "deleteEmptyDir": loses},
        "drain": {"enable": False},
    }
    assert "upgradePolicy" not in release(made_here(), "gpu-operator").values["driver"], "the node image has the driver"


def test_extra_values_win_over_those_of_the_stack() -> None:
    extra = {"controllerManager": {"replicas": 2}, "enablePrometheus": False}
    values = release(made_here(operators={"kueue": {"values": extra}}), "kueue").values
    assert values["controllerManager"]["replicas"] == 2
    assert values["controllerManager"]["featureGates"]
    assert values["enablePrometheus"] is False


def test_volcano_takes_guarantees_back_where_gangs_have_them() -> None:
    values = release(with_gangs(), "volcano").values
    scheduler = yaml.safe_load(values["custom"]["scheduler_config_override"])
    plugins = [plugin["name"] for tier in scheduler["tiers"] for plugin in tier["plugins"]]
    assert "reclaim" in scheduler["actions"]
    assert {"gang", "priority", "predicates", "capacity"} <= set(plugins)
    assert "proportion" not in plugins
    without = {"a": team(gangs={"l4": {"guaranteed": 0, "limit": 4}})}
    assert release({**with_gangs(), "teams": without}, "volcano").values == {}


@pytest.mark.parametrize("name", ["dev-aws", "prod-aws", "prod-gcp", "prod-azure"])
def test_prometheus_ignores_hidden_parts_and_keeps_samples(name: str) -> None:
    (prometheus,) = (one for one in plan_of(ROOT / f"stacks/Pulumi.{name}.yaml").operators if "prometheus" in one.name)
    off = {key for key, value in prometheus.values.items() if value == {"enabled": False}}
    assert off >= {"kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy"}
    assert ("coreDns" in off) == (name == "prod-gcp")
    assert prometheus.values["defaultRules"]["disabled"]["KubeAPIErrorBudgetBurn"] is True
    spec = prometheus.values["prometheus"]["prometheusSpec"]
    limits = ("720h", "409600MB") if name == "prod-gcp" else ("360h", "81920MB")
    assert (spec["retention"], spec["retentionSize"]) == limits
    volume = spec["storageSpec"]["volumeClaimTemplate"]["spec"]
    assert volume["resources"] == {"requests": {"storage": "500Gi" if name == "prod-gcp" else "100Gi"}}
    silences = prometheus.values["alertmanager"]["alertmanagerSpec"]["storage"]["volumeClaimTemplate"]["spec"]
    assert silences == {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}


def test_metrics_have_a_volume_only_of_a_class_that_exists() -> None:
    def classes(**sections: Any) -> list[str | None]:
        cluster = {**EKS, "provides": ["networkPolicies", "resourceMetrics"]}
        values = release(stack(cluster=cluster, **sections), "kube-prometheus-stack").values
        claims = [
            values["prometheus"]["prometheusSpec"].get("storageSpec"),
            values.get("alertmanager", {}).get("alertmanagerSpec", {}).get("storage"),
        ]
        return [claim["volumeClaimTemplate"]["spec"].get("storageClassName") for claim in claims if claim]

    assert classes() == []
    assert classes(metrics={"storage": {"storageClass": "fast"}}) == ["fast", "fast"]


@pytest.mark.parametrize(
    ("metrics", "host"),
    [
        ({"release": "kps", "namespace": "watch"}, "kps-kube-prometheus-stack-prometheus.watch.svc"),
        ({"release": "prometheus"}, "prometheus-kube-prometheus-prometheus.monitoring.svc"),
    ],
)
def test_prometheus_is_addressed_by_its_service(metrics: Data, host: str) -> None:
    measured = {"histogram": "inference_seconds", "by": "adapter", "prometheus": metrics}
    sections = made_here(metrics=measured)
    prometheus, adapter = release(sections, "kube-prometheus-stack"), release(sections, "prometheus-adapter")
    assert f"{prometheus.values['fullnameOverride']}-prometheus.{prometheus.namespace}.svc" == host
    assert adapter.values["prometheus"] == {"url": f"http://{host}", "port": 9090, "path": ""}
    assert [rule["name"]["as"] for rule in adapter.values["rules"]["custom"]] == ["inference_p99_seconds"]


def test_jobs_are_walked_once_for_all_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = needs.CONDITIONS["jobs"]

    def walks(teams: int) -> int:
        calls = 0

        def counted(of: Environment, operator: str) -> Reason | None:
            nonlocal calls
            calls += 1
            return jobs(of, operator)

        monkeypatch.setitem(cast("dict[str, object]", needs.CONDITIONS), "jobs", counted)
        planned(stack(teams={f"team-{number}": team() for number in range(teams)}))
        return calls

    assert walks(2) == walks(12)


# Arm nodes.

GB200: Data = {"gb200": {"guaranteed": 4}}


def unknown(sections: Data) -> list[str]:
    return unknown_architectures(tree_of(sections))


def on_arm(**sections: object) -> Data:
    pools = {"cpu": pool("m7i.8xlarge", 3, labels={"node-type": "cpu"}), "gb200": pool("p6e-gb200.36xlarge", 4)}
    work = {"training": {"fit": job(gpus=4)}, "serving": {"chat": server()}}
    own = {"a": team(gpus=GB200, **work), "b": team(serving={"web": server(gpus=0)})}
    return stack(**{"cluster": {"cloud": "existing", **PROVIDED}, "pools": pools, "teams": own, **sections})


def test_images_that_gb200_needs_have_arm64() -> None:
    rows = {**charts(), **cloud_charts()}
    for name in (*operators()["gpu_operator"].charts, *operators()["dra_driver"].charts, *cloud_charts(), "kueue"):
        images = rows[name].images
        assert images is None or set(images.architectures or ()) == {"amd64", "arm64"}, name


def test_only_images_of_fluid_are_unknown() -> None:
    images = {name: chart.images for name, chart in charts().items()}
    assert [name for name, row in images.items() if row is None or row.architectures is None] == ["fluid"]


def test_a_stack_without_arm_nodes_has_nothing_to_check() -> None:
    assert unknown(stack(operators={"fluid": "here"}, teams={"a": team(serving={"web": server(gpus=0)})})) == []


def test_images_of_what_users_run_on_arm_nodes_are_named() -> None:
    assert unknown(on_arm()) == ["the image of job fit of team a", "the image of server chat of team a"]


def test_images_of_other_versions_are_unknown() -> None:
    installed = {"gpuOperator": {"install": "here", "version": "v26.7.0"}, "fluid": "here", "kueue": "here"}
    others = ["the images of gpuOperator v26.7.0", "the images of fluid 1.0.8"]
    assert unknown(on_arm(operators=installed))[:2] == others


def test_other_versions_are_not_judged_by_the_catalogue() -> None:
    mi300x = {"cpu": 96, "memory": "1850Gi", "gpu": "mi300x-vf", "gpus": 8, "architecture": "arm64"}
    sections = on_arm(
        pools={"cpu": pool("m7i.8xlarge", 3), "mi": pool("arm-mi300x", 1)},
        machines={"arm-mi300x": mi300x},
        operators={"amdGpuOperator": {"install": "here", "version": "v1.6.0"}},
        teams={"a": team(gpus={"mi": {"guaranteed": 8}})},
    )
    assert unknown(sections) == ["the images of amdGpuOperator v1.6.0"]
