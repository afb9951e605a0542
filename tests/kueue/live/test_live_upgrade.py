"""The earlier minor version of Kueue, upgraded to the pinned one by `up` while jobs run, and its objects migrated.

Four minutes; building the earlier version takes two more, and more beside others. It runs where that was built once.
"""

import json
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import platformdirs
import pytest
import yaml
from builders import EXISTING, Data, pool, server, team
from cli_builders import Project
from platforms import running
from queueing import a_job
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.progress import Report
from gpu_tenancy.cli.main import app
from gpu_tenancy.doctor import upgrades
from gpu_tenancy.embedded import definitions
from gpu_tenancy.embedded.building import SOURCE, build, built, find_go
from gpu_tenancy.embedded.controllers import table
from gpu_tenancy.embedded.controllers.launching import Wanted
from gpu_tenancy.embedded.controllers.table import Row, read_rows
from gpu_tenancy.embedded.definitions.pins import Module, Pin, read_definitions, read_pins
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.pruning import DEFINITION, stored_kinds
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local import up as deploying
from gpu_tenancy.local.up import up
from gpu_tenancy.model.names import EMBEDDED_CONTEXT
from gpu_tenancy.model.plan.operators.gpus import merged
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_table

# The control plane's module graph with the minor version of Kueue before the pinned one.
MODULE: Final = "sigs.k8s.io/kueue"
VERSION: Final = "v0.18.4"
# Of the module and of its go.mod.
SUMS: Final = ("h1:+Vs1H5sjXeSGG8BxvkrJCrpovB0vpuIHfkwSmlNSkyc=", "h1:r+uAz3Srk1KTIGUXcZ2vFHNAsbzxPyp4BQsUYeovpAE=")


def source(cache: Path) -> str:
    """A folder with the go.mod and go.sum of the control plane, but for the version of Kueue."""
    folder = cache / f"kueue-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    graph = (SOURCE / "go.mod").read_text(encoding="utf-8")
    sums = (SOURCE / "go.sum").read_text(encoding="utf-8")
    own = f"{MODULE} {VERSION} {SUMS[0]}\n{MODULE} {VERSION}/go.mod {SUMS[1]}\n"
    found = {
        "go.mod": re.sub(rf"^(\t{re.escape(MODULE)}) v\S+", rf"\1 {VERSION}", graph, flags=re.MULTILINE),
        "go.sum": re.sub(rf"^{re.escape(MODULE)} .*\n", "", sums, flags=re.MULTILINE) + own,
    }
    for name, text in found.items():
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


def program(cache: Path) -> Path:
    return built(cache, "kueue", source(cache))


def build_program(cache: Path, report: Report) -> None:
    if not program(cache).is_file():
        build(cache, report, {"kueue": f"{MODULE}/cmd/kueue"}, source=source(cache), what=f"Kueue {VERSION}")


def _definitions(cache: Path, report: Report, storage: str) -> dict[Pin, Path]:
    """Its definitions, with a storage version of the API."""
    module = Module(MODULE, VERSION, "config/components/crd/bases", SUMS)
    folder = definitions.module_folders([module], find_go((1, 21), cache, report))[module] / module.folder
    found: dict[Pin, Path] = {}
    for file in sorted(folder.glob("*.yaml")):
        content = read_table(file)
        for version in content["spec"]["versions"]:
            version["storage"] = version["name"] == storage
        written = cache / "definitions" / f"kueue-{VERSION}-{storage}" / file.name
        write_text(written, yaml.safe_dump(content))
        found[Pin("kueue", VERSION, file.name, f"{VERSION}-{storage}", module)] = written
    return found


def _without_gates(item: Wanted) -> Wanted:
    """Kueue exits for unknown gates, and the stack sets DisableWaitForPodsReady of 0.19."""
    values = merged(item.release.values, {"controllerManager": {"featureGates": None}}, append=True)
    return replace(item, release=replace(item.release, values=values))


@contextmanager
def installing(cache: Path, report: Report, storage: str) -> Generator[None]:
    """Has `up` install this version; objects are stored as `storage`, which was v1beta1 until Kueue 0.15."""
    build_program(cache, report)
    earlier = _definitions(cache, report, storage)

    def pins() -> tuple[Pin, ...]:
        return (*(pin for pin in read_pins() if pin.operator != "kueue"), *earlier)

    def fetched(wanted: Sequence[Pin], folder: Path, told: Report) -> Mapping[Pin, Path]:
        others = definitions.fetch([pin for pin in wanted if pin not in earlier], folder, told)
        return {**others, **{pin: file for pin, file in earlier.items() if pin in wanted}}

    def rows() -> Mapping[str, Row]:
        of_version = {"version": VERSION, "sum": SUMS[0], "go_mod_sum": SUMS[1]}
        return {**read_rows(), "kueue": read_rows()["kueue"].model_copy(update=of_version)}

    def wanted(stack: Stack, programs: Mapping[str, Path]) -> tuple[Wanted, ...]:
        return tuple(_without_gates(item) if item.name == "kueue" else item for item in own(stack, programs))

    own = table.wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(table.FOLDER, str(program(cache).parent))
        patch.setattr(deploying, "read_pins", pins)
        patch.setattr(deploying, "fetch", fetched)
        patch.setattr(table, "read_rows", rows)
        patch.setattr(table, "wanted", wanted)
        yield


