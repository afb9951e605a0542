"""What is refused at creation is refused in an update too; what is older than a rule stays as it is."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from acceptance_guards import QUEUE, RESEARCH, Person, cron_job, pod_of, replicas

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

CLASS: Final = "kueue.x-k8s.io/priority-class"
CRITICAL: Final = "system-node-critical"
FORBIDDEN: Final = f"uses priority class {CRITICAL}, which is not allowed in this namespace"


@pytest.fixture
def kept(cluster: Cluster, tenant: Person) -> Iterator[Callable[[Any], Any]]:
    """Creates objects as the administrator, whom no rule judges: as if they were older than the rules."""
    assert tenant
    made: list[Any] = []

    def create(manifest: Any) -> Any:
        cluster.create(manifest)
        made.append(manifest)
        return manifest

    yield create
    for manifest in made:
        cluster.delete(Reference.of(manifest), grace=0)


def of_jobs(**labels: str | None) -> Any:
    """A change of labels of the Jobs of a CronJob."""
    return {"spec": {"jobTemplate": {"metadata": {"labels": dict(labels)}}}}


def with_class(name: str) -> Any:
    found = cron_job(RESEARCH, RESEARCH)
    found["spec"]["jobTemplate"]["metadata"]["labels"][CLASS] = name
    return found


def test_the_jobs_of_a_cron_job_get_no_label_by_an_update_that_is_refused_at_creation(
    tenant: Person, kept: Callable[[Any], Any]
) -> None:
    own = kept(cron_job(RESEARCH, RESEARCH))
    assert FORBIDDEN in tenant.refusal(with_class(CRITICAL))
    assert FORBIDDEN in tenant.patch_refusal(own, of_jobs(**{CLASS: CRITICAL}))
    assert "requests GPUs in queue ml-serving" in tenant.patch_refusal(own, of_jobs(**{QUEUE: "ml-serving"}))
    annotated = {"spec": {"jobTemplate": {"metadata": {"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}}}}
    assert "sets kueue.x-k8s.io/prebuilt-workload-name" in tenant.patch_refusal(own, annotated)
    assert not tenant.patch_refusal(own, of_jobs(**{CLASS: "ml-low"}))
    assert not tenant.patch_refusal(own, of_jobs(note="x"))


def test_an_update_passes_that_leaves_a_value_which_was_forbidden_meanwhile(
    tenant: Person, kept: Callable[[Any], Any]
) -> None:
    old = kept(with_class(CRITICAL))
    for patch in (
        {"spec": {"schedule": "0 4 * * *"}},
        {"spec": {"suspend": True}},
        {"metadata": {"labels": {"note": "x"}, "annotations": {"note": "x"}}},
        of_jobs(note="x"),
    ):
        assert not tenant.patch_refusal(old, patch), patch
    assert FORBIDDEN.replace(CRITICAL, "theirs") in tenant.patch_refusal(old, of_jobs(**{CLASS: "theirs"}))
    assert FORBIDDEN in tenant.patch_refusal(old, of_jobs(**{"kueue.x-k8s.io/max-exec-time-seconds": "60"}))
    assert not tenant.patch_refusal(old, of_jobs(**{CLASS: "ml-low"}))
    web = replicas("Deployment", RESEARCH, RESEARCH, spec=pod_of(0, schedulerName="mine"))
    web["spec"]["replicas"] = 0
    kept(web)
    assert not tenant.patch_refusal(web, {"spec": {"paused": True}})
    assert "sets schedulerName mine" in tenant.patch_refusal(web, {"metadata": {"labels": {CLASS: "ml-low"}}})
