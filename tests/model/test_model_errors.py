import pytest
from builders import Data, errors, job, pool, server, stack, team


def one(sections: Data) -> str:
    """The only error: a second one would be a consequence of the first."""
    (found,) = errors(sections)
    return found


def test_a_valid_stack_has_no_errors() -> None:
    assert errors(stack()) == []


SHAPES: dict[str, tuple[Data, str]] = {
    "a misspelt key": (
        stack(teams={"a": team(teir="critical")}),
        (
            "teams.a.teir: is no key here; did you mean 'tier'? Known: claims, cohort, compute, containers,"
            " costCenter, gangs, gpus, lends, network, objects, owner, podSecurity, preemption, priority, queue,"
            " quota, serving, tier, training, weight"
        ),
    ),
    "a missing key": (
        stack(teams={"a": {"owner": "x"}}),
        "teams.a.costCenter: is missing; write it: Who pays, in label `cost-center`",
    ),
    "an unknown section": (
        stack(team={}),
        (
            "team: is no key here; did you mean 'teams'? Known: cluster, cohorts, datasets, environment,"
            " fairness, guards, machines, metrics, operators, pools, prices, priorities, teams"
        ),
    ),
    "a missing section": ({"teams": {}}, "pools: is missing; write it: Node pools by name"),
    "a number that is a word": (
        stack(pools={"h100": pool(nodes={"min": 0, "max": "four"})}),
        "pools.h100.nodes.max: four is no whole number; it says: Nodes that an autoscaler may grow to",
    ),
    "a fractional GPU": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 0.5}})}),
        (
            "teams.a.gpus.h100.guaranteed: 0.5 is no whole number; it says: Always there, taken back from"
            " borrowers at once"
        ),
    ),
    "a truth value where a number belongs": (
        stack(pools={"h100": pool(nodes=True)}),
        "pools.h100.nodes: True is no mapping of keys; it says: A number of nodes, or `{min, max}`",
    ),
    "a text where a mapping belongs": (
        stack(teams={"a": "research"}),
        (
            "teams.a: research is no mapping of keys; it says: One namespace with its guarantee and limit of"
            " every flavor, its budgets, and its workloads"
        ),
    ),
    "a name that Kubernetes does not take": (
        stack(teams={"ML_Research": team()}),
        (
            "teams.ML_Research: ML_Research is no name that Kubernetes takes; use small letters, digits and '-',"
            " at most 63, a letter or digit first and last"
        ),
    ),
    "a server's name that no Service can carry": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"1st": server()})}),
        (
            "teams.a.serving.1st: 1st is no name that a Service and the pods of a job can carry; use small"
            " letters, digits and '-', at most 50, a letter first"
        ),
    ),
    "one of a few words": (
        stack(fairness="evn"),
        "fairness: evn is none of 'hierarchical' or 'even'; did you mean 'even'? Known: even, hierarchical",
    ),
    "min above max": (
        stack(pools={"h100": pool(nodes={"min": 3, "max": 2})}),
        "pools.h100.nodes: max 2 is below min 3; raise max to 3 or lower min",
    ),
    "an amount without sense": (
        stack(teams={"a": team(compute={"requests": {"memory": "lots"}})}),
        (
            "teams.a.compute.requests.memory: lots is no amount of memory or storage; write bytes such as 512Mi,"
            " 64Gi or 2Ti"
        ),
    ),
    "a duration without its unit": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 1}}, training={"j": job(deadline=30)})}),
        (
            "teams.a.training.j.deadline: 30 is no length of time with its unit; write for example 100ms, 30s,"
            " 10m, 6h or 7d"
        ),
    ),
    "a hole that is no CIDR": (
        stack(teams={"a": team(network={"egress": ["10.0.0.0/8", "999.0.0.0/8"]})}),
        "teams.a.network.egress[1]: 999.0.0.0/8 is no CIDR; write for example 10.0.0.0/8 or 0.0.0.0/0",
    ),
    "a GPU resource without a domain": (
        stack(pools={"h100": pool(resource="gpu")}, teams={}),
        (
            "pools.h100.resource: gpu is no extended resource; write domain/name as the device plugin does, such"
            " as amd.com/gpu"
        ),
    ),
    "limits without requests, which could refuse what the queue admits": (
        stack(teams={"a": team(compute={"limits": {"cpu": 8}})}),
        (
            "teams.a.compute: bounds limits.cpu alone, which could refuse pods that the queue admits by their"
            " requests; write requests.cpu beside it, or leave it out"
        ),
    ),
    "a latency that rounds to nothing": (
        stack(
            metrics={"latencyP99": "p99_seconds"},
            teams={
                "a": team(
                    gpus={"h100": {"guaranteed": 8}},
                    serving={"s": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": "0.1ms"})},
                )
            },
        ),
        (
            "teams.a.serving.s.scaleOn.latencyP99: 0.1ms is not right: input should be greater than or equal to"
            " 0.001; it says: Target for a pod's 99th percentile of latency, such as `100ms`"
        ),
    ),
    "a weight without bound": (
        stack(teams={"a": team(weight=float("inf"))}),
        (
            "teams.a.weight: inf is not right: input should be a finite number; it says: Its part when teams"
            " compete under fair sharing"
        ),
    ),
}


