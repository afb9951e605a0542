"""A stack whose guards deny, deployed by one whom they judge, and a tenant in it."""

from collections.abc import Iterator

import pytest
from acceptance_builders import Waves, declared, flat, in_waves, remove, sections_of
from acceptance_guards import (
    POLICIES,
    RESEARCH,
    TEAMS,
    TOLERATION,
    Door,
    Person,
    bounded,
    job,
    pod,
    pod_of,
)

from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.embedded.platform import Platform


@pytest.fixture(scope="module")
def stack() -> Waves:
    """The stack `local`, but for what the samples need."""
    sections = sections_of("local")
    # Its own jobs have all GPUs that ml-research may have; two more are for the samples.
    sections["teams"]["ml-research"]["gangs"]["l4"]["guaranteed"] = 6
    sections["teams"]["ml-production"]["containers"] = {"max": {"gpu": 4}}
    sections["guards"] = {"action": "deny", "exempt": ["system:serviceaccounts:guards-exempt"]}
    return in_waves(declared(sections))


@pytest.fixture(scope="module")
def door(cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Door:
    """The way in for whoever is judged."""
    return Door(cluster, platform.kubeconfig, tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def deployed(cluster: Cluster, door: Door, stack: Waves) -> Iterator[Waves]:
    """The stack, applied by one who has every right and is judged like anyone: policies first, and in force."""
    guards = [one for one in flat(stack) if str(one["kind"]).startswith("ValidatingAdmission")]
    assert len(guards) == 2 * (len(POLICIES) + 1)
    for manifest in guards:
        cluster.apply(manifest)
    namespaces = [one for one in flat(stack) if one["kind"] == "Namespace"]
    for manifest in namespaces:
        cluster.apply(manifest)
    with door.let_in("deployer", "cluster-admin") as deployer:
        for name in TEAMS:
            cluster.wait_for(lambda name=name: cluster.exists("v1", "ServiceAccount", "default", name), what="accounts")
        broken = (
            job(RESEARCH, None),
            pod(RESEARCH, None, pod_of(0, tolerations=[TOLERATION])),
            job(RESEARCH, RESEARCH, pod_of(0, schedulerName="x")),
            job(RESEARCH, RESEARCH, pod_of(16)),
            job(RESEARCH, RESEARCH, bounded(cpu=("1", "4"))),
        )
        for one in broken:
            cluster.wait_for(lambda one=one: deployer.said(one), what="the policies to be in force")
        for manifest in flat(stack):
            deployer.cluster.apply(manifest, force=True)
    yield stack
    remove(cluster, flat(stack))


@pytest.fixture(scope="module")
def tenant(cluster: Cluster, door: Door, deployed: Waves) -> Iterator[Person]:
    """Somebody who may edit the teams' namespaces."""
    assert deployed
    with door.let_in("alice", "edit", *TEAMS) as alice:
        cluster.wait_for(lambda: alice.said(pod(RESEARCH, RESEARCH)) is None, what="her rights")
        yield alice
