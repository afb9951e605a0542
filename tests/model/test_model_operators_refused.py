"""Errors of operators: each shows the place, the rule and the fix."""

import pytest
from builders import EXISTING, Data, errors, pool, server, stack, team
from operators_builders import AMD_POOL, amd_made_here, made_here, names, with_gangs, with_jobs

from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.spec.operators import Operators

NEEDED = "is not possible because the stack needs the operator"
IGNORED = "which Helm would ignore silently"
REFUSED: dict[str, tuple[Data, str]] = {
    "a branch for a version": (
        made_here(operators={"kueue": {"version": "v0.x-main"}}),
        (
            "operators.kueue.version: v0.x-main is not a fixed chart version, so clusters may run different"
            " versions; set one release, such as 1.2.3 (not a range, 'latest' or a branch)"
        ),
    ),
    "a tag for a digest": (
        made_here(operators={"kueue": {"digest": "sha256:0.19.2"}}),
        (
            "operators.kueue.digest: sha256:0.19.2 is not a digest of a chart; set sha256: and 64 hexadecimal digits;"
            " `tenancy charts` prints it"
        ),
    ),
    "a digest of what is off": (
        made_here(operators={"fluid": {"install": "off", "digest": f"sha256:{'a' * 64}"}}),
        (f"operators.fluid.digest: sha256:{'a' * 64} has no effect: fluid is off; set install: here, or remove it"),
    ),
    "no word of ours": (
        made_here(operators={"kueue": "on"}),
        "operators.kueue: unknown value 'on'; use one of: here, installed, off",
    ),
    "an unknown operator": (
        made_here(operators={"kueu": "here"}),
        (
            "operators.kueu: unknown key 'kueu' (did you mean 'kueue'?); use one of: kueue, kuberay, keda,"
            f" prometheus, gpuOperator, … ({len(Operators.model_fields)} in total; list them with: tenancy schema)"
        ),
    ),
    "a misspelt value": (
        made_here(operators={"kueue": {"values": {"controllerManager": {"replica": 2}}}}),
        (
            f"operators.kueue.values.controllerManager.replica: unknown value of chart kueue, {IGNORED};"
            " did you mean 'replicas'?"
        ),
    ),
    "one value in place of a section": (
        made_here(operators={"keda": {"values": {"prometheus": True}}}),
        (
            f"operators.keda.values.prometheus: unknown value of chart keda, {IGNORED};"
            " set keys below it: it is a section of the chart's values"
        ),
    ),
    "a section in place of one value": (
        made_here(operators={"kueue": {"values": {"enablePrometheus": {"enabled": True}}}}),
        (
            f"operators.kueue.values.enablePrometheus: unknown value of chart kueue, {IGNORED};"
            " set one value: the chart has no keys below it"
        ),
    ),
    "values of what somebody else installed": (
        stack(operators={"kueue": {"values": {"enablePrometheus": True}}}),
        "operators.kueue.values: has no effect: kueue is installed by default; set install: here, or remove it",
    ),
    "a version of what is off": (
        made_here(operators={"fluid": {"install": "off", "version": "1.0.8"}}),
        "operators.fluid.version: 1.0.8 has no effect: fluid is off; set install: here, or remove it",
    ),
    "no kueue for teams": (
        made_here(operators={"kueue": "off"}),
        (
            f"operators.kueue: off {NEEDED}: teams need queues; set here (or installed, if it is installed already),"
            " or remove kueue"
        ),
    ),
    "no volcano for gangs": (
        with_gangs(operators={"volcano": "off"}),
        (
            f"operators.volcano: off {NEEDED}: teams have gangs; set here (or installed, if it is installed already),"
            " or remove volcano"
        ),
    ),
    "no trainer for train jobs": (
        {**with_jobs(framework="pytorch"), "operators": {"trainer": "off"}},
        (
            f"operators.trainer: off {NEEDED}: jobs with framework: pytorch are TrainJobs; set here (or installed, if"
            " it is installed already), or remove trainer"
        ),
    ),
    "no operator for the driver": (
        made_here(operators={"gpuOperator": "off"}),
        (
            f"operators.gpuOperator: off {NEEDED}: it provides the device plugin of pool a100"
            f" ({clouds()['aws'].drivers['image'].means}); set here (or installed, if it is installed already), or"
            " remove gpuOperator"
        ),
    ),
    "no cert-manager for the webhooks of another": (
        amd_made_here(operators={"certManager": "off"}),
        (
            f"operators.certManager: off {NEEDED}: it issues the webhook certificates of amdGpuOperator; set here (or"
            " installed, if it is installed already), or remove certManager"
        ),
    ),
    "a misspelt value of cert-manager": (
        amd_made_here(operators={"certManager": {"values": {"crds": {"enable": True}}}}),
        (
            f"operators.certManager.values.crds.enable: unknown value of chart cert-manager, {IGNORED};"
            " did you mean 'enabled'?"
        ),
    ),
    "a misspelt value of a chart in the chart": (
        made_here(operators={"prometheus": {"values": {"grafana": {"persistance": {"enabled": True}}}}}),
        (
            f"operators.prometheus.values.grafana.persistance: unknown value of chart kube-prometheus-stack, {IGNORED};"
            " did you mean 'persistence'?"
        ),
    ),
    "two servers of one metric": (
        made_here(operators={"keda": "here", "prometheusAdapter": "here"}),
        (
            "operators.prometheusAdapter: here conflicts with keda: both would serve the same metric; install"
            " only the one that metrics.by names"
        ),
    ),
    "two advertisers of whole GPUs": (
        made_here(operators={"draDriver": "here"}),
        (
            "operators.draDriver: here conflicts with the device plugin of gpuOperator: both would allocate the"
            " same GPUs; set operators.gpuOperator.values.devicePlugin.enabled: false, or, if you need only"
            " compute domains, set operators.draDriver.values.resources.gpus.enabled: false"
        ),
    ),
    "a team in an operator's namespace": (
        made_here(teams={"keda": team(gpus={"h100": {"guaranteed": 8}})}),
        "teams.keda: keda is a reserved namespace of operator keda; rename the team",
    ),
}


@pytest.mark.parametrize(("sections", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_impossible_operator_settings_are_errors_with_place_rule_and_fix(sections: Data, message: str) -> None:
    assert errors(sections) == [message]


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