@pytest.mark.parametrize(("sections", "message"), SHAPES.values(), ids=SHAPES.keys())
def test_a_malformed_stack_has_one_error_that_says_what_to_write(sections: Data, message: str) -> None:
    assert one(sections) == message


NAMES = {
    "a flavor": (
        stack(teams={"a": team(gpus={"h10": {"guaranteed": 1}})}),
        "teams.a.gpus.h10: h10 is no flavor of pools; did you mean 'h100'? Known: a100, cpu, h100",
    ),
    "a priority class": (
        stack(priorities={"ml-high": 5}, teams={"a": team(priority="ml-hihg")}),
        "teams.a.priority: ml-hihg is no priority class of priorities; did you mean 'ml-high'? Known: ml-high",
    ),
    "a cohort": (
        stack(cohorts={"org": {}}, teams={"a": team(cohort="research")}),
        "teams.a.cohort: research is no cohort of cohorts; known: org",
    ),
    "a cohort where there are none": (
        stack(teams={"a": team(cohort="research")}),
        "teams.a.cohort: research is no cohort: the stack has none but the root; add it under cohorts",
    ),
    "a parent": (
        stack(cohorts={"org": {}, "b": {"parent": "ogr"}}),
        "cohorts.b.parent: ogr is no cohort of cohorts; did you mean 'org'? Known: b, org",
    ),
    "another's queue": (
        stack(teams={"a": team(queue="a")}),
        "teams.a.queue: a is no other team of teams; there are none yet",
    ),
    "a dataset's team": (
        stack(datasets={"d": {"bucket": "s3://b", "teams": ["b"]}}),
        "datasets.d.teams[0]: b is no team of teams; known: a",
    ),
    "a workload's flavor": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training={"j": job(flavor="h1000")})}),
        "teams.a.training.j.flavor: h1000 is no flavor of pools; did you mean 'h100'? Known: a100, cpu, h100",
    ),
    "a gang's flavor": (
        stack(teams={"a": team(gangs={"h200": {"guaranteed": 1}})}),
        "teams.a.gangs.h200: h200 is no flavor of pools; did you mean 'h100'? Known: a100, cpu, h100",
    ),
    "a priority class of a budget": (
        stack(priorities={"hi": 5}, teams={"a": team(compute={"priorities": ["high"]})}),
        "teams.a.compute.priorities[0]: high is no priority class of priorities; did you mean 'hi'? Known: hi",
    ),
    "a second root": (
        stack(cohorts={"org": {}, "b": {}}),
        "cohorts.org: is a second root beside b, and nobody could borrow across; write parent: b",
    ),
    "a namespace of Kubernetes' own": (
        stack(teams={"kube-system": team()}),
        "teams.kube-system: kube-system is a namespace of Kubernetes' own; name the team otherwise",
    ),
    "a machine that nobody knows": (
        stack(pools={"h100": {"cpu": 8, "memory": "8Gi", "gpu": "x", "nodes": 1}}),
        "pools.h100: says half of its GPUs; write both gpu and gpusPerNode, or neither for a pool of CPUs",
    ),
}


@pytest.mark.parametrize(("sections", "message"), NAMES.values(), ids=NAMES.keys())
def test_a_name_that_leads_nowhere_is_refused_with_the_nearest_one(sections: Data, message: str) -> None:
    assert one(sections) == message


