"""The operators: which are installed here, in what order, with what values, and what is refused."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders import Data, errors, job, planned, pool, server, stack, team

from model.catalogue.chart_values import FREE, chart_values, described
from model.catalogue.releases import charts
from model.load import load
from model.plan import Plan, plan
from model.plan.operators import OPERATORS, ReleasePlan, chart_of
from model.source import Source, read_file

ROOT = Path(__file__).parents[2]
UPSTREAM = ROOT.parent / "shared" / "upstream"
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
EKS = {"cloud": "aws", "name": "ml", "region": "eu-central-1", "subnets": {"eu-central-1a": "subnet-0123456789abcdef0"}}
GANG = {"l4": {"guaranteed": 4}}
AMD_POOL = {"cpu": 90, "memory": "1800Gi", "gpu": "MI300X", "gpusPerNode": 8, "resource": "amd.com/gpu", "nodes": 1}
HERE = ["kube-prometheus-stack", "gpu-operator", "kueue", "keda"]
"""What a stack with NVIDIA's GPUs and a team has where its nodes are made here."""


def made_here(**sections: Any) -> Data:
    """A cluster on EKS with CPU nodes and H100s, and a team."""
    return stack(cluster=EKS, **sections)


def with_gangs(**sections: Any) -> Data:
    """A team whose gangs are guaranteed GPUs."""
    pools = {"cpu": pool("m7i.8xlarge", 3), "l4": pool("g6.12xlarge", 4)}
    return made_here(pools=pools, teams={"a": team(gangs=GANG)}, **sections)


def with_jobs(**fields: Any) -> Data:
    """A team with one job."""
    return made_here(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training={"fit": job(**fields)})})


def amd(**sections: Any) -> Data:
    """A described AMD pool beside CPU nodes, in an existing cluster."""
    pools = {"cpu": pool("m7i.8xlarge", 3), "mi": AMD_POOL}
    return stack(pools=pools, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections)


def names(sections: Data) -> list[str]:
    return [release.name for release in planned(sections).operators]


def release(sections: Data, name: str) -> ReleasePlan:
    (found,) = (each for each in planned(sections).operators if each.name == name)
    return found


def kueue(sections: Data) -> Data:
    """Kueue's own configuration."""
    text = release(sections, "kueue").values["managerConfig"]["controllerManagerConfigYaml"]
    return cast("Data", yaml.safe_load(text))


def plan_of(file: Path) -> Plan:
    return plan(load(read_file(file)))


# What is installed


@pytest.mark.parametrize(
    "file", [each for each in STACKS if "cloud: existing" in each.read_text()], ids=lambda f: f.stem
)
def test_nothing_is_installed_in_a_cluster_that_exists(file: Path) -> None:
    assert plan_of(file).operators == ()


def test_a_cluster_on_a_cloud_gets_what_the_stack_needs_and_no_more() -> None:
    assert names(made_here()) == HERE


def test_a_pool_without_gpus_needs_no_gpu_operator() -> None:
    cpus = made_here(pools={"cpu": pool("m7i.8xlarge", 3)}, teams={"a": team()})
    assert names(cpus) == [each for each in HERE if each != "gpu-operator"]


def test_gangs_bring_volcano_after_kueue() -> None:
    assert names(with_gangs()) == ["kube-prometheus-stack", "gpu-operator", "kueue", "volcano", "keda"]


def test_pytorch_jobs_bring_the_trainer_last() -> None:
    assert names(with_jobs(framework="pytorch")) == [*HERE, "kubeflow-trainer"]
    assert names(with_jobs()) == HERE


@pytest.mark.parametrize("word", ["off", "installed", False])
def test_an_operator_is_left_out_by_a_word_also_where_yaml_reads_it_as_false(*, word: str | bool) -> None:
    assert names(made_here(operators={"prometheus": word})) == HERE[1:]


def test_what_is_off_if_left_out_is_installed_on_demand() -> None:
    assert names(made_here(operators={"fluid": "here"})) == [*HERE, "fluid"]


def test_the_adapter_takes_kedas_place() -> None:
    assert names(made_here(operators={"prometheusAdapter": "here"})) == [*HERE[:-1], "prometheus-adapter"]


