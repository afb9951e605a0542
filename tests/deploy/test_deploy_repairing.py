"""`tenancy stack repair`: after a killed deployment, its objects are in the state and foreign objects are not."""

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil
import pytest
from cli_builders import Project, small
from cluster_builders import created_by
from pulumi_tool import environment, pulumi, run_here, succeeded, tenancy
from starts import GUARD
from test_cli_pulumi import deployable, references
from test_cli_pulumi_faults import KILLS, ONE_AT_A_TIME, existing

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy.recovering import recovered, repair
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

URN = "urn:pulumi:good::gpu-tenancy::"
PROVIDER = f"{URN}pulumi:providers:kubernetes::cluster"


@dataclass
class Interrupted:
    """Stacks of an environment after a killed deployment, which record operations."""

    state: dict[str, Any]
    folder: Path = Path("out")
    refreshed: list[str] = field(default_factory=list[str])
    mark: str = "gpu-tenancy/good"

    def existing(self) -> tuple[str, ...]:
        return ("good",)

    def interrupted(self, _: str) -> dict[str, Any]:
        return self.state

    def replace(self, _: str, state: dict[str, Any]) -> None:
        self.state = state

    def operate(self, _: str, command: str, *options: str, **__: Any) -> None:
        assert (command, options[0]) == ("refresh", "--run-program=false")
        self.refreshed += [option.removeprefix("--target=") for option in options[1:]]


