"""What every tree is: whole, in an order in which each object finds what it needs, the same bytes each time."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dependency_graph import Graph
from gitops_builders import (
    STACKS,
    TREES,
    WITH_RELEASES,
    built,
    changed,
    everything,
    folders,
    key,
    key_of,
    parts,
    rendered,
    tree,
    written,
)
from starts import GUARD

from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.releases import helm_releases
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.gitops.pieces import Piece, groups, refusals, stays

KINDS_OF_TOOLS = {"Application", "HelmRelease", "HelmRepository", "OCIRepository", "Kustomization"}


def objects(stack: str, target: str) -> list[Any]:
    return [one for one in everything(tree(stack, target)) if one["kind"] not in KINDS_OF_TOOLS]


@pytest.mark.slow
@pytest.mark.parametrize("target", TREES)
@pytest.mark.parametrize("stack", STACKS)
def test_every_object_of_a_stack_is_in_its_tree_once(stack: str, target: str) -> None:
    declared = sorted((one.group, one.kind, one.namespace, one.name) for one in kubernetes_objects(rendered(stack)))
    assert sorted(map(key, objects(stack, target))) == declared


@pytest.mark.parametrize("stack", STACKS)
def test_objects_equal_the_programs_without_annotations_for_pulumi(stack: str) -> None:
    declared = {key(one.manifest): one.manifest for one in kubernetes_objects(rendered(stack))}
    for one in objects(stack, "plain"):
        manifest: Any = declared[key(one)]
        expected = {**manifest, "metadata": dict(manifest["metadata"])}
        told = expected["metadata"].pop("annotations", {})
        if kept := {name: value for name, value in told.items() if not name.startswith("pulumi.com/")}:
            expected["metadata"]["annotations"] = kept
        assert one == expected


@pytest.mark.parametrize("stack", STACKS)
def test_dependencies_are_in_an_earlier_wave(stack: str) -> None:
    graph = Graph(rendered(stack))
    waves = {one.urn: one.wave for one in parts(stack)}
    late = [
        (urn, need)
        for urn, wave in waves.items()
        for need in graph.all_needs(graph.known[urn]) & waves.keys()
        if waves[need] >= wave
    ]
    assert late == []


@pytest.mark.parametrize("stack", STACKS)
def test_an_object_comes_after_its_namespace_and_after_all_releases_that_its_component_waits_for(stack: str) -> None:
    found = {key_of(one): one for one in parts(stack)}
    for one in parts(stack):
        home = found.get(("", "Namespace", "", one.namespace))
        assert home is None or home.wave < one.wave
    last = max((one.wave for one in parts(stack) if one.release), default=-1)
    teams = [one for one in parts(stack) if "gpu-tenancy:tenancy:Tenancy" in one.urn]
    assert teams
    assert all(one.wave > last for one in teams)


@pytest.mark.parametrize("stack", STACKS)
def test_only_dependents_wait_for_workloads(stack: str) -> None:
    work = {one.urn for one in parts(stack) if one.work}
    assert [one.urn for one in parts(stack) if one.before & work and not one.work] == []
    assert [one.urn for one in parts(stack) if one.awaited and one.work] == []


def test_workloads_are_servers_jobs_and_their_dependents() -> None:
    kinds = {one.kind for one in parts("local") if one.work}
    assert {"Deployment", "HorizontalPodAutoscaler", "Job", "TrainJob", "Service"} <= kinds
    assert not kinds & {"ClusterQueue", "LimitRange", "LocalQueue", "Namespace", "NetworkPolicy", "ResourceQuota"}


@pytest.mark.parametrize("stack", STACKS)
def test_dependencies_of_a_group_are_in_earlier_groups(stack: str) -> None:
    found = groups(parts(stack))
    after = {group.name: group.after for group in found}
    home = {one.urn: group.name for group in found for one in group.members}
    awaited = {one.urn for one in parts(stack) if one.awaited}

    def before(name: str) -> set[str]:
        return {far for near in after[name] for far in (near, *before(near))}

    for group in found:
        assert group.name not in before(group.name)
        for one in group.members:
            for urn in one.before:
                assert home[urn] in before(group.name) or (home[urn] == group.name and urn not in awaited), one.urn


def test_an_operator_less_moves_no_other_operators_objects_to_another_group() -> None:
    def homes(found: tuple[Piece, ...]) -> dict[str, str]:
        return {one.urn: group.name for group in groups(found) for one in group.members}

    def is_volcano(urn: str) -> bool:
        return urn.rpartition("::")[2].startswith("operators-volcano")

    before = homes(parts(WITH_RELEASES))
    without = homes(
        tuple(
            _without(one, frozenset(urn for urn in one.before if is_volcano(urn)))
            for one in parts(WITH_RELEASES)
            if not is_volcano(one.urn)
        )
    )
    assert len(without) < len(before)
    assert without == {urn: name for urn, name in before.items() if not is_volcano(urn)}


def _without(one: Piece, gone: frozenset[str]) -> Piece:
    """A piece that needs what the one that is gone needed."""
    lost = [each for each in parts(WITH_RELEASES) if each.urn in gone]
    known = {each.urn for each in parts(WITH_RELEASES) if "operators-volcano" not in each.urn}
    needs = (one.before | {urn for each in lost for urn in each.before}) & known
    return replace(one, before=frozenset(needs))


@pytest.mark.parametrize("target", TREES)
def test_a_tree_is_the_same_bytes_each_time(target: str) -> None:
    tree.cache_clear()
    first = dict(tree(WITH_RELEASES, target))
    for each in (tree, parts, rendered):
        each.cache_clear()
    assert tree(WITH_RELEASES, target) == first


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("target", TREES)
def test_kustomize_itself_builds_every_folder(target: str, tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH; the other tests read kustomizations as kustomize does")
    files = tree(WITH_RELEASES, target)
    written(files, tmp_path)
    for folder in folders(files):
        made = subprocess.run(
            ["kubectl", "kustomize", str(tmp_path / folder)], check=False, capture_output=True, text=True, timeout=GUARD
        )
        assert made.returncode == 0, made.stderr
        assert made.stdout.count("\nkind: ") == len(built(files, folder))


def test_every_stack_of_the_repository_can_be_a_tree() -> None:
    assert {stack: refusals(rendered(stack)) for stack in STACKS} == dict.fromkeys(STACKS, ())


HIDDEN = (
    "is secret and would be readable in git; remove it from the stack and use an operator in the cluster, such as "
    "External Secrets"
)
UNKNOWN = "is known only after deployment; set the value in the stack, or deploy the stack with `pulumi up`"
NO_REPOSITORY = (
    "chart keda has no repository, so other machines cannot download it; "
    "set a repository, or use a chart with an oci:// URL"
)
NO_VERSION = "no chart version, so each sync could install a newer one; set the version"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"secret_paths": (("spec", "hard"),)}, f"ResourceQuota ml-research/budget: spec.hard {HIDDEN}"),
        (
            {"unknown_paths": (("spec", "hard", "pods"),)},
            f"ResourceQuota ml-research/budget: spec.hard.pods {UNKNOWN}",
        ),
    ],
)
def test_unwritable_objects_are_refused_by_name(fields: dict[str, Any], refused: str) -> None:
    found = rendered("local")
    assert refusals(changed(found, a_quota(found).name, **fields)) == (refused,)


def test_a_secret_is_refused_even_where_the_program_does_not_call_it_one() -> None:
    found = rendered("local")
    quota = a_quota(found)
    inputs = {**quota.inputs, "kind": "Secret", "data": {"token": "c2VjcmV0"}}
    edited = changed(found, quota.name, type="kubernetes:core/v1:Secret", inputs=inputs)
    assert refusals(edited) == (f"Secret ml-research/budget: data {HIDDEN}",)


def a_quota(found: Rendered) -> Registration:
    """The quota of ml-research, to be registered otherwise."""
    (quota,) = (
        one
        for one in found.registrations
        if one.type.endswith(":ResourceQuota") and "ml-research" in str(one.inputs["metadata"])
    )
    return quota


@pytest.mark.parametrize(("gone", "refused"), [({"repositoryOpts": {}}, NO_REPOSITORY), ({"version": ""}, NO_VERSION)])
def test_a_release_that_others_could_not_install_alike_is_refused(gone: dict[str, Any], refused: str) -> None:
    found = rendered(WITH_RELEASES)
    (release,) = (one for one in found.registrations if one.name == "operators-keda-release")
    edited = changed(found, release.name, inputs={**release.inputs, **gone})
    assert refusals(edited) == (f"Helm release keda/keda: {refused}",)


def test_a_releases_hidden_values_are_refused() -> None:
    hidden = {"secret_paths": (("values", "password"),), "unknown_paths": (("values", "role", "arn"),)}
    assert refusals(changed(rendered(WITH_RELEASES), "operators-keda-release", **hidden)) == (
        f"Helm release keda/keda: values.password {HIDDEN}",
        f"Helm release keda/keda: values.role.arn {UNKNOWN}",
    )


def test_only_resources_of_clouds_are_left_to_pulumi() -> None:
    found = stays(rendered(WITH_RELEASES))
    assert ("aws:eks/cluster:Cluster", "cluster-control-plane-cluster") in found
    there = {one.type for one in rendered(WITH_RELEASES).registrations if one.custom}
    assert {kind for kind, _ in found} == {kind for kind in there if kind.startswith("aws:")}
    assert stays(rendered("local")) == ()


def test_releases_keep_the_programs_dependencies() -> None:
    found = {one.urn.rpartition("::")[2]: one for one in parts(WITH_RELEASES)}
    release, gate = found["operators-kueue-release"], found["operators-kueue-gate"]
    assert release.wave > found["operators-kueue-system"].wave
    assert release.wave > found["operators-kueue-reads-role"].wave
    assert gate.wave > release.wave
    assert (gate.awaited, gate.work) == (True, False)
    declared = {one.urn: one.content for one in helm_releases(rendered(WITH_RELEASES))}
    assert {one.urn: one.release.content for one in parts(WITH_RELEASES) if one.release} == declared