def test_an_operator_may_be_installed_into_a_cluster_that_exists() -> None:
    assert names(stack(operators={"kueue": "here"})) == ["kueue"]


def test_other_vendors_gpus_bring_their_operators() -> None:
    assert names(amd(operators={"amdGpuOperator": "here"})) == ["gpu-operator-charts"]


def test_the_stacks_version_goes_before_the_catalogues() -> None:
    assert release(made_here(operators={"keda": {"version": "2.21.0"}}), "keda").version == "2.21.0"
    assert release(made_here(), "keda").version == charts()["keda"].version


def test_every_release_says_which_api_groups_wait_for_it() -> None:
    serves = {each.name: each.serves for each in plan_of(ROOT / "stacks" / "Pulumi.prod-gcp.yaml").operators}
    assert serves == {
        "kube-prometheus-stack": ("monitoring.coreos.com",),
        "gpu-operator": ("nvidia.com",),
        "kueue": ("kueue.x-k8s.io",),
        "volcano": ("scheduling.volcano.sh", "batch.volcano.sh"),
        "keda": ("keda.sh",),
        "kubeflow-trainer": ("trainer.kubeflow.org", "jobset.x-k8s.io"),
    }


# Values that follow from the stack


@pytest.mark.parametrize(("prometheus", "monitored"), [("here", True), ("installed", True), ("off", False)])
def test_monitors_are_made_where_prometheus_is_there(prometheus: str, *, monitored: bool) -> None:
    sections = made_here(operators={"prometheus": prometheus})
    assert release(sections, "gpu-operator").values["dcgmExporter"]["serviceMonitor"] == {"enabled": monitored}
    assert release(sections, "kueue").values["enablePrometheus"] is monitored
    assert release(sections, "keda").values["prometheus"]["operator"]["serviceMonitor"] == {"enabled": monitored}


def test_the_gpu_operators_values_are_those_of_the_pools_drivers() -> None:
    made = planned(made_here())
    values = next(each.values for each in made.operators if each.name == "gpu-operator")
    assert {key: values[key] for key in made.fleet.gpu_operator} == dict(made.fleet.gpu_operator)


def test_extra_values_go_over_those_that_follow_from_the_stack_and_leave_the_rest() -> None:
    extra = {"controllerManager": {"replicas": 2}, "enablePrometheus": False}
    values = release(made_here(operators={"kueue": {"values": extra}}), "kueue").values
    assert values["controllerManager"]["replicas"] == 2
    assert values["controllerManager"]["featureGates"]
    assert values["enablePrometheus"] is False


def test_kueue_manages_every_kind_of_work_that_a_team_may_start() -> None:
    assert kueue(made_here())["integrations"] == {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]}


