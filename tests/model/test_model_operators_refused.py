"""Operators of a stack that cannot be: each is refused with its place, the rule and the mend."""

import pytest
from builders import Data, errors, pool, server, stack, team
from operators_builders import AMD_POOL, amd_made_here, made_here, names, with_gangs, with_jobs

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
            "operators.kueu: is no key here; did you mean 'kueue'? Known: amdGpuOperator, certManager, draDriver,"
            " driver, fluid, gpuOperator, intelDevicePlugin, keda, kueue, prometheus, prometheusAdapter, trainer,"
            " volcano"
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
    "no cert-manager for the webhooks of another": (
        amd_made_here(operators={"certManager": "off"}),
        (
            f"operators.certManager: off {LACKS}: amdGpuOperator, installed here, has its webhooks' certificates from"
            " it; write here (or installed, where somebody else did), or leave certManager out"
        ),
    ),
    "a misspelt value of cert-manager": (
        amd_made_here(operators={"certManager": {"values": {"crds": {"enable": True}}}}),
        (
            f"operators.certManager.values.crds.enable: is no value of chart cert-manager, {NO_VALUE};"
            " did you mean 'enabled'?"
        ),
    ),
    "a misspelt value of a chart in the chart": (
        made_here(operators={"prometheus": {"values": {"grafana": {"persistance": {"enabled": True}}}}}),
        (
            f"operators.prometheus.values.grafana.persistance: is no value of chart kube-prometheus-stack, {NO_VALUE};"
            " did you mean 'persistence'?"
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
    assert names(sections) == ["cert-manager", "intel-device-plugins-operator", "intel-device-plugins-gpu"]


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
