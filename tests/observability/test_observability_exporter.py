"""Names of the embedded platform's metrics, compared with the table of real exporters; and owners of GPUs."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cli_builders import tenancy
from repository import ROOT

from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.local.samples import Devices, Sample, exposition, state_samples

AT = "2026-11-26T08:00:00Z"


def _conditions(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True", "reason": "Any"} for kind in kinds]


def _node(name: str, gpus: int) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "node-role.kubernetes.io/trainer": ""}
    amounts = {"cpu": "95500m", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": _conditions("Ready"),
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def _pod(name: str, node: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
    state: dict[str, Any] = {"terminated": {"finishedAt": AT}} if phase == "Succeeded" else {"running": {}}
    owner = {"kind": "Job", "name": "train", "controller": True}
    return {
        "metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": [owner], "deletionTimestamp": AT},
        "spec": {
            "nodeName": node,
            "priorityClassName": "ml-high",
            "containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus), "cpu": "500m"}}}],
        },
        "status": {"phase": phase, "startTime": AT, "containerStatuses": [{"state": state}]},
    }


JOB = {
    "metadata": {
        "name": "train", "namespace": "a", "creationTimestamp": AT,
        "ownerReferences": [{"kind": "JobSet", "name": "t"}],
    },
    "status": {
        "startTime": AT, "completionTime": AT, "active": 1, "failed": 2,
        "conditions": _conditions("Suspended", "Complete", "Failed"),
    },
}  # fmt: skip
OBJECTS: dict[str, list[dict[str, Any]]] = {
    "Node": [_node("n1", 4)],
    "Pod": [_pod("train-0", "n1", 2), _pod("old-0", "n1", 2, "Succeeded")],
    "Job": [JOB],
    "ResourceQuota": [
        {"metadata": {"name": "q", "namespace": "a"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}}}
    ],
    "Deployment": [
        {"metadata": {"name": "api", "namespace": "a"}, "status": {"conditions": _conditions("Progressing")}}
    ],
    "HorizontalPodAutoscaler": [
        {
            "metadata": {"name": "api", "namespace": "a"},
            "spec": {"maxReplicas": 5},
            "status": {"currentReplicas": 2, "desiredReplicas": 3},
        }
    ],
}


def _listed(version: str, kind: str) -> tuple[dict[str, Any], ...]:
    del version
    return tuple(OBJECTS[kind])


def _labels(samples: Sequence[Sample]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for metric, labels, _ in samples:
        found.setdefault(metric, set()).update(label for label, text in labels.items() if text)
    return found


def _documented(exporter: str) -> dict[str, set[str]]:
    groups = yaml.safe_load((ROOT / "tests/observability/metrics.yaml").read_text(encoding="utf-8"))
    tables = [group["metrics"] for group in groups if group["from"] == exporter]
    return {name: set(labels) for table in tables for name, labels in table.items()}


def test_objects_have_the_metrics_of_kube_state_metrics() -> None:
    replayed = {"kube_job_spec_parallelism": {"namespace", "job_name"}}
    assert _labels(tuple(state_samples(_listed))) == _documented("kube-state-metrics") | replayed


def test_gpus_have_the_metrics_and_labels_of_dcgm_exporter() -> None:
    exported = _labels(tuple(Devices().samples(OBJECTS["Node"], OBJECTS["Pod"], 0)))
    # Prometheus renames two of the exporter's labels, and adds its namespace; the newer exporter's is another, and
    # partitions are not exported.
    scraped = {
        name: {{"namespace": "exported_namespace", "pod": "exported_pod"}.get(label, label) for label in labels}
        for name, labels in exported.items()
    }
    assert {name: labels - {"device"} for name, labels in scraped.items()} == {
        name: labels - {"hostname", "GPU_I_ID", "namespace"} for name, labels in _documented("dcgm-exporter").items()
    }


def test_values_are_in_the_units_of_kube_state_metrics() -> None:
    found = {f"{metric} {' '.join(labels.values())}": value for metric, labels, value in state_samples(_listed)}
    assert found["kube_node_status_capacity n1 cpu core"] == 95.5
    assert found["kube_node_status_capacity n1 memory byte"] == 2**30
    assert found["kube_node_status_capacity n1 nvidia_com_gpu integer"] == 4
    assert found["kube_pod_container_resource_requests a train-0 main n1 cpu core"] == 0.5
    assert found["kube_pod_status_phase a train-0 Running"] == 1
    assert found["kube_pod_status_phase a train-0 Pending"] == 0
    assert found["kube_job_created a train"] == 1795680000
    assert found["kube_job_status_failed a train Any"] == 2
    assert found["kube_job_failed a train true"] == 1


def _holders(samples: Sequence[Sample]) -> list[str]:
    return [labels["pod"] for metric, labels, _ in samples if metric == "DCGM_FI_DEV_GPU_UTIL"]


def test_a_pod_keeps_its_gpus_and_those_of_an_ended_one_are_free() -> None:
    devices, nodes = Devices(), [_node("n1", 4), _node("c1", 0)]
    first, second, third = _pod("p1", "n1", 1), _pod("p2", "n1", 2), _pod("p3", "n1", 2)
    assert _holders(tuple(devices.samples(nodes, [first, second], 0))) == ["p1", "p2", "p2", ""]
    ended = _pod("p1", "n1", 1, "Succeeded")
    assert _holders(tuple(devices.samples(nodes, [third, ended, second], 60))) == ["p3", "p2", "p2", "p3"]


def test_gpus_without_a_pod_are_idle_and_memory_fits_the_model() -> None:
    pods = [_pod("p1", "n1", 1), _pod("p2", "n1", 1, "Pending")]
    for now in range(0, 6000, 60):
        values: dict[str, list[float]] = {}
        for metric, _, value in Devices().samples([_node("n1", 3)], pods, now):
            values.setdefault(metric.removeprefix("DCGM_FI_DEV_"), []).append(value)
        assert values["GPU_UTIL"][1:] == values["FB_USED"][1:] == [0, 0]
        assert 5 <= values["GPU_UTIL"][0] <= 100
        memory = {used + free for used, free in zip(values["FB_USED"], values["FB_FREE"], strict=True)}
        assert memory == {80 * 1024}


def test_a_pod_can_have_a_simulated_utilization() -> None:
    pod = _pod("p1", "n1", 1)
    pod["metadata"]["annotations"] = {"gpu-tenancy.dev/simulated-gpu-use": "3"}
    found = {metric: value for metric, _, value in Devices().samples([_node("n1", 1)], [pod], 0)}
    assert (found["DCGM_FI_DEV_GPU_UTIL"], found["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]) == (3, 0.03)


def test_texts_of_labels_are_escaped_and_empty_labels_left_out() -> None:
    text = exposition([("m", {"a": 'x"\\\n', "b": ""}, 2.5), ("m", {}, 1795680000)], "Help.")
    assert text == '# HELP m Help.\n# TYPE m gauge\nm{a="x\\"\\\\\\n"} 2.5\nm{} 1795680000\n'
    assert len(re.findall("# TYPE", text)) == 1


def test_without_a_stack_the_command_names_the_one_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    seen = tenancy("local", "metrics")
    assert (seen.exit_code, seen.stderr) == (1, "error: the embedded platform has no stack; run `tenancy local up`\n")


def test_the_command_prints_its_address_until_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def carried(_: Platform) -> Carried:
        return Carried("local", "own", 1)

    @contextmanager
    def serving(*_: object) -> Generator[SimpleNamespace]:
        yield SimpleNamespace(server_port=9400, serve_forever=interrupted)

    monkeypatch.setattr(Platform, "carried", carried)
    monkeypatch.setattr("gpu_tenancy.local.metrics.serving", serving)
    seen = tenancy("local", "metrics", "--out", tmp_path)
    assert (seen.exit_code, seen.stdout) == (0, f"{tmp_path / 'local' / 'metrics' / 'prometheus.yml'}\n")
    assert seen.stderr == "serving http://127.0.0.1:9400 until Ctrl-C; start Prometheus with this file\n"