def test_kueue_manages_train_jobs_and_their_job_sets_where_there_are_any() -> None:
    frameworks = kueue(with_jobs(framework="pytorch"))["integrations"]["frameworks"]
    assert frameworks[-2:] == ["jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]


def test_kueue_leaves_a_gangs_pods_to_volcano_and_is_allowed_to_find_out() -> None:
    assert kueue(with_gangs())["integrations"]["externalFrameworks"] == ["Job.v1alpha1.batch.volcano.sh"]
    assert release(with_gangs(), "kueue").reads == (("batch.volcano.sh", "jobs"),)
    assert release(made_here(), "kueue").reads == ()


@pytest.mark.parametrize("file", STACKS, ids=lambda f: f.stem)
def test_every_workload_without_a_queue_in_a_teams_namespace_waits_and_none_elsewhere(file: Path) -> None:
    made = plan_of(file)
    selector = kueue(with_gangs())["managedJobsNamespaceSelector"]
    for each in made.teams:
        assert _selects(selector, {**each.namespace.labels, "kubernetes.io/metadata.name": each.namespace.name})
        assert all(work.queue for work in (*each.servers, *each.jobs))
    for name in ("kube-system", *(row.namespace for row in charts().values() if row.namespace)):
        ours = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
        assert not _selects(selector, {**ours, "kubernetes.io/metadata.name": name})
    assert not _selects(selector, {"kubernetes.io/metadata.name": "gke-managed-system"})


def _selects(selector: Data, labels: Mapping[str, str]) -> bool:
    """As a label selector of Kubernetes does, of the two ways that are used."""
    (expression,) = selector["matchExpressions"]
    assert expression["operator"] == "NotIn"
    spared = labels.get(expression["key"]) in expression["values"]
    return selector["matchLabels"].items() <= labels.items() and not spared


def test_fair_sharing_is_said_only_where_teams_share_evenly() -> None:
    assert "fairSharing" not in kueue(made_here())
    strategies = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    assert kueue(made_here(fairness="even"))["fairSharing"] == strategies


def test_kueue_has_its_quota_metrics_and_evicts_nothing_for_being_slow() -> None:
    configuration, values = kueue(made_here()), release(made_here(), "kueue").values
    assert configuration["metrics"]["enableClusterQueueResources"] is True
    assert "waitForPodsReady" not in configuration
    assert values["controllerManager"]["featureGates"] == [{"name": "DisableWaitForPodsReady", "enabled": True}]


def test_what_no_queue_covers_holds_no_job_back_and_what_one_covers_is_counted() -> None:
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
    again = with_gangs(fairness="even")
    assert planned(again).operators == planned(json.loads(json.dumps(again))).operators


def test_volcano_takes_guarantees_back_where_gangs_have_them() -> None:
    values = release(with_gangs(), "volcano").values
    scheduler = yaml.safe_load(values["custom"]["scheduler_config_override"])
    plugins = [plugin["name"] for tier in scheduler["tiers"] for plugin in tier["plugins"]]
    assert "reclaim" in scheduler["actions"]
    assert {"gang", "priority", "predicates", "capacity"} <= set(plugins)
    assert "proportion" not in plugins


def test_volcano_keeps_its_own_configuration_where_nothing_is_guaranteed() -> None:
    sections = with_gangs()
    sections["teams"] = {"a": team(gangs={"l4": {"guaranteed": 0, "limit": 4}})}
    assert release(sections, "volcano").values == {}


def test_the_trainers_runtime_that_train_jobs_name_is_there() -> None:
    values = release(with_jobs(framework="pytorch"), "kubeflow-trainer").values
    assert values["runtimes"]["torchDistributed"] == {"enabled": True}
    assert values["jobset"] == {"install": True}


def test_prometheus_takes_everybodys_monitors_and_grafana_everybodys_dashboards() -> None:
    values = release(made_here(), "kube-prometheus-stack").values
    assert values["prometheus"]["prometheusSpec"]["serviceMonitorSelectorNilUsesHelmValues"] is False
    assert values["grafana"]["sidecar"]["dashboards"]["label"] == "grafana_dashboard"


@pytest.mark.parametrize(
    ("metrics", "host"),
    [
        ({"release": "kps", "namespace": "watch"}, "kps-kube-prometheus-stack-prometheus.watch.svc"),
        ({"release": "prometheus"}, "prometheus-kube-prometheus-prometheus.monitoring.svc"),
    ],
)
def test_prometheus_answers_where_it_is_asked(metrics: Data, host: str) -> None:
    measured = {"histogram": "inference_seconds", "by": "adapter", "prometheus": metrics}
    sections = made_here(metrics=measured)
    prometheus, adapter = release(sections, "kube-prometheus-stack"), release(sections, "prometheus-adapter")
    assert f"{prometheus.values['fullnameOverride']}-prometheus.{prometheus.namespace}.svc" == host
    assert adapter.values["prometheus"] == {"url": f"http://{host}", "port": 9090, "path": ""}
    assert [rule["name"]["as"] for rule in adapter.values["rules"]["custom"]] == ["inference_p99_seconds"]


def test_who_brings_the_histogram_to_the_autoscalers_is_there() -> None:
    assert names(made_here(metrics={"histogram": "inference_seconds"})) == HERE
    by_adapter = made_here(metrics={"histogram": "inference_seconds", "by": "adapter"})
    assert names(by_adapter) == [*HERE[:-1], "prometheus-adapter"]


def test_jobs_whose_pods_start_together_bring_volcano() -> None:
    assert "volcano" in names(with_jobs(together=True))


def test_kedas_definitions_outlive_its_release() -> None:
    assert release(made_here(), "keda").values["crds"] == {"additionalAnnotations": {"helm.sh/resource-policy": "keep"}}


def test_amds_pods_tolerate_the_taint_of_its_pools() -> None:
    spec = release(amd(operators={"amdGpuOperator": "here"}), "gpu-operator-charts").values["deviceConfig"]["spec"]
    tolerations = [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["devicePlugin"]["devicePluginTolerations"] == tolerations


def test_the_dra_driver_in_place_of_the_device_plugin_finds_the_images_driver() -> None:
    off = {"values": {"devicePlugin": {"enabled": False}}}
    values = release(made_here(operators={"draDriver": "here", "gpuOperator": off}), "dra-driver-nvidia-gpu").values
    assert values["gpuResourcesEnabledOverride"] is True
    assert values["nvidiaDriverRoot"] == "/"


# What is refused

NO_VALUE = "and Helm would ignore it without a word"
LACKS = "leaves nothing there for what the stack needs it for"
REFUSED: dict[str, tuple[Data, str]] = {
    "a branch for a version": (
        made_here(operators={"kueue": {"version": "v0.x-main"}}),
        (
            "operators.kueue.version: v0.x-main is no fixed version of a chart, so two clusters of one stack may run"
            " two programs; write one release whole, such as 1.2.3: no range, no 'latest', no branch"
        ),
    ),
    "no word of ours": (
        made_here(operators={"kueue": "on"}),
        "operators.kueue: on is none of 'here', 'installed' or 'off'; known: here, installed, off",
    ),
    "an unknown operator": (
        made_here(operators={"kueu": "here"}),
        (
            "operators.kueu: is no key here; did you mean 'kueue'? Known: amdGpuOperator, draDriver, driver, fluid,"
            " gpuOperator, intelDevicePlugin, keda, kueue, prometheus, prometheusAdapter, trainer, volcano"
        ),
    ),
    "a misspelt value": (
        made_here(operators={"kueue": {"values": {"controllerManager": {"replica": 2}}}}),
        (
            f"operators.kueue.values.controllerManager.replica: is no value of chart kueue, {NO_VALUE};"
            " did you mean 'replicas'?"
        ),
    ),
    "one value in place of a section": (
        made_here(operators={"keda": {"values": {"prometheus": True}}}),
        f"operators.keda.values.prometheus: is no value of chart keda, {NO_VALUE}; it is a section: write its keys",
    ),
    "a section in place of one value": (
        made_here(operators={"kueue": {"values": {"enablePrometheus": {"enabled": True}}}}),
        (
            f"operators.kueue.values.enablePrometheus: is no value of chart kueue, {NO_VALUE};"
            " it takes one value, and no keys of its own"
        ),
    ),
    "values of what somebody else installed": (
        stack(operators={"kueue": {"values": {"enablePrometheus": True}}}),
        (
            "operators.kueue.values: is for what is installed here, and kueue is installed by default;"
            " write install: here, or leave it out"
        ),
    ),
    "a version of what is off": (
        made_here(operators={"fluid": {"install": "off", "version": "1.0.8"}}),
        (
            "operators.fluid.version: 1.0.8 is for what is installed here, and fluid is off;"
            " write install: here, or leave it out"
        ),
    ),
    "no kueue for teams": (
        made_here(operators={"kueue": "off"}),
        (
            f"operators.kueue: off {LACKS}: the teams' queues; write here (or installed, where somebody else did),"
            " or leave kueue out"
        ),
    ),
    "no volcano for gangs": (
        with_gangs(operators={"volcano": "off"}),
        (
            f"operators.volcano: off {LACKS}: teams have gangs; write here (or installed, where somebody else did),"
            " or leave volcano out"
        ),
    ),
    "no trainer for train jobs": (
        {**with_jobs(framework="pytorch"), "operators": {"trainer": "off"}},
        (
            f"operators.trainer: off {LACKS}: jobs of framework pytorch are TrainJobs; write here (or installed, where"
            " somebody else did), or leave trainer out"
        ),
    ),
    "no operator for the driver": (
        made_here(operators={"gpuOperator": "off"}),
        (
            f"operators.gpuOperator: off {LACKS}: pool a100 has a driver whose device plugin it brings (driver and"
            " container toolkit are in the AL2023 NVIDIA image, the GPU Operator brings the device plugin); write here"
            " (or installed, where somebody else did), or leave gpuOperator out"
        ),
    ),
    "two servers of one metric": (
        made_here(operators={"keda": "here", "prometheusAdapter": "here"}),
        (
            "operators.prometheusAdapter: here is installed beside keda, and two servers of one metric would scale one"
            " Deployment against each other; keep the one that metrics.by names"
        ),
    ),
    "two advertisers of whole GPUs": (
        made_here(operators={"draDriver": "here"}),
        (
            "operators.draDriver: here offers whole GPUs beside the device plugin of gpuOperator, and each GPU would be"
            " given away twice; write operators.gpuOperator.values.devicePlugin.enabled: false, or, for compute domains"
            " alone, operators.draDriver.values.resources.gpus.enabled: false"
        ),
    ),
    "a team in an operator's namespace": (
        made_here(teams={"keda": team(gpus={"h100": {"guaranteed": 8}})}),
        "teams.keda: keda is the namespace of keda; name the team otherwise",
    ),
}


@pytest.mark.parametrize(("sections", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_with_place_rule_and_mend(sections: Data, message: str) -> None:
    assert errors(sections) == [message]


@pytest.mark.parametrize(
    "version", ["1.2", "latest", ">=1.2.3", "1.2.x", "^1.2.3", "1.2.3-main", "0.0.0-sha-48e7a93", ""]
)
def test_only_a_whole_release_is_a_version(version: str) -> None:
    (error,) = errors(made_here(operators={"keda": {"version": version}}))
    assert error.startswith("operators.keda.version: ")
    assert "is no fixed version of a chart" in error


@pytest.mark.parametrize("version", ["1.2.3", "v26.3.3", "1.5.1-beta.0", "2.3.0-rc1"])
def test_a_whole_release_is_a_version_with_or_without_a_v(version: str) -> None:
    assert errors(made_here(operators={"keda": {"version": version}})) == []


@pytest.mark.parametrize(
    ("by", "operator"),
    [("keda", "keda"), ("keda", "prometheus"), ("adapter", "prometheus"), ("adapter", "prometheusAdapter")],
)
def test_a_latency_target_needs_something_that_serves_the_metric(by: str, operator: str) -> None:
    serving = {"api": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": "100ms"})}
    sections = made_here(
        teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving=serving)},
        metrics={"histogram": "inference_seconds", "by": by},
    )
    assert errors(sections) == []
    (error,) = errors({**sections, "operators": {operator: "off"}})
    assert error.startswith(
        f"operators.{operator}: off {LACKS}: teams.a.serving.api.scaleOn.latencyP99 wants a metric;"
    )


def test_the_adapter_is_no_choice_while_keda_brings_the_metric() -> None:
    (error,) = errors(made_here(metrics={"histogram": "inference_seconds"}, operators={"prometheusAdapter": "here"}))
    assert error.startswith("operators.prometheusAdapter: here is installed beside keda")


def test_the_dra_driver_for_compute_domains_alone_goes_beside_the_device_plugin() -> None:
    alone = {"install": "here", "values": {"resources": {"gpus": {"enabled": False}}}}
    assert errors(made_here(operators={"draDriver": alone})) == []


def test_intels_plugin_wants_the_label_by_which_it_finds_its_nodes() -> None:
    arc = {**AMD_POOL, "gpu": "Flex_170", "resource": "gpu.intel.com/i915"}
    sections: Data = {
        "pools": {"cpu": pool("m7i.8xlarge", 3), "flex": arc},
        "teams": {"a": team()},
        "operators": {"intelDevicePlugin": "here"},
    }
    (error,) = errors(sections)
    assert error.startswith("pools.flex.labels: lacks the node label intel.feature.node.kubernetes.io/gpu")
    sections["pools"]["flex"] = {**arc, "labels": {"intel.feature.node.kubernetes.io/gpu": "true"}}
    assert names(sections) == ["intel-device-plugins-operator", "intel-device-plugins-gpu"]


def test_below_a_free_map_and_within_a_chart_in_the_chart_anything_goes() -> None:
    free = {"controllerManager": {"nodeSelector": {"example.com/any": "thing"}, "manager": {"resources": {"x": 1}}}}
    inner = {"grafana": {"deploymentStrategy": {"type": "Recreate"}}}
    assert errors(made_here(operators={"kueue": {"values": free}, "prometheus": {"values": inner}})) == []


# The tables


def test_every_operator_has_a_release_and_a_table_of_values() -> None:
    for name in OPERATORS:
        assert charts()[chart_of(name)].namespace
        assert chart_of(name) in chart_values()
    assert set(chart_values()) <= set(charts())


def _upstream(chart: str) -> Data:
    file = UPSTREAM / "charts" / chart / "values.yaml"
    if not file.is_file():
        pytest.skip(f"the values of chart {chart} are not beside the repository")
    return cast("Data", yaml.safe_load(file.read_text()))


@pytest.mark.parametrize(
    "chart",
    [
        "fluid", "gpu-operator", "keda", "kube-prometheus-stack", "kubeflow-trainer", "kueue", "prometheus-adapter",
        "volcano",
    ],
)  # fmt: skip
def test_the_table_agrees_with_the_chart_itself(chart: str) -> None:
    assert chart_values()[chart].keys == described(_upstream(chart))


@pytest.mark.parametrize("file", STACKS, ids=lambda f: f.stem)
def test_every_value_that_is_set_is_one_of_the_charts(file: Path) -> None:
    for each in plan_of(file).operators:
        assert list(chart_values()[each.name].unknown(each.values)) == []


def _everything() -> Iterator[ReleasePlan]:
    intel = {**AMD_POOL, "gpu": "Flex_170", "resource": "gpu.intel.com/i915"}
    pools = {
        "cpu": pool("m7i.8xlarge", 3),
        "h100": pool(),
        "mi": AMD_POOL,
        "flex": {**intel, "labels": {"intel.feature.node.kubernetes.io/gpu": "true"}},
    }
    work = {"gangs": {"h100": {"guaranteed": 8}}, "training": {"fit": job(framework="pytorch", flavor="h100")}}
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, **work)}
    every = ["prometheus", "gpuOperator", "amdGpuOperator", "intelDevicePlugin", "kueue", "volcano", "trainer", "fluid"]
    dra = {"install": "here", "values": {"resources": {"gpus": {"enabled": False}}}}
    for server_of_metrics in ("keda", "prometheusAdapter"):
        operators: Data = {**dict.fromkeys([*every, server_of_metrics], "here"), "draDriver": dra}
        made = plan(load(Source({"pools": pools, "teams": teams, "fairness": "even", "operators": operators})))
        yield from made.operators


def test_every_value_that_could_be_set_is_one_of_the_charts() -> None:
    every = list(_everything())
    assert {each.name for each in every} == set(chart_values())
    for each in every:
        assert list(chart_values()[each.name].unknown(each.values)) == []


def test_a_described_chart_has_its_sections_its_keys_and_its_free_maps() -> None:
    values = {"a": 1, "b": {"c": [1], "d": {}, "nodeSelector": {"x": "y"}}, "e": None}
    assert described(values) == {".": f"a e{FREE}", "b": f"c d{FREE} nodeSelector{FREE}"}


LATENCY: Data = {
    "metrics": {"latencyP99": "latency_p99_seconds"},
    "teams": {
        "a": team(
            gpus={"h100": {"guaranteed": 8}},
            serving={"s": server(replicas={"min": 1, "max": 4}, scaleOn={"latencyP99": "100ms"})},
        )
    },
}


def test_a_metric_that_is_only_named_is_refused_where_nothing_serves_it() -> None:
    assert errors(made_here(**LATENCY)) == [
        (
            "metrics.latencyP99: latency_p99_seconds is a metric that nothing here serves, so an autoscaler would never"
            " act on it; write metrics.histogram in its place, or operators.prometheusAdapter: installed, where one"
            " serves it"
        )
    ]
    assert errors(made_here(**LATENCY, operators={"prometheusAdapter": "installed"})) == []
    assert errors(made_here(**LATENCY | {"metrics": {"histogram": "latency_seconds"}})) == []


def test_in_a_cluster_that_exists_its_adapter_is_its_owners() -> None:
    assert errors(stack(**LATENCY)) == []