CACHE: Final = platformdirs.user_cache_path("gpu-tenancy").absolute()
pytestmark = [
    pytest.mark.platform,
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("GPU_TENANCY_UPGRADE"),
        reason=f"builds Kueue {VERSION} first; set GPU_TENANCY_UPGRADE=1 to run it",
    ),
]
QUEUES: Final = "kueue.x-k8s.io/v1beta2"
TEAM: Final = "vision"


def sections() -> Data:
    return {
        "cluster": dict(EXISTING),
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=1)},
        "priorities": {"high": 1000},
        "teams": {
            TEAM: team(priority="high", gpus={"h100": {"guaranteed": 4, "limit": 7}}, serving={"api": server()}),
            "speech": team(priority="high", gpus={"h100": {"guaranteed": 4, "limit": 8}}),
        },
    }


@dataclass(frozen=True)
class Place:
    """A platform with the stack, and jobs: `runs`, `borrows`, and `waits`, for which no GPU is free."""

    project: Project
    platform: Platform
    cluster: Cluster
    report: Report

    def deploy(self) -> None:
        up("s", self.platform, self.report, self.project.folder)

    def workloads(self) -> dict[str, Manifest]:
        """By the names of their owners."""
        found = self.cluster.list(QUEUES, "Workload", namespace=TEAM)
        return {text_at(maps_at(one, "metadata", "ownerReferences")[0], "name"): one for one in found}

    def admitted(self, name: str) -> bool:
        return is_true(self.workloads().get(name, {}), "Admitted")

    def seen(self) -> dict[str, Any]:
        """The state that an upgrade must not change: workloads with their conditions, and running pods."""
        return {
            "workloads": {
                name: (
                    text_at(one, "metadata", "uid"),
                    at(one, "spec"),
                    _conditions(one),
                    at(one, "status", "admission"),
                )
                for name, one in self.workloads().items()
            },
            "pods": {
                text_at(pod, "metadata", "name"): (text_at(pod, "metadata", "uid"), text_at(pod, "status", "phase"))
                for pod in self.cluster.list("v1", "Pod", namespace=TEAM)
            },
            "queues": {
                (kind, name): (at(one, "spec"), is_true(one, "Active"))
                for kind, namespaces in (("ClusterQueue", False), ("LocalQueue", True))
                for name in sections()["teams"]
                if (one := self.cluster.get(QUEUES, kind, name, name if namespaces else ""))
            },
        }

    def tenancy(self, *words: str, exit_code: int = 0) -> str:
        kubeconfig = ("--kubeconfig", str(self.platform.kubeconfig))
        done = CliRunner(env={"COLUMNS": "240"}).invoke(app, ["cluster", *words, *kubeconfig])
        assert done.exit_code == exit_code, done.output
        return done.output

    def doctor(self) -> dict[str, list[str]]:
        printed = CliRunner().invoke(
            app,
            [
                *("cluster", "doctor", "s", "--upgrade", "--json", "--project", str(self.project.folder)),
                *("--kubeconfig", str(self.platform.kubeconfig)),
            ],
        )
        rows: Any = json.loads(printed.stdout)
        checks = ("definitions", "stored", "conversion", "webhooks")
        return {check: [row["verdict"] for row in rows if row["check"] == check] for check in checks}


def _conditions(workload: Manifest) -> Sequence[Json]:
    """Type, status and time of each; the time changes if the condition was false in between."""
    names = ("type", "status", "lastTransitionTime")
    return [[condition.get(name) for name in names] for condition in maps_at(workload, "status", "conditions")]