def test_a_cycle_of_cohorts_which_kueue_accepts_in_silence_is_refused() -> None:
    found = errors(stack(cohorts={"org": {}, "b": {"parent": "c"}, "c": {"parent": "b"}}))
    assert found == [
        f"cohorts.{name}.parent: {parent} leads back to the cohort itself, which Kueue accepts in silence and never"
        " admits from; name a parent nearer to the root"
        for name, parent in (("b", "c"), ("c", "b"))
    ]


def test_all_errors_come_at_once_of_shape_and_of_coherence_in_every_section() -> None:
    found = errors(
        {
            "pools": {"h100": pool(), "l4": pool("g6.12xlarge", "many")},
            "priorities": {"hi": {"value": 2000000000}},
            "teams": {
                "a": team(gpus={"h100": {"guaranteed": 24}}),
                "b": team(priority="low", ownr="x"),
            },
        }
    )
    places = [message.partition(": ")[0] for message in found]
    assert places == [
        "pools.l4.nodes",
        "priorities.hi.value",
        "teams.a.gpus.h100.guaranteed",
        "teams.b.ownr",
        "teams.b.priority",
    ]


GPUS = {"h100": {"guaranteed": 8}}
CASCADES = {
    "a malformed pool does not make references to it false": stack(
        pools={"h100": pool(nodes="two")}, teams={"a": team(gpus=GPUS, training={"j": job(flavor="h100")})}
    ),
    "nor to the flavor that it names": stack(
        pools={"big": pool(nodes="two", flavor="h100")}, teams={"a": team(gpus=GPUS)}
    ),
    "nor does an unknown machine": stack(
        pools={"h100": pool("p5.48xlarg")}, teams={"a": team(gpus=GPUS, serving={"s": server()})}
    ),
    "a misspelt section does not make its names unknown": stack(
        priorites={"hi": 5}, teams={"a": team(gpus=GPUS, priority="hi")}
    ),
    "a malformed root does not make the other a second one": stack(cohorts={"b": {"parent": 5}, "org": {}}),
    "a malformed team does not make its datasets' false": stack(
        teams={"a": team(owner="no good!")}, datasets={"d": {"bucket": "s3://b", "teams": ["a"]}}
    ),
    "too many GPUs are not also too many of the cpus that they bring": stack(
        teams={"a": team(gpus={"h100": {"guaranteed": 24}})}
    ),
    "too many together neither": stack(
        teams={"a": team(gpus={"h100": {"guaranteed": 9}}), "b": team(gpus={"h100": {"guaranteed": 9}})}
    ),
    "a job too large is said once": stack(
        teams={"a": team(gpus=GPUS, training={"j": job(gpus=8, workers=2)})},
    ),
    "gangs beyond the supply do not make others' guarantees false": stack(
        teams={"a": team(gangs={"h100": {"guaranteed": 20}}), "b": team(gpus=GPUS)}
    ),
    "a flavor of two kinds is said of its pool": stack(
        pools={"h100": pool(), "cpu": pool("m7i.8xlarge", 1, flavor="h100")}, teams={"a": team(gangs=GPUS)}
    ),
}


@pytest.mark.parametrize("sections", CASCADES.values(), ids=CASCADES.keys())
def test_an_error_never_cascades(sections: Data) -> None:
    assert len(errors(sections)) == 1, errors(sections)


def test_a_shorthand_says_the_same_as_what_it_stands_for() -> None:
    assert errors(stack(pools={"h100": pool(nodes={"min": 2, "max": 2})})) == errors(stack(pools={"h100": pool()}))
    for sections in (stack(priorities={"hi": 5}), stack(priorities={"hi": {"value": 5}})):
        assert errors(sections) == []
    for sections in (stack(datasets={"d": "s3://b/Path/V1"}), stack(datasets={"d": {"bucket": "s3://b/Path/V1"}})):
        assert errors(sections) == []


def test_a_name_that_leads_nowhere_does_not_hide_that_the_same_team_is_promised_too_much() -> None:
    found = errors(stack(teams={"a": team(gpus={"h100": {"guaranteed": 24}}, priority="hgih", cohort="nowhere")}))
    assert [line.split(":")[0] for line in found] == [
        "teams.a.cohort",
        "teams.a.gpus.h100.guaranteed",
        "teams.a.priority",
    ]
