"""Properties of every tree: complete, in an order that satisfies dependencies, and reproducible."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from components_builders import Graph
from gitops_builders import (
    STACKS,
    WITH_RELEASES,
    built,
    changed,
    documents,
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

from gpu_tenancy.engine.files import helm_releases
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.gitops.manifests import OPERATORS, TENANCY, WORK, refusals, stays

KEPT = {"argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_every_object_of_a_stack_is_in_its_tree_once(stack: str) -> None:
    declared = sorted((one.group, one.kind, one.namespace, one.name) for one in kubernetes_objects(rendered(stack)))
    assert sorted(map(key, everything(tree(stack)))) == declared


@pytest.mark.parametrize("stack", STACKS)
def test_objects_equal_the_programs_but_for_annotations(stack: str) -> None:
    declared = {key(one.manifest): one.manifest for one in kubernetes_objects(rendered(stack))}
    found = {key_of(one): one for one in parts(stack)}
    for one in everything(tree(stack)):
        manifest: Any = declared[key(one)]
        expected = {**manifest, "metadata": dict(manifest["metadata"])}
        told = expected["metadata"].pop("annotations", {})
        kept = {name: value for name, value in told.items() if not name.startswith("pulumi.com/")}
        kept |= KEPT if found[key(one)].retained else {}
        if kept:
            expected["metadata"]["annotations"] = kept
        assert one == expected


def test_retained_objects_are_neither_pruned_nor_deleted() -> None:
    annotations = {key(one): one["metadata"].get("annotations", {}) for one in everything(tree(WITH_RELEASES))}
    assert annotations["", "Namespace", "", "kueue-system"] == KEPT
    assert annotations["", "Namespace", "", "keda"] == {}


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
def test_objects_follow_their_namespace_and_all_releases(stack: str) -> None:
    found = {key_of(one): one for one in parts(stack)}
    for one in parts(stack):
        home = found.get(("", "Namespace", "", one.namespace))
        assert home is None or home.wave < one.wave
    last = max((one.wave for one in parts(stack) if one.release), default=-1)
    teams = [one for one in parts(stack) if "gpu-tenancy:tenancy:Tenancy" in one.urn]
    assert teams
    assert all(one.wave > last for one in teams)


@pytest.mark.parametrize("stack", STACKS)
def test_dependencies_are_in_the_same_or_an_earlier_folder(stack: str) -> None:
    order = [OPERATORS, TENANCY, WORK]
    home = {one.urn: order.index(one.part) for one in parts(stack)}
    assert [one.urn for one in parts(stack) for urn in one.before if home[urn] > home[one.urn]] == []
    assert [one.urn for one in parts(stack) if one.release and one.part != OPERATORS] == []


def test_workloads_are_servers_jobs_and_their_dependents() -> None:
    kinds = {one.kind for one in parts("local") if one.part == WORK}
    assert {"Deployment", "HorizontalPodAutoscaler", "Job", "TrainJob", "Service"} <= kinds
    assert not kinds & {"ClusterQueue", "LimitRange", "LocalQueue", "Namespace", "NetworkPolicy", "ResourceQuota"}


def test_each_folder_lists_its_own_waves_from_zero() -> None:
    files = tree(WITH_RELEASES)
    for part in (OPERATORS, TENANCY, WORK):
        (listed,) = documents(files, f"{part}/kustomization.yaml")
        waves = [folder for folder in folders(files) if folder.startswith(f"{part}/")]
        assert [f"{part}/{wave}" for wave in listed["resources"]] == waves
        assert waves[0] == f"{part}/wave-00"


def test_a_release_has_its_command_above_its_values() -> None:
    (keda,) = (one.release for one in parts(WITH_RELEASES) if one.release and one.name == "keda")
    (file,) = (path for path in tree(WITH_RELEASES) if path.name == "helm-keda.yaml")
    first, _, values = tree(WITH_RELEASES)[file].partition("\n")
    assert first == (
        f"# helm upgrade --install keda keda --version {keda.version} --repo "
        f"https://kedacore.github.io/charts --namespace keda --values {file} --atomic --timeout 900s"
    )
    assert file.parts[0] == OPERATORS
    assert values


def test_a_tree_is_the_same_bytes_each_time() -> None:
    tree.cache_clear()
    first = dict(tree(WITH_RELEASES))
    for each in (tree, parts, rendered):
        each.cache_clear()
    assert tree(WITH_RELEASES) == first


@pytest.mark.process
@pytest.mark.slow
def test_kustomize_itself_builds_every_folder(tmp_path: Path) -> None:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not on the PATH; the other tests read kustomizations as kustomize does")
    files = tree(WITH_RELEASES)
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
        ({"unknown_paths": (("spec", "hard", "pods"),)}, f"ResourceQuota ml-research/budget: spec.hard.pods {UNKNOWN}"),
    ],
)
def test_unwritable_objects_are_refused_by_name(fields: dict[str, Any], refused: str) -> None:
    found = rendered("local")
    assert refusals(changed(found, a_quota(found).name, **fields)) == (refused,)


def test_refuses_secrets_of_any_program() -> None:
    found = rendered("local")
    quota = a_quota(found)
    inputs = {**quota.inputs, "kind": "Secret", "data": {"token": "c2VjcmV0"}}
    edited = changed(found, quota.name, type="kubernetes:core/v1:Secret", inputs=inputs)
    assert refusals(edited) == (f"Secret ml-research/budget: data {HIDDEN}",)


def a_quota(found: Rendered) -> Registration:
    (quota,) = (
        one
        for one in found.registrations
        if one.type.endswith(":ResourceQuota") and "ml-research" in str(one.inputs["metadata"])
    )
    return quota


@pytest.mark.parametrize(("gone", "refused"), [({"repositoryOpts": {}}, NO_REPOSITORY), ({"version": ""}, NO_VERSION)])
def test_refuses_releases_that_others_cannot_install(gone: dict[str, Any], refused: str) -> None:
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
    assert (release.part, gate.part) == (OPERATORS, OPERATORS)
    declared = {one.urn: one.content for one in helm_releases(rendered(WITH_RELEASES))}
    assert {one.urn: one.release.content for one in parts(WITH_RELEASES) if one.release} == declared
