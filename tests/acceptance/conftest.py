"""A stack whose guards deny, deployed by a user whom they bind, and a tenant in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from acceptance_builders import Waves, declared, flat, in_waves, sections_of
from acceptance_guards import (
    FOREIGN,
    MEMBERS,
    POLICIES,
    RESEARCH,
    TEAMS,
    TOLERATION,
    Door,
    Person,
    bounded,
    definition,
    job,
    labels,
    pod,
    pod_of,
    replicas,
    workload,
)
from builders import Data
from removing import remove
from shared_platform import NEXT, AsFound, shared_deployment

from gpu_tenancy.base.json import text_at
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true


@pytest.fixture(scope="session")
def sections() -> Data:
    """The stack `local`, changed for the samples."""
    sections = sections_of("local")
    # Guards hold without defaults, which complete what they would refuse.
    del sections["cluster"]["version"]
    # Its own jobs have all GPUs that ml-research may have; two more are for the samples.
    sections["teams"]["ml-research"]["gangs"]["l4"]["guaranteed"] = 6
    sections["teams"]["ml-production"]["containers"] = {"max": {"gpu": 4}}
    # Another ratio than that of CPUs.
    sections["teams"]["ml-research"]["compute"]["limits"]["memory"] = "768Gi"
    # Most clusters have no KubeRay and no LeaderWorkerSet, so Kueue does not queue their kinds.
    for name in ("tune", "rollout"):
        del sections["teams"]["ml-research"]["training"][name]
    # Beside it, so that Kueue leaves its objects alone; nothing of it runs.
    sections["operators"] = {**sections.get("operators", {}), "fluid": "installed"}
    shared = {name: {"existing": True} for name in ("more", "shared")}
    sections["teams"]["ml-research"]["secrets"] |= shared
    sections["teams"]["ml-research"]["workloadSecrets"] = [*shared]
    # What some teams may open, and others not.
    sections["teams"]["ml-experiments"]["network"] = {
        "expose": {
            "hosts": ["chat.example.com", "*.ml.example.com"],
            "classes": ["nginx", "shared/edge"],
            "services": ["LoadBalancer"],
        }
    }
    sections["teams"]["ml-production"]["network"] = {
        "expose": {"services": ["LoadBalancer", "NodePort"], "reach": "public"}
    }
    sections["people"] |= {"admins": ["group:admins"], "auditors": ["group:auditors"]}
    for section, node, members in MEMBERS:
        sections[section][node]["members"] = members
    exempt = ["system:serviceaccounts:guards-exempt"]
    sections["guards"] = {"action": "deny", "exempt": exempt, "csi": ["secrets-store.csi.k8s.io"]}
    return sections


@pytest.fixture(scope="session")
def stack(sections: Data) -> Waves:
    return in_waves(declared(sections))


@pytest.fixture(scope="session")
def door(cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Door:
    return Door(cluster, platform.kubeconfig, tmp_path_factory.mktemp("people"))


@dataclass(slots=True)
class Deployment:
    """A stack that several test files share one after another; each leaves it unchanged."""

    cluster: Cluster
    door: Door
    stack: Waves
    as_found: AsFound
    stands: bool = False

    def up(self) -> None:
        """Applies the stack as a user with all rights whom the guards bind: policies first, and in force."""
        if self.stands:
            return
        guards = [one for one in flat(self.stack) if str(one["kind"]).startswith("ValidatingAdmission")]
        assert len(guards) == 2 * (len(POLICIES) + 1)
        namespaces = [one for one in flat(self.stack) if one["kind"] == "Namespace"]
        for manifest in (*guards, *namespaces):
            self.cluster.apply(manifest)
        with self.door.let_in("deployer", "cluster-admin") as deployer:
            self._wait_for_accounts()
            for one in _BROKEN:
                deployer.wait_for_refusal(one)
            for manifest in flat(self.stack):
                deployer.cluster.apply(manifest, force=True)
        self.as_found.keep(flat(self.stack))
        self.stands = True

    def _wait_for_accounts(self) -> None:
        for name in TEAMS:
            self.cluster.wait_for(
                lambda name=name: self.cluster.exists("v1", "ServiceAccount", "default", name), what="accounts"
            )

    def down(self) -> None:
        """Removes the stack with all leftovers of files in its namespaces."""
        self.stands = False
        remove(self.cluster, flat(self.stack))
        self.as_found.release(flat(self.stack))


_BROKEN: Final = (
    job(RESEARCH, None),
    pod(RESEARCH, None, pod_of(0, tolerations=[TOLERATION])),
    job(RESEARCH, RESEARCH, pod_of(0, schedulerName="x")),
    job(RESEARCH, RESEARCH, pod_of(16)),
    job(RESEARCH, RESEARCH, bounded(cpu=("1", "4"))),
)


@pytest.fixture(scope="session")
def deployment(cluster: Cluster, door: Door, stack: Waves, as_found: AsFound) -> Deployment:
    return Deployment(cluster, door, stack, as_found)


@pytest.fixture(scope="module")
def deployed(deployment: Deployment, request: pytest.FixtureRequest) -> Iterator[Waves]:
    """The stack; stays if the next file asks for it, too."""
    deployment.up()
    yield deployment.stack
    if shared_deployment(request.config.stash[NEXT]) != "deployment":
        deployment.down()


@pytest.fixture(scope="module")
def foreign(cluster: Cluster) -> Iterator[None]:
    definitions = [definition(name) for name in FOREIGN]
    for manifest in definitions:
        cluster.apply(manifest)
    for manifest in definitions:
        cluster.wait_for(lambda manifest=manifest: _is_established(cluster, manifest), what="kinds to be served")
    cluster.forget_kinds()
    yield
    remove(cluster, definitions)
    cluster.forget_kinds()


def _is_established(cluster: Cluster, manifest: Any) -> bool:
    found = cluster.get(*Reference.of(manifest))
    return found is not None and is_true(found, "Established")


@pytest.fixture(scope="module")
def tenant(cluster: Cluster, door: Door, deployed: Waves) -> Iterator[Person]:
    assert deployed
    with door.let_in("alice", "edit", *TEAMS) as alice:
        cluster.wait_for(lambda: not alice.refusal(pod(RESEARCH, RESEARCH)), what="her rights")
        yield alice


@pytest.fixture(scope="module")
def server(cluster: Cluster, tenant: Person) -> Iterator[tuple[Any, Any]]:
    """A StatefulSet with GPUs, and its pod. Kueue does not run here; the Workload is never admitted."""
    own = replicas("StatefulSet", RESEARCH, RESEARCH)
    own["metadata"]["name"] = "server"
    own["spec"] |= {"replicas": 1, "template": {**own["spec"]["template"], "metadata": {"labels": labels(RESEARCH)}}}
    made = tenant.cluster.create(own)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "server", "uid": text_at(made, "metadata", "uid")}
    counted = workload("server", {**pod_of(), "restartPolicy": "Always"}, owner=owner)
    found = cluster.wait_for(lambda: cluster.get("v1", "Pod", "server-0", RESEARCH), what="its pod")
    cluster.create(counted)
    yield own, {**found, "apiVersion": "v1", "kind": "Pod"}
    tenant.cluster.delete(Reference.of(own))
    cluster.delete(Reference.of(counted))


@pytest.fixture
def kept(cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Creates objects as the administrator, whom no rule binds: as if they were older than the rules."""
    made: list[Any] = []

    def create(manifest: Any, name: str = "") -> Any:
        if name:
            manifest["metadata"]["name"] = name
        made.append(manifest)
        cluster.create(manifest)
        return manifest

    yield create
    for manifest in reversed(made):
        cluster.delete(Reference.of(manifest), grace=0)


@pytest.fixture(scope="module")
def member(door: Door, deployed: Waves) -> Iterator[Callable[[str], Person]]:
    """A user of a group of the stack's people, without other rights."""
    assert deployed
    with door.let_in("impersonator", "cluster-admin") as impersonator:
        door.cluster.wait_for(lambda: not impersonator.impersonating("admins").refusal(pod(RESEARCH, None, pod_of(0))))
        yield impersonator.impersonating
