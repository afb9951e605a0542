"""The cluster is lost: a deployment of the same repository restores it, but for the list in docs/day-two.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from cli_builders import Project, small, tenancy
from platforms import ending
from repository import ROOT

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.explain.state_file import from_file
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.up import Outcome, up
from gpu_tenancy.model.names import HOLD

pytestmark = [pytest.mark.platform, pytest.mark.slow]
QUEUES: Final = "kueue.x-k8s.io/v1beta2"
TEAM: Final = "vision"
# Fields that controllers change: Kueue adds the tolerations of the flavor.
CHANGED: Final = frozenset({"status", "suspend", "tolerations"})
PAGE: Final = ROOT / "docs" / "day-two.md"


def pod() -> dict[str, Json]:
    amounts: Json = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container: Json = {
        "name": "main",
        "image": "example.com/job:1",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    safe: Json = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    tolerations: Json = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"restartPolicy": "Never", "containers": [container], "securityContext": safe, "tolerations": tolerations}


def made_by_people() -> tuple[Manifest, ...]:
    """Objects of team members, in addition to the stack."""
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    def made(api_version: str, kind: str, name: str, **rest: Json) -> Manifest:
        labels: Json = {"kueue.x-k8s.io/queue-name": TEAM} if kind == "Job" else {}
        metadata: Json = {"name": name, "namespace": TEAM, "labels": labels}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}

    return (
        made("batch/v1", "Job", "runs", spec={"template": {"spec": pod()}}),
        made("v1", "Secret", "token", stringData={"key": "value"}),
        made("v1", "ConfigMap", "settings", data={"key": "value"}),
        made("v1", "PersistentVolumeClaim", "scratch", spec=claim),
        made("v1", "Service", "notebook", spec={"selector": {"app": "notebook"}, "ports": [{"port": 80}]}),
    )


def listed(rows: Mapping[str, str]) -> str:
    return "\n".join(f"| {what} | {then} |" for what, then in rows.items())


def set_by(wanted: Json, live: Json) -> Json:
    """The values of the stack's fields in a live object, without fields that Kueue changes."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return {key: set_by(value, live.get(key)) for key, value in wanted.items() if key not in CHANGED}
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        return [set_by(value, other) for value, other in zip(wanted, live, strict=True)]
    return live


def deployed(cluster: Cluster, outcome: Outcome) -> dict[Reference, Any]:
    wanted = {Reference.of(item.manifest): item.manifest for item in outcome.preview.objects}
    return {reference: set_by(dict(one), cluster.get(*reference)) for reference, one in wanted.items()}


def volume(cluster: Cluster, claim: str) -> str:
    bound = cluster.get("v1", "PersistentVolumeClaim", claim, TEAM) or {}
    return text_at(cluster.get("v1", "PersistentVolume", text_at(bound, "spec", "volumeName")) or {}, "metadata", "uid")


def secret(cluster: Cluster) -> Any:
    return at(cluster.get("v1", "Secret", "registry", TEAM) or {}, "data")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    sections = small()
    sections["teams"][TEAM] |= {"storage": {"home": {"size": "10Gi"}}, "secrets": {"registry": {"existing": True}}}
    found.write("s", sections)
    return found


def test_the_page_lists_what_is_back_and_what_is_not(project: Project, tmp_path: Path, report: Report) -> None:
    with ending(tmp_path / "platform") as platform:
        first = up("s", platform, report, project.folder)
        with platform.cluster() as cluster:
            people = made_by_people()
            for manifest in people:
                cluster.create(manifest)
            value: Manifest = {"data": {"placeholder": "c2VjcmV0"}}
            cluster.patch(Reference("v1", "Secret", "registry", TEAM), value)
            cluster.wait_for(lambda: volume(cluster, "home"), what="the volume of the claim")
            objects, old_volume, old_secret = deployed(cluster, first), volume(cluster, "home"), secret(cluster)
            job = cluster.get("batch/v1", "Job", "nightly", TEAM) or {}
            snapshot = tmp_path / "snapshot.json"
            admin = ("--kubeconfig", platform.kubeconfig)
            assert tenancy("cluster", "snapshot", "--out", snapshot, *admin).exit_code == 0
            assert tenancy("cluster", "hold", "speech", "--yes", *admin).exit_code == 0
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_bytes(platform.kubeconfig.read_bytes())

        platform.down()
        second = up("s", platform, report, project.folder)

        with platform.cluster() as cluster, Cluster(kubeconfig, retry_seconds=0) as earlier:
            assert deployed(cluster, second) == objects
            assert None not in objects.values()
            lost = [one for one in people if not cluster.exists(*Reference.of(one))]
            held = at(cluster.get(QUEUES, "ClusterQueue", "speech") or {}, "metadata", "annotations", HOLD)
            started = cluster.get("batch/v1", "Job", "nightly", TEAM) or {}
            again_started = text_at(started, "metadata", "uid") not in {"", text_at(job, "metadata", "uid")}
            found = {
                "objects of the stack": "as before",
                "claims of `storage`": "there, with a new volume"
                if volume(cluster, "home") not in {"", old_volume}
                else "?",
                "jobs of `training`": "start again, from their beginning" if again_started else "?",
                "values of Secrets with `existing: true`": "not there" if secret(cluster) != old_secret else "?",
                "what members made: " + ", ".join(sorted(text_at(one, "kind") for one in lost)): "not there",
                "holds": "not there" if held is None else "?",
                "kubeconfigs": "refused; write them again" if not earlier.ready() else "?",
            }
    workloads = [text_at(one, "metadata", "name") for one in from_file(snapshot).of("Workload", TEAM)]
    assert [name for name in workloads if name.startswith("job-runs-")], "the snapshot names the job that is lost"
    assert "?" not in found.values()
    assert listed(found) in PAGE.read_text(encoding="utf-8")
