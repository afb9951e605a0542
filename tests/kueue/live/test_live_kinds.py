"""Each kind of job on each kind of pool: its pods run on nodes of the pool, or it is refused with a reason.

The jobs are those of a stack, those of `tenancy submit`, and objects of further kinds as people write them.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest
from builders import GPU, pool, team
from kinds_by_hand import INTEGRATED, written
from queueing import Queueing
from researchers import TEAM, Researcher, holding, researching, sections
from scheduled import Scheduled

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import gpus
from gpu_tenancy.cluster.demand import Target, demand, target_of, with_runtime
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.explain import fit
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.jobs.submitting import Wish, job_of, read_terms
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.local.checks.workloads import check_workloads
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import Runtime
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.guards import UNCOUNTED
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.roles import KINDS as FRAMEWORKS

pytestmark = pytest.mark.platform
SPOT: Final = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot"}  # as AKS sets it
OWN_TAINT: Final = {"key": "example.com/reserved", "value": "ml"}
POOLS: Final[dict[str, Any]] = {
    "cpu": pool("m7i.8xlarge", 3, labels={"node-type": "cpu"}),
    "kept": pool("m7i.8xlarge", 3, labels={"node-type": "kept"}, taints=[OWN_TAINT]),
    "own": pool("p4de.24xlarge", 5, taints=[OWN_TAINT]),
    "spot": pool("p5.48xlarge", 6, taints=[SPOT, {**OWN_TAINT, "effect": "NoExecute"}]),
    "mig": pool("p4d.24xlarge", 1, sharing={"mig": {"profile": "1g.5gb"}}),
}
RESOURCES: Final = {"mig": "nvidia.com/mig-1g.5gb"}
GPUS: Final = {"own": 40, "spot": 48, "mig": 56}
BY_HAND: Final = ("Pod", "Deployment", "StatefulSet", "RayCluster", "RayService", "TrainJob")  # no stack has these jobs
OTHER: Final = {"key": "example.com/other", "operator": "Exists"}  # a toleration of a user's own
KEYS: Final = {"cpu": "500m", "memory": "1Gi", "image": "registry.example.com/train:1.0"}


def shapes(gpus: int) -> dict[str, Any]:
    """Jobs of a stack, of all frameworks and schedulers, whose pods have as many GPUs."""
    return {
        "job": {"workers": 2},
        "elastic": {"workers": {"min": 1, "max": 2}},
        "together": {"workers": 2, "gang": True},
        "pytorch": {"framework": "pytorch", "workers": 2},
        "jax": {"framework": "jax", "workers": 2},
        "mpi": {"framework": "mpi", "workers": 2, "command": ["mpirun", "/train"]},
        "deepspeed": {"framework": "deepspeed", "roles": {"launcher": {"gpus": gpus}, "worker": {}}},
        "jobset": {"framework": "jobset", "roles": {"driver": {"gpus": 0}, "worker": {}}},
        "ray": {"framework": "ray", "command": ["/tune"], "workers": 1},
        "leader-worker": {"framework": "leader-worker", "workers": 1},
        **({"volcano": {"scheduler": "volcano", "tasks": {"worker": 2}}} if gpus else {}),
    }


def stack_of() -> Any:
    """The stack `local` with one team, whose quota and jobs are on these pools."""
    training = {
        f"{shape}-{flavor}": {**KEYS, "flavor": flavor, "gpus": gpus, **fields}
        for flavor, gpus in ((flavor, int(flavor in GPUS)) for flavor in POOLS)
        for shape, fields in shapes(gpus).items()
    }
    cpus: Any = {"cpu": {"guaranteed": 60}, "memory": {"guaranteed": "200Gi"}}
    member = team(
        cohort="research",
        priority="ml-high",
        gpus={flavor: {"guaranteed": count - 2} for flavor, count in GPUS.items()},
        quota={"cpu": cpus, "kept": cpus},
        gangs={flavor: {"guaranteed": 2, "cpu": 2, "memory": "8Gi"} for flavor in GPUS},
        training=training,
    )
    return {**sections(), "pools": POOLS, "teams": {TEAM: member}, "datasets": {}}


SECTIONS: Final = stack_of()
POD: Final = {"containers": [{"name": "c", "image": KEYS["image"]}]}
IN_STACK: Final = tuple(SECTIONS["teams"][TEAM]["training"])
SUBMITTED: Final = {
    f"s-{framework}-{flavor}": (framework, flavor, int(flavor not in {"cpu", "kept"}))
    for framework in get_args(Runtime)
    for flavor in ("cpu", "kept", "spot", "mig", "any")
} | {"s-idle-spot": ("job", "spot", 0), "s-gpu-kept": ("pytorch", "kept", 1)}
WRITTEN: Final = {f"h-{kind.lower()}-{flavor}": (kind, flavor) for kind in BY_HAND for flavor in ("spot", "mig")}
REFUSED: Final = {
    "s-idle-spot": "flavor spot: queue ml-research has no CPUs of it",
    "s-gpu-kept": "flavor kept: queue ml-research has no GPUs of it",
}
"""The reason for each job that does not run."""


@dataclass(frozen=True)
class Results:
    """All jobs after those that can have started; the reason for each that was refused."""

    refused: dict[str, str]
    targets: dict[str, Target]
    reasons: dict[str, str]  # of what does not run


def submitted(rita: Researcher) -> Iterator[tuple[str, Callable[[], Manifest]]]:
    """Jobs of `tenancy submit`."""
    state = fit_state = read(rita.own, fit.KINDS, TEAM, only=fit.OWN)
    terms = read_terms(rita.own, TEAM, fit_state, KEYS["image"])
    for name, (framework, flavor, count) in SUBMITTED.items():
        wish = Wish(
            KEYS["image"],
            ["/train"],
            name,
            gpus=count,
            nodes=2 if framework != "ray" else 1,
            flavor="" if flavor == "any" else flavor,
            framework=cast("Runtime", framework),
            cpu="1",
            memory="2Gi",
            user="rita",
        )
        yield name, lambda wish=wish: rita.submit(job_of(wish, TEAM, state, terms))


def by_hand(boss: Researcher) -> Iterator[tuple[str, Callable[[], Manifest]]]:
    """Objects with GPUs of a pool, which they select by its labels, and with a toleration of their own."""
    flavors = boss.cluster.list("kueue.x-k8s.io/v1beta2", "ResourceFlavor")
    labels = {text_at(one, "metadata", "name"): map_at(one, "spec", "nodeLabels") for one in flavors}
    for name, (kind, flavor) in WRITTEN.items():
        text = json.dumps(written(INTEGRATED[kind], "both")).replace(GPU, RESOURCES.get(flavor, GPU))
        made = json.loads(text.replace('"counted"', f'"{name}"'))
        made["metadata"]["name"] = name
        place: Any = {"nodeSelector": labels[flavor], "tolerations": [OTHER]}
        if kind == "TrainJob":
            node = {"name": "node", "template": {"spec": {"template": {"spec": place}}}}
            runtime = {"template": {"spec": {"replicatedJobs": [node]}}}
            made["spec"]["runtimePatches"] = [{"manager": "example.com/me", "trainingRuntimeSpec": runtime}]
        else:
            for pods in INTEGRATED[kind].pod_sets(made):
                template: Any = pods.template
                template["spec"] |= place
        yield name, lambda made=made: boss.submit(made)


@pytest.fixture(scope="module")
def rita(queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    with researching(queueing, tmp_path_factory.mktemp("rita"), SECTIONS) as found:
        yield found


@pytest.fixture(scope="module")
def results(rita: Researcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    made: dict[str, Manifest] = {}
    refused: dict[str, str] = {}
    with holding(rita, "cluster-admin", tmp_path_factory.mktemp("boss")) as boss:
        applied = ((name, partial(rita.cluster.apply, one)) for name, one in of_stack(rita).items())
        for name, create in (*applied, *submitted(rita), *by_hand(boss)):
            try:
                made[name] = create()
            except (ApiError, ConsoleError) as error:
                refused[name] = str(error)
    runtimes = read(rita.cluster, ("ClusterTrainingRuntime",), TEAM, only=("TrainingRuntime",))
    wanted = Counter[str]()
    for name, one in made.items():
        needs = with_runtime(demand(one, TEAM), runtimes)
        wanted[name] = sum(template.count for template in needs.templates) * needs.groups

    def placed() -> bool:
        pods = [one for one in rita.cluster.list("v1", "Pod", namespace=TEAM) if at(one, "spec", "nodeName")]
        names = (f"{text_at(one, 'metadata', 'name')}-" for one in pods)
        return Counter(of for one in names for of in made if one.startswith(f"{of}-")) >= wanted

    with suppress(WaitTimeoutError):
        rita.cluster.wait_for(lambda: placed() or None, timeout=150, poll=2, what="the pods")
    state = read(rita.cluster, KINDS, TEAM, only=OWN)
    live = {name: rita.cluster.get(*Reference.of(one)) or one for name, one in made.items()}
    targets = {name: target_of(one, state) for name, one in live.items()}
    waiting = {name: answer for name, one in targets.items() if (answer := why(one, state)).waits}
    yield Results(refused, targets, {name: answer.conclusion for name, answer in waiting.items()})
    for one in made.values():
        rita.cluster.delete(Reference.of(one), foreground=True)
    rita.cluster.wait_for(
        lambda: not rita.cluster.list("v1", "Pod", namespace=TEAM), timeout=120, poll=2, what="the end of all jobs"
    )


def of_stack(rita: Researcher) -> dict[str, Manifest]:
    """The jobs of the stack."""
    return {name: one for one in rita.work if (name := text_at(one, "metadata", "name")) in IN_STACK}


@pytest.mark.parametrize("name", [*IN_STACK, *SUBMITTED, *WRITTEN])
def test_each_kind_runs_on_each_pool_or_is_refused(results: Results, name: str) -> None:
    if reason := REFUSED.get(name):
        assert reason in results.refused[name]
        return
    assert name not in results.refused, results.refused[name]
    assert name not in results.reasons, results.reasons[name]
    target, flavor = results.targets[name], name.rpartition("-")[2]
    assert len(target.pods) == sum(template.count for template in target.demand.templates) * target.demand.groups
    for pod in target.pods:
        pool_of = text_at(pod, "spec", "nodeName").rpartition("-")[0]
        if gpus(requests(map_at(pod, "spec"))):
            assert pool_of in {"own", "spot"} if flavor == "any" else pool_of == flavor
        else:
            assert pool_of == (flavor if flavor in {"cpu", "kept"} else "cpu")
        assert name not in WRITTEN or OTHER in maps_at(pod, "spec", "tolerations")
    for workload in target.workloads if target.demand.whole else ():  # `tenancy fit` counts as Kueue does
        counted = [(pods.count, pods.pod) for pods in workload.sets]
        assert [(one.count, requests(one.spec)) for one in target.demand.templates] == counted


@pytest.mark.usefixtures("results")
def test_no_pod_of_them_is_deleted_as_uncounted(rita: Researcher, tmp_path: Path) -> None:
    assert Scheduled(rita, tmp_path, UNCOUNTED.namespace, UNCOUNTED.name, PAUSE="0")() == ""


def test_every_queued_kind_is_in_the_table() -> None:
    of_stack = {kinds_of.api[1] for kinds_of in FRAMEWORKS.values()}
    assert of_stack | {*BY_HAND} == {*INTEGRATED}


POLICY: Final = "admissionregistration.k8s.io/v1"
DENIES: Final[list[Any]] = [
    {"apiVersion": POLICY, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "test-denies"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        ]},
        "validations": [{"expression": "false", "message": "no pods today"}],
    }},
    {"apiVersion": POLICY, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "test-denies"}, "spec": {
        "policyName": "test-denies", "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": TEAM}}},
    }},
]  # fmt: skip
NO_PODS: Final = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": TEAM}}
DENIALS: Final[dict[str, tuple[list[Any], str]]] = {
    "policy": (DENIES, "admitted, but its pods are refused: no pods today"),
    "quota": (
        [{**NO_PODS, "spec": {"hard": {"pods": "0"}}}],
        r"0 of 2 pods created: ResourceQuota none has \d+ of 0 pods in use, 1 more requested",
    ),
    "class": ([], "admitted, but its pods are refused: no PriorityClass with name gone was found"),
}


@pytest.mark.parametrize("denial", DENIALS)
@pytest.mark.usefixtures("results")
def test_check_fails_for_admitted_jobs_without_pods(rita: Researcher, denial: str) -> None:
    """Jobs of all frameworks before a policy, and one before a quota and with a class that is gone."""
    objects, words = DENIALS[denial]
    jobs: dict[str, Any] = {name: deepcopy(one) for name, one in of_stack(rita).items() if name.endswith("-cpu")}
    if denial != "policy":
        jobs = {"job-cpu": jobs["job-cpu"]}
    if denial == "class":
        jobs["job-cpu"]["spec"]["template"]["spec"]["priorityClassName"] = "gone"
    for one in jobs.values():
        rita.cluster.delete(Reference.of(one), foreground=True, wait=60)
    for one in objects:
        rita.cluster.apply(one)
    made = plan(load(Source(SECTIONS)))
    (of,) = made.teams
    made = replace(made, teams=(replace(of, jobs=tuple(job for job in of.jobs if job.name in jobs), gangs=()),))

    def told() -> Check | None:
        (check,) = check_workloads(rita.cluster, made, lambda _: "", within=0)
        seen = [re.search(f"{TEAM}/{name} pending: {words}", check.seen) for name in jobs]
        return check if all(seen) else None

    try:
        pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks", "namespace": TEAM}, "spec": POD}
        rita.cluster.wait_for(lambda: not objects or refuses(rita, pod), what=f"the {denial} to deny pods")
        for one in jobs.values():
            rita.cluster.apply(one)
        check = rita.cluster.wait_for(told, timeout=60, poll=2, what="why to tell each denial")
    finally:
        for one in objects:
            rita.cluster.delete(Reference.of(one))
    assert check.holds is False


def refuses(rita: Researcher, pod: Manifest) -> bool:
    try:
        rita.cluster.create(pod, dry_run=True)
    except ApiError:
        return True
    return False
