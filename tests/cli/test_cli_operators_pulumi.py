"""The order of operators and their webhooks' objects, with the official Pulumi CLI on a real API server.

Kueue, KEDA and Prometheus are stand-ins: charts of the tests with the operators' real definitions. All other parts are
the program's: releases, gates, namespaces, and the tenancy that waits for them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import EXISTING, Data, pool, server, stack_of, team
from players import Kubelet, Operator, played
from repository import ROOT
from stand_ins import Asked, StandIn, Webhook, repository, stand_in, webhook, webhook_template
from starts import GUARD

from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.project import project_name

# The unchanged program, with other addresses of the charts.
_PROGRAM = """
import runpy
from gpu_tenancy.model.catalogue.operators import operators
for operator in operators().values():
    for name in operator.charts.keys() & {names!r}:
        row = operator.charts[name].model_copy(update={{"chart": name, "repository": {address!r}}})
        operator.charts[name] = row
runpy.run_path({program!r}, run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the engine about one resource; `ended` is False at the start of its operation."""

    ended: bool
    operation: str
    type: str
    name: str


@dataclass(frozen=True, slots=True)
class OnCli:
    """The program as a project for one test, with its state beside it; charts of the test replace the real ones."""

    folder: Path
    kubeconfig: Path

    def write(self, sections: Data, address: str, charts: Sequence[StandIn]) -> None:
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        self._write("Pulumi.yaml", {"name": project_name(ROOT), "runtime": runtime})
        names = [chart.name for chart in charts]
        program = _PROGRAM.format(names=names, address=address, program=str(ROOT / "__main__.py"))
        (self.folder / "__main__.py").write_text(program)
        cluster = {**EXISTING, "kubeconfig": str(self.kubeconfig)}
        config = {f"gpu-tenancy:{key}": value for key, value in {**sections, "cluster": cluster}.items()}
        self._write("Pulumi.operators-here.yaml", {"config": config})

    def up(self) -> list[Step]:
        self._run("stack", "select", "--create", "--stack", "operators-here")
        return self._steps("up", "--skip-preview")

    def destroy(self) -> list[Step]:
        return self._steps("destroy", "--skip-preview")

    def _steps(self, *command: str) -> list[Step]:
        output = self._run(*command, "--yes", "--json", "--stack", "operators-here")
        return [step for line in output.splitlines() for step in _read(line)]

    def _run(self, *arguments: str) -> str:
        own = {
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # Helm's own folders: what it keeps of a repository is no business of the user's.
            **{f"HELM_{place}_HOME": str(self.folder / "helm" / place) for place in ("CACHE", "CONFIG", "DATA")},
        }
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )
        assert done.returncode == 0, f"pulumi {arguments[0]}: {_diagnostics(done.stdout)}\n{done.stderr}"
        return done.stdout

    def _write(self, name: str, content: Data) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content, sort_keys=False))


def _events(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def _diagnostics(output: str) -> str:
    said = [each["diagnosticEvent"] for each in _events(output) if "diagnosticEvent" in each]
    return "".join(each["message"] for each in said if each["severity"] in {"error", "info#err"})


def _read(line: str) -> list[Step]:
    found: list[Step] = []
    for event in _events(line):
        for key, ended in (("resourcePreEvent", False), ("resOutputsEvent", True)):
            if key in event:
                said = event[key]["metadata"]
                found.append(Step(ended, said["op"], said["type"], said["urn"].rpartition("::")[2]))
    return found


pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.pulumi,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no `kubectl` on the PATH, which a gate runs"),
]

KUEUE = "kueue.x-k8s.io/v1beta2"
KUEUE_KINDS = ["ResourceFlavor", "ClusterQueue", "Cohort", "LocalQueue", "WorkloadPriorityClass"]
SCALED = ("keda.sh/v1alpha1", "ScaledObject")
MONITORING = "monitoring.coreos.com/v1"
DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
REFUSALS = 2


def installed_here(**operators: str) -> Data:
    """A team with a server that KEDA scales, and the three operators that this needs."""
    scaled = server(replicas={"min": 1, "max": 2}, scaleOn={"cpu": 70, "latencyP99": "100ms"})
    return {
        "cluster": EXISTING,
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=1)},
        "operators": {"prometheus": "here", "kueue": "here", "keda": "here", "gpuOperator": "off", **operators},
        "metrics": {"histogram": "inference_latency_seconds"},
        "teams": {"vision": team(gpus={"h100": {"guaranteed": 8}}, serving={"api": scaled})},
    }


def charts(cache: Path, judge: str) -> list[StandIn]:
    """Each chart has its definitions as the operator's own chart: in `crds`, and as templates, kept and not kept."""
    monitors = [
        f"prometheus-operator/monitoring.coreos.com_{each}.yaml" for each in ("prometheusrules", "servicemonitors")
    ]
    plurals = ["resourceflavors", "clusterqueues", "cohorts", "localqueues", "workloadpriorityclasses"]
    queues = [f"kueue/kueue.x-k8s.io_{each}.yaml" for each in plurals]
    judged = webhook_template("kueue", "kueue.x-k8s.io", judge)
    return [
        stand_in("kube-prometheus-stack", monitors, cache, helm_keeps=True),
        stand_in("kueue", queues, cache, webhook=judged),
        stand_in("keda", ["keda/keda.sh_scaledobjects.yaml"], cache),
    ]


@dataclass(frozen=True, slots=True)
class Scene:
    """The program, deployed once, and the stand-ins for programs that do not run on the platform."""

    program: OnCli
    steps: list[Step]
    cluster: Cluster
    webhook: Webhook
    kubelet: Kubelet
    operators: dict[str, Operator]
    address: str
    charts: list[StandIn]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Scene]:
    """A separate platform, because the definitions come with the charts."""
    folder = tmp_path_factory.mktemp("operators")
    platform = Platform(folder / "platform")
    platform.up(report)
    try:
        with platform.cluster() as cluster:
            yield from deployed(folder, platform, cluster)
    finally:
        platform.down()


