"""The platforms that tests share, three to a run: each file leaves its platform as it found it.

So it does not matter in which order files run, nor which of them run at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pytest
from xdist.scheduler import LoadFileScheduling

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.model.catalogue.operators import charts

FIXTURES: Final = frozenset({"platform", "cluster", "queueing"})
"""Whoever asks for one of them, or for a fixture that does, meets what others left there."""

DEPLOYMENTS: Final = ("deployment", "research")
"""The fixtures of stacks that several files find deployed, one after the other."""

NEXT: Final = pytest.StashKey[pytest.Item | None]()
"""The test that follows."""

SHARING: Final[Mapping[str, tuple[str, ...]]] = {
    "objects and the console": (
        "tests/acceptance/test_acceptance_objects.py",
        "tests/kube/",
        "tests/embedded/",
        "tests/gitops/test_gitops_cluster.py",
        "tests/explain/test_explain_cluster.py",
        "tests/access/",
        "tests/deploy/test_deploy_pulumi.py",
        "tests/deploy/test_deploy_repairing.py",
        "tests/cli/test_cli_pulumi",
    ),
    "acceptance": ("tests/acceptance/",),
    "queueing": ("tests/kueue/live/",),
}
"""Where such tests are, for whoever hands out files before a test has said what it asks for: who shares with whom.

One platform would have all others wait for its tests, which wait themselves for controllers; each more is another
fifteen seconds of work.
"""

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
"""Kinds that belong to the whole cluster. What is in a namespace goes with it."""

QUEUEING: Final = tuple(
    kind
    for kind in OF_ALL
    if kind[0] not in {"apiextensions.k8s.io/v1", "rbac.authorization.k8s.io/v1", "scheduling.volcano.sh/v1beta1"}
)
"""The same where operators run: what they bring with them is no file's."""

OWN: Final = "test-"
"""How the names of namespaces begin that are one test's alone: they may stay, since no other test has their names."""

WORKING: Final = (
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "ResourceQuota"),
)
"""Kinds on which a controller goes on working: pods would take nodes, and claims volumes, of other tests."""

Seen: TypeAlias = Mapping[str, Json]
"""The labels of each object of the whole cluster, by its kind and name."""


def platforms_of(item: pytest.Item) -> frozenset[str]:
    """The fixtures by which a test meets what others left.

    Raises:
        UsageError: there are some, and its file is none of those that share a platform.
    """
    used = FIXTURES.intersection(item.fixturenames) if isinstance(item, pytest.Function) else frozenset[str]()
    if used and sharing(item.nodeid) is None:
        raise pytest.UsageError(f"{item.nodeid} uses a shared platform; name its file in shared_platform.SHARING")
    return used


def sharing(nodeid: str) -> str | None:
    """Which files a test, or a file of tests, shares a platform with, if with any."""
    return next((name for name, files in SHARING.items() if nodeid.startswith(files)), None)


def shared_deployment(item: pytest.Item | None) -> str | None:
    """The fixture of the stack that several files share, if a test finds one."""
    used = item.fixturenames if isinstance(item, pytest.Function) else ()
    return next((name for name in DEPLOYMENTS if name in used), None)


class Sharing(LoadFileScheduling):
    """Hands out whole files, as `--dist loadfile`, but those that share a platform to one worker, as one."""

    def _split_scope(self, nodeid: str) -> str:
        return sharing(nodeid) or super()._split_scope(nodeid)


@dataclass(slots=True)
class AsFound:
    """What the shared platform has before a file of tests, and must have after it."""

    cluster: Cluster
    kinds: tuple[tuple[str, str], ...] = OF_ALL
    before: Seen = field(init=False)

    def __post_init__(self) -> None:
        self.before = self._seen()

    def check(self) -> None:
        """Fails where a file left, took or changed something; the next file is not blamed for it."""
        before = self.before
        self.before = now = self._seen()
        changed = [name for name in sorted({*before, *now}) if before.get(name, "") != now.get(name, "")]
        assert changed == [], f"this file does not leave the shared platform as it found it: {changed}"

    def keep(self, manifests: Iterable[Manifest]) -> None:
        """Has objects that are there stay from one file to the next."""
        kept, listed = {_titled(one) for one in manifests}, self._listed()
        self.before = {**self.before, **{_titled(one): _labels(one) for one in listed if _titled(one) in kept}}

    def release(self, manifests: Iterable[Manifest]) -> None:
        """Has objects that were to stay be gone."""
        gone = {_titled(one) for one in manifests}
        self.before = {name: labels for name, labels in self.before.items() if name not in gone}

    def _seen(self) -> Seen:
        """What is there once all has gone that was told to, without the namespaces that operators bring."""
        found = self.cluster.wait_for(self._settled, timeout=120, what="what was deleted to be gone")
        return {_titled(one): _labels(one) for one in found}

    def _listed(self) -> list[Manifest]:
        return [one for kind in self.kinds for one in self.cluster.list(*kind, metadata_only=True)]

    def _settled(self) -> list[Manifest] | None:
        brought = {chart.namespace for chart in charts().values()}
        others = [
            one
            for one in self._listed()
            if one["kind"] != "Namespace" or not (_name(one).startswith(OWN) or _name(one) in brought)
        ]
        return None if any(at(one, "metadata", "deletionTimestamp") for one in others) else others


def _name(one: Manifest) -> str:
    return text_at(one, "metadata", "name")


def _titled(one: Manifest) -> str:
    return f"{one['kind']} {_name(one)}"


def _labels(one: Manifest) -> Json:
    return at(one, "metadata", "labels")