def job(name: str, gpus: int) -> Manifest:
    """As the level `restricted` of Pod Security has it."""
    found: Any = a_job(name, TEAM, {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)})
    pod = found["spec"]["template"]["spec"]
    pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    pod["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Place]:
    """The stack with the earlier Kueue, which stores v1beta1, and jobs."""
    folder = tmp_path_factory.mktemp("upgrade")
    project = Project.at(folder / "project")
    project.write("s", sections())
    build_program(CACHE, report)
    with running(folder / "platform", report) as platform:
        with installing(CACHE, report, "v1beta1"):
            up("s", platform, report, project.folder)
        with platform.cluster() as cluster:
            made = Place(project, platform, cluster, report)
            for name, gpus, runs in (("runs", 3, True), ("borrows", 3, True), ("waits", 3, False)):
                cluster.create(job(name, gpus))
                cluster.wait_for(
                    lambda name=name, runs=runs: made.admitted(name) if runs else name in made.workloads(),
                    what=f"the workload of {name}",
                )
            cluster.wait_for(lambda: _run(cluster, 3), what="the pods of two jobs and of the server")
            yield made


def _run(cluster: Cluster, count: int) -> bool:
    pods = cluster.list("v1", "Pod", namespace=TEAM)
    return [text_at(pod, "status", "phase") for pod in pods].count("Running") == count == len(pods)


def test_an_upgrade_evicts_nothing_and_loses_nothing(place: Place) -> None:
    (kueue,) = (one for one in place.platform.controllers.recorded() if one.chart == "kueue")
    assert kueue.version == VERSION
    kinds = {kind.name: kind for kind in stored_kinds(place.cluster, ["kueue.x-k8s.io"])}
    assert {kind.stored for kind in kinds.values()} == {("v1beta1",)}
    assert place.doctor() == {"definitions": ["OK"], "stored": [], "conversion": [], "webhooks": ["OK"]}
    before = place.seen()
    assert not place.admitted("waits")

    # Meanwhile nobody can create a job, and what runs goes on.
    place.platform.controllers.stop()
    with (
        Cluster(place.platform.kubeconfig, EMBEDDED_CONTEXT, retry_seconds=0) as impatient,
        pytest.raises(ApiError, match="failed calling webhook"),
    ):
        impatient.create(job("meanwhile", 1), dry_run=True)
    assert place.doctor()["webhooks"] == ["missing"]
    assert _run(place.cluster, 3)

    place.deploy()

    (kueue,) = (one for one in place.platform.controllers.recorded() if one.chart == "kueue")
    assert kueue.version != VERSION
    after = place.seen()
    assert after == before
    assert all(active for _, active in after["queues"].values())
    place.cluster.delete(Reference("batch/v1", "Job", "runs", TEAM))
    place.cluster.wait_for(lambda: place.admitted("waits"), what="the pending job to be admitted")
    place.cluster.wait_for(lambda: _run(place.cluster, 3), what="its pod to run")


def test_objects_of_the_old_version_are_migrated_while_jobs_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [kind.name for kind in stored_kinds(place.cluster, ["kueue.x-k8s.io"])]
    assert stored(place) == dict.fromkeys(names, ("v1beta1", "v1beta2"))
    assert set(place.doctor()["stored"]) == {"unknown"}
    later = tuple(
        one.model_copy(update={"versions": ("v1beta2",)} if one.name == "kueue" else {}) for one in read_definitions()
    )
    monkeypatch.setattr(upgrades, "read_definitions", lambda: later)
    assert set(place.doctor()["stored"]) == {"missing"}
    with pytest.raises(ApiError, match=r"status.storedVersions.*must remain in spec.versions"):
        place.cluster.apply(without_old(place, "workloads.kueue.x-k8s.io"), dry_run=True, force=True)

    before, versions = place.seen(), resource_versions(place)
    assert "workloads.kueue.x-k8s.io: v1beta1 to v1beta2\n" in place.tenancy("migrate", "--dry-run")
    assert stored(place) == dict.fromkeys(names, ("v1beta1", "v1beta2"))
    count = len(before["workloads"])
    assert f"workloads.kueue.x-k8s.io: v1beta1 to v1beta2: {count} objects written" in place.tenancy("migrate")

    assert place.seen() == before
    assert stored(place) == dict.fromkeys(names, ("v1beta2",))
    written = resource_versions(place)
    assert written["ResourceFlavor"] != versions["ResourceFlavor"], "written since they were created as v1beta1"
    assert place.doctor() == {"definitions": ["OK"], "stored": [], "conversion": [], "webhooks": ["OK"]}
    for name in names:
        place.cluster.apply(without_old(place, name), dry_run=True, force=True)
    assert place.tenancy("migrate") == "all objects of operators are stored in the current version\n"


def stored(place: Place) -> dict[str, tuple[str, ...]]:
    return {kind.name: kind.stored for kind in stored_kinds(place.cluster, ["kueue.x-k8s.io"])}


def resource_versions(place: Place) -> dict[str, list[str]]:
    """Of flavors and priority classes, which only the stack writes."""
    return {
        kind: [text_at(one, "metadata", "resourceVersion") for one in place.cluster.list(QUEUES, kind)]
        for kind in ("ResourceFlavor", "WorkloadPriorityClass")
    }


def without_old(place: Place, name: str) -> Manifest:
    """A definition of a future version of Kueue: without v1beta1."""
    live: Any = place.cluster.get(*DEFINITION, name)
    versions = [version for version in live["spec"]["versions"] if version["name"] == "v1beta2"]
    metadata: Json = {"name": name}
    return {
        "apiVersion": DEFINITION[0],
        "kind": DEFINITION[1],
        "metadata": metadata,
        "spec": {**live["spec"], "versions": versions},
    }