def deployed(folder: Path, platform: Platform, cluster: Cluster) -> Iterator[Scene]:
    bring_nodes(cluster, node_shapes(stack_of(installed_here())))
    certificate, key = (Path(find("serving")) for find in (platform.places.certificate, platform.places.key))
    kubelet = Kubelet(cluster, platform.kubeconfig, folder / "pods")
    kinds = {
        "kueue": ("kueue-system", [(KUEUE, kind) for kind in KUEUE_KINDS]),
        "keda": ("keda", [SCALED]),
        "kube-prometheus-stack": ("monitoring", [(MONITORING, "PrometheusRule"), (MONITORING, "ServiceMonitor")]),
    }
    operators = {name: Operator(cluster, name, *at) for name, at in kinds.items()}
    authority = Path(platform.places.certificate("authority"))

    def trusted() -> None:
        """The certificate is trusted only after a refusal, so that the gate retries for both reasons."""
        if kubelet.exits:
            operators["kueue"].trust(authority)

    with webhook(certificate, key, REFUSALS) as judge:
        made = charts(platform.cache, judge.address)
        steps = [kubelet.step, trusted, *(each.step for each in operators.values())]
        with repository(made) as address, played(*steps):
            program = OnCli(folder / "project", platform.kubeconfig)
            program.write(installed_here(), address, made)
            done = program.up()
            yield Scene(program, done, cluster, judge, kubelet, operators, address, made)


def of(steps: list[Step], kind: str, name: str = "") -> list[int]:
    """Positions of events about resources of a kind, by the end of its type and a part of its name."""
    return [place for place, step in enumerate(steps) if step.type.endswith(kind) and name in step.name]


def ended(steps: list[Step], kind: str, name: str = "") -> int:
    return max(place for place in of(steps, kind, name) if steps[place].ended)


