"""Actions of guards: refuse, warn or audit; and a stack of a thousand teams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance_builders import sections_of
from acceptance_guards import RESEARCH, Door, Person, guards_of, in_force, job, pod_of
from builders import GPU, pool, stack, team
from rendered_stacks import stack_of_repository

from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.source import Source, to_config

TEAM = "guards-team"
BROKEN = job(TEAM, None)
WORDS = "requests GPUs without a queue; set label kueue.x-k8s.io/queue-name: guards-team under metadata.labels"


@pytest.fixture(scope="module")
def person(door: Door) -> Iterator[Person]:
    with door.newcomer("bob", "edit", TEAM) as bob:
        yield bob


def test_violations_outside_production_are_warnings(cluster: Cluster, person: Person) -> None:
    with in_force(cluster, guards_of(sections_of("local"))):
        status, warnings = person.warnings(BROKEN)
        assert status == 201
        (message,) = warnings
        assert WORDS in message
        assert person.warnings(job(TEAM, TEAM)) == (201, [])


def test_deny_rejects_and_audit_admits_silently(cluster: Cluster, person: Person) -> None:
    denying, auditing = (guards_of({**sections_of("local"), "guards": action}) for action in ("deny", "audit"))
    with in_force(cluster, denying):
        assert WORDS in person.refusal(BROKEN)
        for manifest in auditing:
            cluster.apply(manifest)
        cluster.wait_for(lambda: not person.refusal(BROKEN), what="the other action")
        assert person.warnings(BROKEN) == (201, [])


def test_gpus_as_limits_alone_are_refused_whatever_the_action(cluster: Cluster) -> None:
    """In `local`, whose guards only warn: Kueue would count the namespace's default of 0."""
    objects = stack_of_repository("local").objects
    guards = [dict(one.manifest) for one in objects if one.name == "gpu-tenancy-gpu-requests"]
    (home,) = (dict(one.manifest) for one in objects if (one.kind, one.name) == ("Namespace", RESEARCH))
    alone, both, none = pod_of(), pod_of(), pod_of(0)
    alone["containers"][0]["resources"] = {"limits": {GPU: "8"}}

    def refused(manifest: Any) -> str | None:
        try:
            cluster.create(manifest, dry_run=True)
        except ApiError as error:
            return str(error)
        return None

    cluster.apply(home)
    with in_force(cluster, guards):
        message = refused(job(RESEARCH, RESEARCH, alone))
        assert message
        assert f"sets {GPU} under limits only in container c, and Kueue would count 0; set the same number" in message
        for spec in (both, none):
            assert refused(job(RESEARCH, RESEARCH, spec)) is None
        # No queue counts these.
        assert refused(job(RESEARCH, None, alone)) is None
        assert refused(job("default", RESEARCH, alone)) is None
    cluster.delete(Reference.of(home))


PROGRAM = """
from components.platform import configured_stack
from components.guards import Guards
from gpu_tenancy.model.plan import plan
from pathlib import Path
from pulumi_kubernetes.core.v1 import Namespace

made = plan(configured_stack(Path(__file__).parent).stack)
Guards("guards", made.guards)
first = made.teams[0].namespace
Namespace("first", metadata={"name": first.name, "labels": first.labels, "annotations": first.annotations})
"""


def test_guards_judge_three_thousand_teams(cluster: Cluster, person: Person, tmp_path: Path) -> None:
    bounds = {"requests": {"cpu": 1000, "memory": "8000Gi"}, "limits": {"cpu": 1500, "memory": "9000Gi"}}
    own = {
        "gpus": {"h100": {"guaranteed": 1}},
        "gangs": {"a100": {"guaranteed": 1}},
        "compute": {**bounds, "priorities": ["high"]},
        "priority": "high",
    }
    names = [TEAM, *(f"team-with-quite-a-long-name-{n}" for n in range(2999))]
    large = stack(
        pools={"cpu": pool("m7i.8xlarge", 3000), "h100": pool(nodes=3000), "a100": pool("p4de.24xlarge", 3000)},
        priorities={"high": 10, "low": 1},
        teams={name: team(**own) for name in names},
        guards="deny",
    )
    (tmp_path / "__main__.py").write_text(PROGRAM, encoding="utf-8")
    made = render(tmp_path, project="gpu-tenancy", stack="large", config=to_config(Source(large)))
    guards = [dict(one.manifest) for one in kubernetes_objects(made) if one.kind != "Namespace"]
    (first,) = (dict(one.manifest) for one in kubernetes_objects(made) if one.kind == "Namespace")
    cluster.apply(first, force=True)
    with in_force(cluster, guards):
        broken = job(TEAM, None, pod_of(priorityClassName="high"))
        assert WORDS in person.refusal(broken)
        words = person.refusal(job(TEAM, TEAM, pod_of(priorityClassName="low")))
        assert "uses priority class low, which is not allowed in this namespace; set one of high" in words
        assert not person.refusal(job(TEAM, TEAM, pod_of(priorityClassName="high")))
