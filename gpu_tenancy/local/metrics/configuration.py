"""Files for a Prometheus that reads the metrics of the embedded platform, and a Grafana with a stack's dashboards."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_tenancy.base.writing import write_private, write_text
from gpu_tenancy.embedded.parts import LOOPBACK
from gpu_tenancy.model.observability import ObservabilityPlan

STATE: Final = "/kube-state-metrics"
DEVICES: Final = "/dcgm-exporter"
SERVERS: Final = "/servers"
_PROMETHEUS: Final = "http://127.0.0.1:9090"


def write_configuration(
    folder: Path, plan: ObservabilityPlan, port: int, controllers: Mapping[str, int], token: str
) -> None:
    """Writes `prometheus.yml`, the stack's rules, and the provisioning folder of a Grafana.

    Args:
        folder: where to; what an earlier run wrote is replaced.
        plan: dashboards and rules of the stack.
        port: where the metrics of this program are served.
        controllers: port of the metrics of each controller, by its name.
        token: with which Kueue's metrics may be read. Its file is only for this user.
    """
    write_private(folder / "token", token)
    write_text(folder / "rules.yml", _yaml({"groups": [json.loads(json.dumps(group)) for group in plan.rules]}))
    write_text(folder / "prometheus.yml", _yaml(_prometheus(folder.absolute(), port, controllers)))
    grafana = folder / "grafana"
    for file, text in plan.dashboards:
        write_text(grafana / "boards" / plan.folders[file] / file, text)
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": _PROMETHEUS, "isDefault": True}
    write_text(grafana / "datasources" / "tenancy.yaml", _yaml({"apiVersion": 1, "datasources": [source]}))
    boards = {"path": str((grafana / "boards").absolute()), "foldersFromFilesStructure": True}
    provider = {"name": "tenancy", "type": "file", "options": boards}
    write_text(grafana / "dashboards" / "tenancy.yaml", _yaml({"apiVersion": 1, "providers": [provider]}))


def _prometheus(folder: Path, port: int, controllers: Mapping[str, int]) -> dict[str, Any]:
    def job(name: str, port: int, labels: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
        target = {"targets": [f"{LOOPBACK}:{port}"], "labels": dict(labels or {})}
        return {"job_name": name, "static_configs": [target], **more}

    jobs = [
        job("kube-state-metrics", port, metrics_path=STATE, honor_labels=True),
        # As Prometheus' operator labels a target: so the exporter's own labels become `exported_…`.
        job("dcgm-exporter", port, {"namespace": "gpu-operator", "pod": "dcgm-exporter"}, metrics_path=DEVICES),
        job("servers", port, metrics_path=SERVERS, honor_labels=True),
    ]
    if "kueue-controller-manager" in controllers:
        # It signs its own certificate. The token is good for reading metrics only.
        more: dict[str, Any] = {
            "authorization": {"credentials_file": str(folder / "token")},
            "tls_config": {"insecure_skip_verify": True},
        }
        jobs.append(job("kueue", controllers["kueue-controller-manager"], scheme="https", **more))
    if "volcano-scheduler" in controllers:
        jobs.append(job("volcano", controllers["volcano-scheduler"]))
    every = {"scrape_interval": "15s", "evaluation_interval": "15s"}
    return {"global": every, "rule_files": ["rules.yml"], "scrape_configs": jobs}


def _yaml(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, width=120)
