"""The platforms that tests share, five to a run: each file leaves its platform unchanged.

So the files can run in any order and in any selection.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from xdist.scheduler import LoadFileScheduling

from gpu_tenancy.base.json import Json, at
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.catalogue.operators import charts

# Tests that use one of them, also by other fixtures, see leftovers of other tests.
FIXTURES: Final = frozenset({"platform", "cluster", "queueing"})

DEPLOYMENTS: Final = ("deployment", "research")  # fixtures of stacks that several files share, one after another

# The longest files with platforms of their own: minutes.
LONGEST: Final = ("tests/docs/test_docs_running.py", "tests/cli/test_cli_commands.py")

NEXT: Final = pytest.StashKey[pytest.Item | None]()  # the next test

# Files of the deployment `research`, and two more: all of tests/kueue/live on one platform would take longest.
RESEARCH: Final = (
    "answers", "borrowing", "counted", "gangs", "idle", "jobs", "notebooks", "submitting", "teams", "ui", "updates",
)  # fmt: skip

SHARING: Final[Mapping[str, tuple[str, ...]]] = {
    "objects and the console": (
        "tests/acceptance/test_acceptance_objects.py",
        "tests/kube/",
        "tests/embedded/",
        "tests/gitops/test_gitops_cluster.py",
        "tests/explain/test_explain_cluster.py",
        "tests/access/",
    ),
    "the Pulumi CLI": (
        "tests/deploy/test_deploy_pulumi.py",
        "tests/deploy/test_deploy_repairing.py",
        "tests/cli/test_cli_pulumi",
    ),
    "acceptance": ("tests/acceptance/",),
    "research": tuple(f"tests/kueue/live/test_live_{name}.py" for name in RESEARCH),
    "queueing": ("tests/kueue/live/",),
}
"""Folders of such tests, for the distribution of files before tests request fixtures: the files that share a platform.
With one platform for all, tests would wait for others' controllers; each further platform is another fifteen seconds
of work."""

# Files of these folders that start their own platforms only, each for its own process.
APART: Final = ("tests/embedded/test_embedded_admission.py", "tests/kueue/live/test_live_multikueue.py")

# Cluster-scoped kinds; other objects are deleted with their namespace.
OF_ALL: Final = (
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("v1", "PersistentVolume"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"),
    ("kueue.x-k8s.io/v1beta2", "AdmissionCheck"),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
    ("kueue.x-k8s.io/v1beta2", "Cohort"),
    ("kueue.x-k8s.io/v1beta2", "ProvisioningRequestConfig"),
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"),
    ("kueue.x-k8s.io/v1beta2", "Topology"),
    ("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("scheduling.volcano.sh/v1beta1", "Queue"),
)

# The same with operators: their objects belong to no file.
QUEUEING: Final = tuple(
    kind
    for kind in OF_ALL
    if kind[0] not in {"apiextensions.k8s.io/v1", "rbac.authorization.k8s.io/v1", "scheduling.volcano.sh/v1beta1"}
)

OWN: Final = "test-"  # prefix of namespaces of one test: they may stay, because no other test has their names

WORKING: Final = (
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "ResourceQuota"),
)
"""Kinds on which a controller continues to work: pods would take nodes, and claims volumes, of other tests."""

Seen: TypeAlias = Mapping[str, Json]  # the labels of each cluster-scoped object, by its kind and name


def platforms_of(item: pytest.Item) -> frozenset[str]:
    """The fixtures by which a test sees leftovers of others; a UsageError if its file does not share a platform."""
    used = FIXTURES.intersection(item.fixturenames) if isinstance(item, pytest.Function) else frozenset[str]()
    if used and sharing(item.nodeid) is None:
        raise pytest.UsageError(f"{item.nodeid} uses a shared platform; name its file in shared_platform.SHARING")
    return used


def sharing(nodeid: str) -> str | None:
    """The platform's name for a test or a file; None if it shares none."""
    found = (name for name, files in SHARING.items() if nodeid.startswith(files))
    return None if nodeid.startswith(APART) else next(found, None)


def shared_deployment(item: pytest.Item | None) -> str | None:
    """The test's fixture of a stack that several files share."""
    used = item.fixturenames if isinstance(item, pytest.Function) else ()
    return next((name for name in DEPLOYMENTS if name in used), None)


class Sharing(LoadFileScheduling):
    """Distributes whole files, as `--dist loadfile`, but all files that share a platform to one worker, as one."""

    def _split_scope(self, nodeid: str) -> str:
        return sharing(nodeid) or super()._split_scope(nodeid)


@dataclass(slots=True)
class AsFound:
    """The shared platform's objects before a file of tests, which must be the same after it."""

    cluster: Cluster
    kinds: tuple[tuple[str, str], ...] = OF_ALL
    before: Seen = field(init=False)

    def __post_init__(self) -> None:
        self.before = self._seen()

    def check(self) -> None:
        """Fails if a file left, deleted or changed an object; the next file is not blamed for it."""
        before = self.before
        self.before = now = self._seen()
        changed = [name for name in sorted({*before, *now}) if before.get(name, "") != now.get(name, "")]
        assert changed == [], f"this file does not leave the shared platform as it found it: {changed}"

    def keep(self, manifests: Iterable[Manifest]) -> None:
        """Lets existing objects stay from one file to the next."""
        kept, listed = {_titled(one) for one in manifests}, self._listed()
        self.before = {**self.before, **{_titled(one): _labels(one) for one in listed if _titled(one) in kept}}

    def release(self, manifests: Iterable[Manifest]) -> None:
        """Expects the deletion of such objects."""
        gone = {_titled(one) for one in manifests}
        self.before = {name: labels for name, labels in self.before.items() if name not in gone}

    def _seen(self) -> Seen:
        """The objects after all pending deletions, without the namespaces of operators."""
        found = self.cluster.wait_for(self._settled, timeout=120, what="what was deleted to be gone")
        return {_titled(one): _labels(one) for one in found}

    def _listed(self) -> list[Manifest]:
        return [one for kind in self.kinds for one in self.cluster.list(*kind, metadata_only=True)]

    def _settled(self) -> list[Manifest] | None:
        """Waits for each deletion on its own: to list all kinds again and again takes seconds of processor time."""
        brought = {chart.namespace for chart in charts().values()}
        others = [
            one
            for one in self._listed()
            if one["kind"] != "Namespace" or not (name_of(one).startswith(OWN) or name_of(one) in brought)
        ]
        pending = [Reference.of(one) for one in others if at(one, "metadata", "deletionTimestamp")]
        for one in pending:
            self.cluster.wait_gone(one, timeout=120)
        return None if pending else others


def _titled(one: Manifest) -> str:
    return f"{one['kind']} {name_of(one)}"


def _labels(one: Manifest) -> Json:
    return at(one, "metadata", "labels")
