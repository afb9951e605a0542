"""What Argo CD, Flux and helm are told, by the fields of their own definitions."""

from pathlib import PurePosixPath
from typing import Any

import pytest
from gitops_builders import STACKS, WHERE, WITH_RELEASES, built, documents, everything, folders, key, parts, tree

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.gitops.flux import flux
from gpu_tenancy.model.catalogue.operators import charts

OPTIONS = "argocd.argoproj.io/sync-options"
WAVE = "argocd.argoproj.io/sync-wave"


def named(found: list[Any], kind: str, name: str) -> Any:
    (one,) = (one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return one


def annotations(one: Any) -> dict[str, str]:
    return one["metadata"].get("annotations", {})


def test_argo_cd_begins_with_two_applications_that_point_into_the_tree() -> None:
    platform, work = documents(tree(WITH_RELEASES, "argocd"), "applications.yaml")
    for one, name, path in ((platform, "dev-aws", "platform"), (work, "dev-aws-work", "work")):
        assert one["apiVersion"] == "argoproj.io/v1alpha1"
        assert one["metadata"]["name"] == name
        assert one["spec"]["source"] == {
            "repoURL": WHERE.url,
            "path": f"clusters/one/{path}",
            "targetRevision": "main",
        }
        assert one["spec"]["destination"] == {"server": "https://kubernetes.default.svc"}
        assert one["spec"]["syncPolicy"]["syncOptions"] == ["ServerSideApply=true", "PruneLast=true"]
        assert annotations(one) == {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}
        assert "finalizers" not in one["metadata"]
    assert [one["spec"]["syncPolicy"]["retry"]["limit"] for one in (platform, work)] == [10, -1]


@pytest.mark.parametrize("stack", STACKS)
def test_argo_cd_waits_for_waves_on_the_platform_and_for_none_of_the_work(stack: str) -> None:
    files = tree(stack, "argocd")
    waves = {(one.group, one.kind, one.namespace, one.name): str(one.wave) for one in parts(stack) if not one.release}
    platform = [one for one in built(files, "platform") if one["kind"] != "Application"]
    assert {key(one): annotations(one)[WAVE] for one in platform} == {key(one): waves[key(one)] for one in platform}
    work = built(files, "work") if any(one.work for one in parts(stack)) else []
    assert [one for one in work if WAVE in annotations(one)] == []
    assert len(documents(files, "applications.yaml")) == (2 if work else 1)


def test_an_application_installs_the_release_at_its_version_with_its_values() -> None:
    found = built(tree(WITH_RELEASES, "argocd"), "platform")
    releases = {one.release.name: one for one in parts(WITH_RELEASES) if one.release}
    assert {one["metadata"]["name"] for one in found if one["kind"] == "Application"} == {
        f"dev-aws-{name}" for name in releases
    }
    for name, piece in releases.items():
        assert piece.release is not None
        one = named(found, "Application", f"dev-aws-{name}")
        source = one["spec"]["source"]
        assert source["targetRevision"] == piece.release.version
        assert source["helm"]["releaseName"] == name
        assert source["helm"].get("valuesObject", {}) == piece.release.values
        assert one["spec"]["destination"]["namespace"] == piece.namespace
        assert annotations(one)[WAVE] == str(piece.wave)


@pytest.mark.parametrize(
    ("name", "repository", "chart"),
    [
        ("keda", "https://kedacore.github.io/charts", "keda"),
        ("kueue", "registry.k8s.io/kueue/charts", "kueue"),  # an OCI registry, as Argo CD wants it
    ],
)
def test_argo_cd_finds_the_chart(name: str, repository: str, chart: str) -> None:
    one = named(built(tree(WITH_RELEASES, "argocd"), "platform"), "Application", f"dev-aws-{name}")
    assert (one["spec"]["source"]["repoURL"], one["spec"]["source"]["chart"]) == (repository, chart)


def test_retained_objects_are_neither_pruned_nor_deleted() -> None:
    argocd = built(tree(WITH_RELEASES, "argocd"), "platform")
    flux_ = everything(tree(WITH_RELEASES, "flux"))
    for kind, name in (("Application", "dev-aws-kueue"), ("Namespace", "kueue-system")):
        assert annotations(named(argocd, kind, name))[OPTIONS] == "Prune=false,Delete=false"
        assert "finalizers" not in named(argocd, kind, name)["metadata"]
    for kind, name in (("HelmRelease", "kueue"), ("OCIRepository", "kueue"), ("Namespace", "kueue-system")):
        assert annotations(named(flux_, kind, name)) == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
    keda = named(argocd, "Application", "dev-aws-keda")
    assert keda["metadata"]["finalizers"] == ["resources-finalizer.argocd.argoproj.io"]
    assert OPTIONS not in annotations(keda)
    assert annotations(named(flux_, "HelmRelease", "keda")) == {}


def test_kinds_that_come_with_an_operator_are_not_tried_before_it_is_there() -> None:
    found = [one for one in everything(tree(WITH_RELEASES, "argocd")) if one["kind"] != "Application"]
    skipped = {one["kind"] for one in found if "SkipDryRunOnMissingResource=true" in annotations(one).get(OPTIONS, "")}
    assert {"ClusterQueue", "Queue", "ScaledObject", "ServiceMonitor", "TrainJob"} <= skipped
    assert not skipped & {"Deployment", "Namespace", "PriorityClass", "ValidatingAdmissionPolicy"}


@pytest.mark.parametrize(("target", "stays"), [("argocd", False), ("flux", False), ("plain", True)])
def test_finished_jobs_are_kept_where_they_would_be_created_again(target: str, *, stays: bool) -> None:
    found = everything(tree("local", target))
    assert ("ttlSecondsAfterFinished" in named(found, "Job", "nightly")["spec"]) == stays


@pytest.mark.parametrize("stack", STACKS)
def test_flux_has_one_kustomization_for_each_folder_and_waits_for_all_but_the_work(stack: str) -> None:
    files = tree(stack, "flux")
    (listed,) = documents(files, "kustomization.yaml")
    found = {one["metadata"]["name"]: one for file in listed["resources"] for one in documents(files, file)}
    paths = {one["spec"]["path"] for one in found.values()}
    assert paths == {f"./clusters/one/{folder}" for folder in folders(files) if folder != "."}
    for name, one in found.items():
        assert one["apiVersion"] == "kustomize.toolkit.fluxcd.io/v1"
        assert one["metadata"]["namespace"] == "flux-system"
        assert one["spec"]["wait"] == (name != f"{stack}-work")
        assert one["spec"]["prune"] is True
        assert one["spec"]["sourceRef"] == {"kind": "GitRepository", "name": "flux-system"}
        assert {each["name"] for each in one["spec"].get("dependsOn", ())} <= found.keys() - {name}
    assert all("dependsOn" in found[name]["spec"] for name in found.keys() & {f"{stack}-work"})


def test_a_helm_release_of_flux_has_its_source_version_and_values() -> None:
    files = tree(WITH_RELEASES, "flux")
    keda, kueue = built(files, "operators-keda-release"), built(files, "operators-kueue-release")
    helm = {one.release.name: one.release for one in parts(WITH_RELEASES) if one.release}
    by_chart = named(keda, "HelmRelease", "keda")["spec"]
    assert by_chart["chart"]["spec"] == {
        "chart": "keda",
        "version": helm["keda"].version,
        "sourceRef": {"kind": "HelmRepository", "name": "keda"},
    }
    assert by_chart.get("values", {}) == helm["keda"].values
    assert named(keda, "HelmRepository", "keda")["spec"]["url"] == helm["keda"].repository
    by_reference = named(kueue, "HelmRelease", "kueue")["spec"]
    assert by_reference["chartRef"] == {"kind": "OCIRepository", "name": "kueue"}
    assert (by_reference["values"], by_reference["timeout"]) == (helm["kueue"].values, "900s")
    source = named(kueue, "OCIRepository", "kueue")["spec"]
    declared = helm["kueue"]
    assert declared.digest == charts()["kueue"].digest
    assert (source["url"], source["ref"]) == (declared.chart, {"tag": declared.version, "digest": declared.digest})


def test_definitions_that_a_release_leaves_out_stay_out() -> None:
    argocd = named(built(tree(WITH_RELEASES, "argocd"), "platform"), "Application", "dev-aws-cluster-autoscaler")
    files = tree(WITH_RELEASES, "flux")
    helm = named(built(files, "cluster-autoscaler-release"), "HelmRelease", "cluster-autoscaler")["spec"]
    assert argocd["spec"]["source"]["helm"]["skipCrds"] is True
    assert (helm["install"]["crds"], helm["upgrade"]["crds"]) == ("Skip", "Skip")


def test_flux_replaces_jobs_whose_pods_change() -> None:
    found = built(tree("local", "flux"), "work")
    forced = {one["kind"] for one in found if annotations(one).get("kustomize.toolkit.fluxcd.io/force") == "enabled"}
    assert forced == {"Job", "RayJob", "TrainJob"}


def test_a_plain_release_has_its_command_above_its_values() -> None:
    (keda,) = (one for one in parts(WITH_RELEASES) if one.release and one.name == "keda")
    file = f"wave-{keda.wave:02}/helm-keda.yaml"
    first, _, values = tree(WITH_RELEASES, "plain")[PurePosixPath(file)].partition("\n")
    assert keda.release is not None
    assert first == (
        f"# helm upgrade --install keda keda --version {keda.release.version} --repo "
        f"https://kedacore.github.io/charts --namespace keda --values {file} --atomic --timeout 900s"
    )
    assert values


def test_a_name_that_flux_could_not_use_as_a_label_is_refused() -> None:
    long = "a" * 60
    with pytest.raises(ConsoleError) as refused:
        flux(long, parts("local"), "here", "flux-system")
    assert str(refused.value) == (
        f"Kustomization name {long}-tenancy: 68 characters exceed the maximum of 63; shorten the stack name"
    )
