"""Errors of operators: each shows the place, the rule and the fix."""

import pytest
from builders import EXISTING, Data, errors, pool, server, stack, team
from operators_builders import AMD_POOL, made_here, names

NEEDED = "is not possible because the stack needs the operator"


@pytest.mark.parametrize(
    "version", ["1.2", "latest", ">=1.2.3", "1.2.x", "^1.2.3", "1.2.3-main", "0.0.0-sha-48e7a93", ""]
)
def test_only_a_whole_release_is_a_version(version: str) -> None:
    (error,) = errors(made_here(operators={"keda": {"version": version}}))
    assert error.startswith("operators.keda.version: ")
    assert "is not a fixed chart version" in error


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
        f"operators.{operator}: off {NEEDED}: teams.a.serving.api.scaleOn.latencyP99 needs the metric;"
    )


def test_the_adapter_is_refused_while_keda_serves_the_metric() -> None:
    (error,) = errors(made_here(metrics={"histogram": "inference_seconds"}, operators={"prometheusAdapter": "here"}))
    assert error.startswith("operators.prometheusAdapter: here conflicts with keda: ")


def test_the_dra_driver_for_compute_domains_coexists_with_the_device_plugin() -> None:
    alone = {"install": "here", "values": {"resources": {"gpus": {"enabled": False}}}}
    assert errors(made_here(operators={"draDriver": alone})) == []


def test_intels_plugin_wants_the_label_by_which_it_finds_its_nodes() -> None:
    arc = {**AMD_POOL, "gpu": "Flex_170", "resource": "gpu.intel.com/i915"}
    sections: Data = {
        "cluster": EXISTING,
        "pools": {"cpu": pool("m7i.8xlarge", 3), "flex": arc},
        "teams": {"a": team()},
        "operators": {"intelDevicePlugin": "here"},
    }
    (error,) = errors(sections)
    assert error.startswith("pools.flex.labels: does not have the node label intel.feature.node.kubernetes.io/gpu")
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


def test_a_named_metric_without_a_server_is_refused() -> None:
    assert errors(made_here(**LATENCY)) == [
        (
            "metrics.latencyP99: latency_p99_seconds is a metric that nothing serves, so the autoscaler would"
            " never scale; set metrics.histogram instead, or set operators.prometheusAdapter: installed if an"
            " adapter serves it"
        )
    ]
    assert errors(made_here(**LATENCY, operators={"prometheusAdapter": "installed"})) == []
    assert errors(made_here(**LATENCY | {"metrics": {"histogram": "latency_seconds"}})) == []


def test_in_a_cluster_that_exists_its_adapter_is_its_owners() -> None:
    assert errors(stack(**LATENCY)) == []
