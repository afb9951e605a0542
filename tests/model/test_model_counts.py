"""Counts of objects: what a namespace can have, and that what the stack itself creates always fits."""

from builders import Data, job, planned, pool, server, stack, team

from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.plan.counts import DEFAULTS, WORKLOADS

GUARANTEE: Data = {"h100": {"guaranteed": 8}}


def counts_of(sections: Data, name: str = "a") -> dict[str, int]:
    namespace = next(made.namespace for made in planned(sections).teams if made.namespace.name == name)
    return dict(namespace.quotas[0].hard)


def test_each_team_has_a_count_for_every_key_and_for_each_kind_with_pods_that_runs_in_its_cluster() -> None:
    jobs = {
        "t": job(framework="pytorch", workers=2),
        "s": job(framework="jobset"),
        "r": job(framework="ray", command=["true"]),
    }
    groups = {"g": server(nodes=2, gpus=1)}
    counts = counts_of(stack(teams={"a": team(gpus=GUARANTEE, training=jobs, serving=groups)}))
    assert {key: counts[key] for key in DEFAULTS if key != "jobs"} == {k: v for k, v in DEFAULTS.items() if k != "jobs"}
    installed = {None, "trainer", "kuberay", "lws"}
    own = {"", "apps", "batch"}
    expected = {
        f"count/{kind.resource}"
        for kind in kinds().values()
        if kind.guarded
        and kind.resource != "pods"
        and kind.operator in installed
        and (kind.operator or kind.group in own)
    }
    assert {name for name in counts if name.startswith("count/")} == {*expected, WORKLOADS}
    assert {
        "count/jobs.batch",
        "count/jobsets.jobset.x-k8s.io",
        "count/leaderworkersets.leaderworkerset.x-k8s.io",
    } <= expected


def test_kinds_of_operators_that_do_not_run_are_not_counted() -> None:
    off = {"trainer": {"install": "off"}, "kuberay": {"install": "off"}, "lws": {"install": "off"}}
    counts = counts_of(stack(operators=off))
    groups = {name.partition(".")[2] for name in counts if name.startswith("count/")}
    assert groups == {"", "apps", "batch", "kueue.x-k8s.io"}


def test_the_team_may_have_as_many_workloads_as_all_kinds_and_pods_together() -> None:
    counts = counts_of(stack(teams={"a": team(gpus=GUARANTEE, objects={"jobs": 7, "pods": 20})}))
    of_kinds = {name: count for name, count in counts.items() if name.startswith("count/") and name != WORKLOADS}
    assert counts[WORKLOADS] == 7 * len(of_kinds) + counts["pods"]
    assert of_kinds["count/deployments.apps"] == of_kinds["count/cronjobs.batch"] == 7
    assert of_kinds["count/jobs.batch"] == of_kinds["count/statefulsets.apps"] == 27, "controllers create them too"


def test_what_the_stack_itself_creates_fits_twice_in_a_count_that_the_stack_does_not_set() -> None:
    pools = {"cpu": pool("m7i.8xlarge", 500)}
    many = server(gpus=0, replicas=4000, cpu=1, memory="1Gi")
    sections = stack(pools=pools, teams={"a": team(quota={"cpu": {"cpu": {"guaranteed": 8000}}}, serving={"s": many})})
    assert counts_of(sections)["pods"] == 8000