def begun(steps: list[Step], kind: str, name: str = "") -> int:
    return min(of(steps, kind, name))


def test_objects_wait_for_dry_run_of_operator_webhook(scene: Scene) -> None:
    probe = Asked("ResourceFlavor", "gpu-tenancy-gate", dry_run=True, allowed=False)
    asked = scene.webhook.asked
    assert asked[: REFUSALS + 1] == [probe] * REFUSALS + [Asked(probe.kind, probe.name, dry_run=True, allowed=True)]
    assert {(each.dry_run, each.allowed) for each in asked[REFUSALS + 1 :]} == {(False, True)}
    assert {each.kind for each in asked[REFUSALS + 1 :]} >= {"ResourceFlavor", "ClusterQueue", "Cohort", "LocalQueue"}


def test_a_webhook_that_is_not_ready_is_retried(scene: Scene) -> None:
    *refused, last = scene.kubelet.exits
    assert last == 0
    assert all(refused)
    assert "x509" in scene.kubelet.words[0]
    # Once for the certificate that nobody trusted yet, then for each time that it did not answer.
    assert len(refused) >= 1 + REFUSALS


def test_next_operator_waits_for_gate_of_previous_one(scene: Scene) -> None:
    assert ended(scene.steps, ":Job", "kueue-gate") < begun(scene.steps, ":Release", "keda")
    assert ended(scene.steps, ":Release", "keda") < begun(scene.steps, ":ScaledObject")
    assert ended(scene.steps, ":Release", "kube-prometheus-stack") < begun(scene.steps, ":PrometheusRule")


def names(cluster: Cluster, api_version: str, kind: str) -> set[str]:
    return {text_at(one, "metadata", "name") for one in cluster.list(api_version, kind, metadata_only=True)}


def releases(cluster: Cluster) -> set[str]:
    """Helm's record of installed releases: https://helm.sh/docs/topics/advanced/#storage-backends"""
    found = cluster.list("v1", "Secret", labels="owner=helm", metadata_only=True)
    return {text_at(one, "metadata", "labels", "name") for one in found}


def test_removed_release_keeps_definitions_and_objects(scene: Scene) -> None:
    cluster = scene.cluster
    definitions = names(cluster, *DEFINITION)
    before = {kind: names(cluster, KUEUE, kind) for kind in KUEUE_KINDS}
    assert before["ClusterQueue"] == {"vision"}
    scene.program.write(installed_here(kueue="installed"), scene.address, scene.charts)
    steps = scene.program.up()
    # To Pulumi a resource that it lets be is deleted too.
    assert {"delete"} == {steps[place].operation for place in of(steps, ":Release", "kueue")}
    assert "kueue" in releases(cluster)
    assert scene.operators["kueue"].there
    assert names(cluster, *DEFINITION) == definitions
    assert {kind: names(cluster, KUEUE, kind) for kind in KUEUE_KINDS} == before


def test_deletes_objects_before_operator_of_finalizers(scene: Scene) -> None:
    cluster = scene.cluster
    definitions = names(cluster, *DEFINITION)
    steps = scene.program.destroy()
    for judged, release in (
        (":ScaledObject", "keda"),
        (":ServiceMonitor", "prometheus"),
        (":PrometheusRule", "prometheus"),
    ):
        assert ended(steps, judged) < begun(steps, ":Release", release)
    cleared = {name: {one.kind for one in each.cleared} for name, each in scene.operators.items()}
    assert cleared["keda"] == {"ScaledObject"}
    assert cleared["kube-prometheus-stack"] == {"PrometheusRule", "ServiceMonitor"}
    assert cleared["kueue"] >= {"ResourceFlavor", "ClusterQueue", "Cohort", "LocalQueue"}
    assert releases(cluster) == {"kueue"}
    assert {name for name, each in scene.operators.items() if each.there} == {"kueue"}
    assert names(cluster, *DEFINITION) == definitions