def creating(manifest: dict[str, Any]) -> dict[str, Any]:
    """A creation that had begun, as Pulumi's engine records it."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    resource = {
        "urn": f"{URN}kubernetes:core/v1:{kind}::{name}",
        "custom": True,
        "type": f"kubernetes:core/v1:{kind}",
        "inputs": manifest,
        "provider": f"{PROVIDER}::04da6b54",
        "dependencies": [f"{URN}kubernetes:core/v1:Namespace::gone"],
    }
    return {"resource": resource, "type": "creating"}


def config_map(name: str, namespace: str, mark: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if mark:
        metadata["annotations"] = {"gpu-tenancy.dev/deployed-by": mark}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


def state_of(platform: Platform, *pending: dict[str, Any]) -> dict[str, Any]:
    """A state whose provider has the text of a kubeconfig, as a secret."""
    secret = {"4dabf18193072939515e22adb298388d": "", "plaintext": json.dumps(platform.kubeconfig.read_text())}
    inputs = {"kubeconfig": secret}
    provider = {"urn": PROVIDER, "id": "04da6b54", "type": "pulumi:providers:kubernetes", "inputs": inputs}
    return {"resources": [provider], "pending_operations": list(pending)}


def nowhere() -> Path:
    raise AssertionError("the provider names its kubeconfig")


def test_takes_only_marked_resources_into_the_state(platform: Platform, cluster: Cluster, namespace: str) -> None:
    own, missing = (config_map(name, namespace, "gpu-tenancy/good") for name in ("own", "missing"))
    others = [config_map("unmarked", namespace), config_map("of-another-stack", namespace, "gpu-tenancy/good-2")]
    for one in (own, *others):
        created_by(cluster, "pulumi-kubernetes", one)
    pending = [creating(one) for one in (own, *others, missing)]
    stacks = Interrupted(state_of(platform, *pending))
    (done,) = repair(stacks, nowhere)  # pyright: ignore[reportArgumentType] - a stand-in
    assert (done.taken, done.foreign) == ((Reference.of(own),), tuple(map(Reference.of, others)))
    assert done.dropped == (Reference.of(missing),)
    _, entry = stacks.state["resources"]
    assert (entry["id"], entry["dependencies"]) == (f"{namespace}/own", [])
    assert "pending_operations" not in stacks.state
    assert stacks.refreshed == [entry["urn"]]


def test_names_interrupted_creations_before_changes(platform: Platform) -> None:
    pool = {"resource": {"urn": f"{URN}aws:eks/nodeGroup:NodeGroup::h100", "type": "aws:eks/nodeGroup:NodeGroup"}}
    before = state_of(platform, {**pool, "type": "creating"})
    stacks = Interrupted(before)
    with pytest.raises(ConsoleError, match=r"created .*NodeGroup::h100; look for them, then run `pulumi refresh"):
        repair(stacks, nowhere)  # pyright: ignore[reportArgumentType] - a stand-in
    assert stacks.state is before


def registered(manifest: dict[str, Any]) -> Registration:
    name = f"{URN}kubernetes:core/v1:ConfigMap::{manifest['metadata']['name']}"
    type_ = "kubernetes:core/v1:ConfigMap"
    return Registration(
        name, type_, manifest["metadata"]["name"], custom=True, inputs=manifest, provider=f"{PROVIDER}::x"
    )


def deployed(cluster: Cluster, manifest: dict[str, Any]) -> dict[str, Any]:
    """An object that the provider creates, as in the state afterwards."""
    return {**creating(manifest)["resource"], "outputs": created_by(cluster, "pulumi-kubernetes", manifest)}


def test_state_before_a_killed_run_is_completed(platform: Platform, cluster: Cluster, namespace: str) -> None:
    mark = "gpu-tenancy/good"
    names = ("same", "edited", "held", "deleted", "ending", "created")
    manifests = {name: config_map(name, namespace, mark) for name in names}
    manifests["ending"]["metadata"]["finalizers"] = ["example.com/kept"]
    unserved = {**creating({**config_map("unserved", namespace), "apiVersion": "example.com/v1"})["resource"]}
    state = state_of(platform)
    state["resources"] += [*(deployed(cluster, manifests[name]) for name in names[:-1]), {**unserved, "outputs": {}}]
    before = {**state, "resources": [*state["resources"]]}
    created_by(cluster, "pulumi-kubernetes", manifests["created"])
    references = {name: Reference.of(manifest) for name, manifest in manifests.items()}
    for name, manager in (("edited", "kubectl-edit"), ("held", "gpu-tenancy-hold")):
        cluster.amend(references[name], [{"op": "replace", "path": "/data/a", "value": "\x1bc\n"}], manager=manager)
    cluster.delete(references["deleted"], wait=GUARD)
    cluster.delete(references["ending"], wait=0)

    provider = Registration(PROVIDER, "pulumi:providers:kubernetes", "cluster", custom=True, inputs={})
    rendered = Rendered("gpu-tenancy", "good", (provider, *map(registered, manifests.values())), {})
    found = recovered(rendered, state, [state], cluster, adopt=(), mark=mark)
    assert state == before
    assert found.taken == (references["created"],)
    assert found.state["resources"][-1]["id"] == f"{namespace}/created"
    assert [urn.rpartition("::")[2] for urn in found.reread] == [
        *("created", "edited", "deleted", "ending", "unserved")
    ]
    edited, deleted, ending, unread = found.changed
    told = r"data.a changed since the last deployment: \x1bc\n, deployed as b, by kubectl-edit at "
    assert edited.startswith(f"{references['edited']}: {told}")
    assert deleted == f"{references['deleted']}: deleted since the last deployment"
    assert ending.startswith(f"{references['ending']}: is being deleted; ")
    assert "finalizer example.com/kept" in ending
    assert unread.startswith(f"ConfigMap.example.com {namespace}/unserved: ")
    cluster.amend(references["ending"], [{"op": "remove", "path": "/metadata/finalizers"}], manager="kubectl-edit")


def test_an_edited_secret_value_is_not_shown(platform: Platform, cluster: Cluster, namespace: str) -> None:
    manifest, state = config_map("hidden", namespace, "gpu-tenancy/good"), state_of(platform)
    secret = {"4dabf18193072939515e22adb298388d": "", "plaintext": '"b"'}
    state["resources"].append({**deployed(cluster, manifest), "inputs": {**manifest, "data": {"a": secret}}})
    edited = Reference.of(manifest)
    cluster.amend(edited, [{"op": "replace", "path": "/data/a", "value": "canary"}], manager="kubectl-edit")
    (line,) = recovered(None, state, (), cluster, adopt=(), mark="").changed
    assert line.startswith(f"{edited}: data.a changed since the last deployment, by kubectl-edit at 20")
    assert "canary" not in line


def test_another_cluster_is_refused(platform: Platform, cluster: Cluster, namespace: str) -> None:
    manifest = config_map("known", namespace, "gpu-tenancy/good")
    entry = deployed(cluster, manifest)
    entry["outputs"] = {**entry["outputs"], "metadata": {**entry["outputs"]["metadata"], "uid": "elsewhere"}}
    state = state_of(platform)
    state["resources"].append(entry)
    rendered = Rendered("gpu-tenancy", "good", (registered(manifest),), {})
    with pytest.raises(ConsoleError, match="the cluster has none of the 1 objects of the state; select the cluster"):
        recovered(rendered, state, [state], cluster, adopt=(), mark="gpu-tenancy/good")


# With the CLI


def write(project: Project, platform: Platform, **sections: Any) -> None:
    content = small(**sections)
    project.write("good", {**content, "cluster": {**content["cluster"], "kubeconfig": str(platform.kubeconfig)}})


@pytest.fixture
def project(tmp_path: Path, platform: Platform, cluster: Cluster) -> Iterator[Project]:
    """A user's own project, whose stack `good` is deleted from the cluster afterwards."""
    with deployable(tmp_path / "project", cluster) as found:
        run_here(found)
        write(found, platform)
        yield found


# Processes to kill: all, the CLI, the provider. The rest of the command ends by itself.
VICTIMS = ("", "pulumi", "pulumi-resource-kubernetes")


def kill(command: list[str], project: Project, cluster: Cluster, after: int, victim: str) -> None:
    """Kills processes of a command when `after` objects of the project exist."""
    objects = references(project)
    log = project.folder / "killed.log"
    with log.open("w") as output:
        running = psutil.Popen(
            command, cwd=project.folder, env=environment(project, **ONE_AT_A_TIME), stdout=output, stderr=output
        )
    deadline = time.monotonic() + GUARD
    while len(existing(cluster, objects)) < after:
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    processes: list[psutil.Process] = [running, *running.children(recursive=True)]
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            if victim in ("", one.name()):
                one.kill()
    _, alive = psutil.wait_procs(processes, timeout=GUARD)
    assert not alive


UP = {
    "plain": ["pulumi", "up", "--yes", "--skip-preview", "--stack", "good"],
    "tenancy": [sys.executable, "-m", "gpu_tenancy", "up", "good", "--yes"],
    "divided": [sys.executable, "-m", "gpu_tenancy", "up", "good", "--yes"],
}
"""Commands that deploy the stack: with a checkpoint at each step; with its state written at the end; as a part."""


@pytest.mark.pulumi
@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("GPU_TENANCY_FAULTS"), reason="takes minutes; `make faults` runs it")
@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("command", [*UP])
def test_a_killed_deployment_is_whole_after_one_command(
    project: Project, platform: Platform, cluster: Cluster, command: str, seed: int
) -> None:
    folder, stacks = project.folder, ["good"]
    if command == "divided":
        write(project, platform, split={})
        folder, stacks = project.folder / "out" / "pulumi" / "good", ["good.tenancy"]
    objects = references(project)
    if command == "plain":
        succeeded(pulumi(project, "stack", "init"))
    after = Random(f"{command} {seed}").randint(1, len(objects) - 10)  # noqa: S311 - not for secrets
    victim = VICTIMS[seed % len(VICTIMS)]
    kill(UP[command], project, cluster, after, victim)
    before = existing(cluster, objects)
    assert before  # All of them, if the last steps of a killed run were quicker than the kill.

    if command == "plain":
        repaired = tenancy(project, "stack", "repair", "good")
        assert repaired.returncode == 0, repaired.stderr
        assert victim == VICTIMS[-1] or "lock of the killed run removed" in repaired.stdout
        succeeded(pulumi(project, "up", "--yes", "--skip-preview"))
    else:
        done = tenancy(project, "up", "good", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
    now = existing(cluster, objects)
    assert now.keys() == {*objects}
    assert {one: now[one] for one in before} == before
    for stack in stacks:
        state = json.loads(succeeded(pulumi(project, "stack", "export", "--cwd", str(folder), stack=stack)))
        assert not state["deployment"].get("pending_operations")
        succeeded(pulumi(project, "preview", "--expect-no-changes", "--cwd", str(folder), stack=stack))
    assert "OK: the state of good has no lock" in tenancy(project, "stack", "repair", "good").stdout


@pytest.mark.pulumi
@pytest.mark.slow
def test_deploys_changed_and_deleted_objects_again(project: Project, cluster: Cluster) -> None:
    objects = references(project)
    done = tenancy(project, "up", "good", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    before = existing(cluster, objects)
    states = {file: file.read_bytes() for file in (project.folder / "backend").rglob("good*.json")}
    done = tenancy(project, "up", "good", "--yes")
    assert (done.returncode, "good: no changes" in done.stdout) == (0, True), done.stdout + done.stderr
    assert states
    assert {file: file.read_bytes() for file in (project.folder / "backend").rglob("good*.json")} == states
    succeeded(pulumi(project, "preview", "--expect-no-changes"))
    edited = [next(one for one in objects if one.kind == kind) for kind in EDITS]
    wanted = {one: cluster.get(*one) for one in edited}
    gone = next(one for one in objects if one.kind == "LimitRange")
    for restoring in ("tenancy", "repair", "refresh"):
        if restoring == "refresh":  # It does not see what stands below an empty selector.
            edited = [one for one in edited if one.kind != "NetworkPolicy"]
        for one in edited:
            edit(cluster, one)
        cluster.delete(gone, wait=GUARD)
        if restoring == "tenancy":
            dry = tenancy(project, "up", "good", "--dry-run")
            assert dry.returncode == 3, dry.stdout + dry.stderr
            done = tenancy(project, "up", "good", "--yes")
            assert done.returncode == 0, done.stdout + done.stderr
            told = [f"{one}: {'.'.join(EDITS[one.kind][0])} changed since the last deployment: " for one in edited]
            for line in (*told, f"{gone}: deleted since the last deployment"):
                assert line in dry.stdout
                assert line in done.stderr
            assert re.search(r": 999, deployed as \d+, by gpu-tenancy at 20\d\d-", dry.stdout), dry.stdout
            assert "5 differ from the last deployment; to restore them, run `tenancy stack repair good`" in dry.stdout
        elif restoring == "repair":
            succeeded(tenancy(project, "stack", "repair", "good"))
            succeeded(pulumi(project, "up", "--yes", "--skip-preview"))
        else:
            succeeded(pulumi(project, "preview", "--refresh"))
            succeeded(pulumi(project, "up", "--refresh", "--yes", "--skip-preview"))
        assert {one: content(cluster.get(*one)) for one in edited} == {one: content(wanted[one]) for one in edited}
        now = existing(cluster, objects)
        assert {one for one in objects if now.get(one) != before[one]} == {gone}
        succeeded(pulumi(project, "preview", "--expect-no-changes"))
        before = now
    done = tenancy(project, "up", "good", "--yes")
    assert (done.returncode, "good: no changes" in done.stdout) == (0, True), done.stdout + done.stderr


EDITS: Final[Mapping[str, tuple[tuple[str, ...], Any]]] = {
    "ResourceQuota": (("spec", "hard", "requests.nvidia.com/gpu"), "999"),
    "Namespace": (("metadata", "labels", "pod-security.kubernetes.io/enforce"), "privileged"),
    "NetworkPolicy": (("spec", "podSelector"), {"matchLabels": {"none": "such"}}),
    "ValidatingAdmissionPolicyBinding": (("spec", "validationActions"), ["Audit"]),
}
"""Fields that somebody changes by hand."""


def edit(cluster: Cluster, one: Reference) -> None:
    path, changed = EDITS[one.kind]
    patch: Any = changed
    for key in reversed(path):
        patch = {key: patch}
    cluster.patch(one, patch)


def content(live: Any) -> Any:
    """What a stack sets of an object."""
    return live.get("spec"), live["metadata"].get("labels")


@pytest.mark.pulumi
@pytest.mark.slow
def test_after_a_lost_state_fields_change_and_leave(project: Project, platform: Platform, cluster: Cluster) -> None:
    def up(floor: str) -> Any:
        teams = small()["teams"]
        teams["vision"]["labels"] = {"example.com/floor": floor} if floor else {}
        write(project, platform, teams=teams)
        done = tenancy(project, "up", "good", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        live: Any = cluster.get("v1", "Namespace", "vision")
        return live["metadata"]["labels"].get("example.com/floor")

    up("first")
    assert up("second") == "second"
    before = existing(cluster, references(project))
    shutil.rmtree(project.folder / "backend")
    assert up("third") == "third"
    assert up("") is None
    assert existing(cluster, references(project)) == before
    succeeded(pulumi(project, "preview", "--expect-no-changes"))


@pytest.mark.pulumi
@pytest.mark.slow
@pytest.mark.parametrize("by", ["pulumi", "tenancy"])
def test_a_new_api_version_keeps_the_objects(project: Project, cluster: Cluster, by: str) -> None:
    """The state is as an earlier program would have left it, which declared an older version."""
    folder = project.folder / "out" / "pulumi" / "good" if by == "tenancy" else project.folder
    up = ("up", "--yes", "--skip-preview")
    if by == "pulumi":
        succeeded(pulumi(project, "stack", "init"))
        succeeded(pulumi(project, *up))
    else:
        succeeded(tenancy(project, "up", "good", "--yes"))
    before = existing(cluster, references(project))
    file = project.folder / "state.json"
    exported = succeeded(pulumi(project, "stack", "export", "--cwd", str(folder)))
    assert "kueue.x-k8s.io/v1beta2" in exported
    file.write_text(exported.replace("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"))
    succeeded(pulumi(project, "stack", "import", "--file", str(file), "--cwd", str(folder)))
    succeeded(pulumi(project, *up) if by == "pulumi" else tenancy(project, "up", "good", "--yes"))
    assert existing(cluster, references(project)) == before
    assert "kueue.x-k8s.io/v1beta1:" not in succeeded(pulumi(project, "stack", "export", "--cwd", str(folder)))
    succeeded(pulumi(project, "preview", "--expect-no-changes", "--cwd", str(folder)))


@pytest.mark.pulumi
@pytest.mark.slow
def test_a_job_runs_once_for_each_definition(project: Project, platform: Platform, cluster: Cluster) -> None:
    def up() -> str:
        done = tenancy(project, "up", "good", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def uid() -> str | None:
        live: Any = cluster.get(*nightly)
        return live and live["metadata"]["uid"]

    (nightly,) = (one for one in references(project) if one.kind == "Job" and one.name == "nightly")
    up()
    first = uid()
    assert first
    succeeded(pulumi(project, "up", "--refresh", "--yes", "--skip-preview"))
    assert uid() == first
    cluster.delete(nightly, wait=GUARD)
    assert f"{nightly}: deleted; it runs again only when the stack changes it" in up()
    succeeded(pulumi(project, "up", "--yes", "--skip-preview"))
    assert uid() is None
    teams = small()["teams"]
    teams["vision"]["training"]["nightly"]["image"] = "registry.example.com/ml/train:4.0"
    write(project, platform, teams=teams)
    up()
    assert uid() not in {None, first}
    succeeded(pulumi(project, "preview", "--expect-no-changes"))
