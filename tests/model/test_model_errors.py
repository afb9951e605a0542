import pytest
from builders import EXISTING, Data, errors, job, pool, server, stack, team

from gpu_tenancy.base.problems import listed, nearest, unknown


def one(sections: Data) -> str:
    """The only error: a second one would be a consequence of the first."""
    (problem,) = errors(sections)
    return problem


def test_a_valid_stack_has_no_errors() -> None:
    assert errors(stack()) == []


SHAPES: dict[str, tuple[Data, str]] = {
    "a misspelt key": (
        stack(teams={"a": team(teir="critical")}),
        (
            "teams.a.teir: unknown key 'teir' (did you mean 'tier'?); use one of: tier, owner, costCenter,"
            " containers, weight, … (27 in total; list them with: tenancy schema)"
        ),
    ),
    "a missing key": (
        stack(teams={"a": {"owner": "x"}}),
        "teams.a.costCenter: required key is missing; add it: Cost center that pays, in label `cost-center`",
    ),
    "an unknown section": (
        stack(team={}),
        (
            "team: unknown key 'team' (did you mean 'teams'?); use one of: teams, cluster, operators,"
            " priorities, environment, … (17 in total; list them with: tenancy schema)"
        ),
    ),
    "a missing section": ({"teams": {}}, "pools: required key is missing; add it: Node pools by name"),
    "a number that is a word": (
        stack(pools={"h100": pool(nodes={"min": 0, "max": "four"})}),
        "pools.h100.nodes.max: four is not an integer; set an integer: Maximum number of nodes with an autoscaler",
    ),
    "a fractional GPU": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 0.5}})}),
        "teams.a.gpus.h100.guaranteed: 0.5 is not an integer; set an integer: Number of guaranteed GPUs",
    ),
    "a truth value where a number belongs": (
        stack(pools={"h100": pool(nodes=True)}),
        "pools.h100.nodes: true is not a mapping; change it: Number of nodes, or `{min, max}`",
    ),
    "a text where a mapping belongs": (
        stack(teams={"a": "research"}),
        (
            "teams.a: research is not a mapping; change it: A team: a namespace with its guarantee and limit for"
            " each flavor, its budgets, and its workloads"
        ),
    ),
    "a name that Kubernetes does not take": (
        stack(teams={"ML_Research": team()}),
        (
            "teams.ML_Research: ML_Research is not a valid Kubernetes name; use at most 63 lowercase letters,"
            " digits and '-'; start and end with a letter or digit"
        ),
    ),
    "a server's name that no Service can carry": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"1st": server()})}),
        (
            "teams.a.serving.1st: 1st is not a valid workload name: a Service and the pods of a job get this"
            " name; use at most 50 lowercase letters, digits and '-'; start with a letter"
        ),
    ),
    "one of a few words": (
        stack(fairness="evn"),
        "fairness: unknown value 'evn' (did you mean 'even'?); use one of: even, hierarchical",
    ),
    "min above max": (
        stack(pools={"h100": pool(nodes={"min": 3, "max": 2})}),
        "pools.h100.nodes: max 2 is less than min 3; raise max to 3 or lower min",
    ),
    "an amount without sense": (
        stack(teams={"a": team(compute={"requests": {"memory": "lots"}})}),
        (
            "teams.a.compute.requests.memory: lots is not an amount of memory or storage; set bytes such as"
            " 512Mi, 64Gi or 2Ti"
        ),
    ),
    "a duration without its unit": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 1}}, training={"j": job(deadline=30)})}),
        (
            "teams.a.training.j.deadline: 30 is not a duration with a unit; set a duration such as 100ms, 30s,"
            " 10m, 6h or 7d"
        ),
    ),
    "a hole that is no CIDR": (
        stack(teams={"a": team(network={"egress": ["10.0.0.0/8", "999.0.0.0/8"]})}),
        ("teams.a.network.egress[1]: 999.0.0.0/8 is not a CIDR; use ADDRESS/PREFIX, such as 10.0.0.0/8 or 0.0.0.0/0"),
    ),
    "a GPU resource without a domain": (
        stack(pools={"h100": pool(resource="gpu")}, teams={}),
        (
            "pools.h100.resource: gpu is not an extended resource; use the DOMAIN/NAME that the device plugin"
            " advertises, such as amd.com/gpu"
        ),
    ),
    "limits without requests, which could refuse what the queue admits": (
        stack(teams={"a": team(compute={"limits": {"cpu": 8}})}),
        (
            "teams.a.compute: sets limits.cpu without requests.cpu, so the quota could reject pods that the"
            " queue admits by their requests; set requests.cpu too, or remove limits.cpu"
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
            "teams.a.serving.s.scaleOn.latencyP99: 0.1ms must be greater than or equal to 0.001; change it:"
            " Target for the 99th percentile of a pod's latency, such as `100ms`"
        ),
    ),
    "a weight without bound": (
        stack(teams={"a": team(weight=float("inf"))}),
        "teams.a.weight: inf is not a finite number; set a number",
    ),
}


@pytest.mark.parametrize(("sections", "message"), SHAPES.values(), ids=SHAPES.keys())
def test_a_malformed_stack_has_one_error_with_its_fix(sections: Data, message: str) -> None:
    assert one(sections) == message


NAMES = {
    "a flavor": (
        stack(teams={"a": team(gpus={"h10": {"guaranteed": 1}})}),
        "teams.a.gpus.h10: unknown flavor 'h10' (did you mean 'h100'?); use one of: a100, cpu, h100",
    ),
    "a priority class": (
        stack(priorities={"ml-high": 5}, teams={"a": team(priority="ml-hihg")}),
        "teams.a.priority: unknown priority class 'ml-hihg' (did you mean 'ml-high'?); use ml-high",
    ),
    "a cohort": (
        stack(cohorts={"org": {}}, teams={"a": team(cohort="research")}),
        "teams.a.cohort: unknown cohort 'research'; use org",
    ),
    "a cohort where there are none": (
        stack(teams={"a": team(cohort="research")}),
        "teams.a.cohort: unknown cohort 'research': the stack defines no cohorts; define it under cohorts",
    ),
    "a parent": (
        stack(cohorts={"org": {}, "b": {"parent": "ogr"}}),
        "cohorts.b.parent: unknown cohort 'ogr' (did you mean 'org'?); use one of: b, org",
    ),
    "another's queue": (
        stack(teams={"a": team(queue="a")}),
        "teams.a.queue: a is the team itself; remove queue, or set it to another team",
    ),
    "a dataset's team": (
        stack(datasets={"d": {"bucket": "s3://b", "teams": ["b"]}}),
        "datasets.d.teams[0]: unknown team 'b'; use a",
    ),
    "a workload's flavor": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training={"j": job(flavor="h1000")})}),
        "teams.a.training.j.flavor: unknown flavor 'h1000' (did you mean 'h100'?); use one of: a100, cpu, h100",
    ),
    "a gang's flavor": (
        stack(teams={"a": team(gangs={"h200": {"guaranteed": 1}})}),
        "teams.a.gangs.h200: unknown flavor 'h200' (did you mean 'h100'?); use one of: a100, cpu, h100",
    ),
    "a priority class of a budget": (
        stack(priorities={"hi": 5}, teams={"a": team(compute={"priorities": ["high"]})}),
        "teams.a.compute.priorities[0]: unknown priority class 'high' (did you mean 'hi'?); use hi",
    ),
    "a second root": (
        stack(cohorts={"org": {}, "b": {}}),
        (
            "cohorts.org: has no parent, but b is the root already, and quota cannot be borrowed between roots;"
            " set parent: b"
        ),
    ),
    "a namespace of Kubernetes' own": (
        stack(teams={"kube-system": team()}),
        "teams.kube-system: kube-system is a reserved namespace of Kubernetes; rename the team",
    ),
    "a machine that nobody knows": (
        stack(pools={"h100": {"cpu": 8, "memory": "8Gi", "gpu": "x", "nodes": 1}}),
        "pools.h100: sets only one of gpu and gpusPerNode; set both, or remove both for a CPU pool",
    ),
}


@pytest.mark.parametrize(("sections", "message"), NAMES.values(), ids=NAMES.keys())
def test_an_unknown_reference_suggests_the_nearest_name(sections: Data, message: str) -> None:
    assert one(sections) == message


def test_a_cycle_of_cohorts_which_kueue_accepts_in_silence_is_refused() -> None:
    problems = errors(stack(cohorts={"org": {}, "b": {"parent": "c"}, "c": {"parent": "b"}}))
    assert problems == [
        f"cohorts.{name}.parent: {parent} creates a cycle of cohorts, in which Kueue admits no workloads;"
        " set a parent that is closer to the root"
        for name, parent in (("b", "c"), ("c", "b"))
    ]


def test_all_errors_come_at_once_of_shape_and_of_coherence_in_every_section() -> None:
    problems = errors(
        {
            "cluster": EXISTING,
            "pools": {"h100": pool(), "l4": pool("g6.12xlarge", "many")},
            "priorities": {"hi": {"value": 2000000000}},
            "teams": {
                "a": team(gpus={"h100": {"guaranteed": 24}}),
                "b": team(priority="low", ownr="x"),
            },
        }
    )
    places = [message.partition(": ")[0] for message in problems]
    assert places == [
        "pools.l4.nodes",
        "priorities.hi.value",
        "teams.a.gpus.h100.guaranteed",
        "teams.b.ownr",
        "teams.b.priority",
    ]


def test_a_short_list_of_names_is_complete_and_a_long_one_is_cut_to_the_nearest_five() -> None:
    flavors = [f"flavor-{letter}" for letter in "abcdefgh"]
    assert listed("flavor-h", flavors) == ", ".join(flavors)
    assert unknown("flavor", "flavour-h", flavors) == (
        "unknown flavor 'flavour-h' (did you mean 'flavor-h'?)",
        f"use one of: {', '.join(flavors)}",
    )
    many = [f"m{number}" for number in range(130)]
    shown, _, rest = listed("m77", many, "tenancy machines").partition(", …")
    assert shown.split(", ")[0] == "m77"
    assert len(shown.split(", ")) == 5
    assert rest == " (130 in total; list them with: tenancy machines)"
    assert listed("m77", many).endswith(", … (130 in total)")
    assert nearest("m777", many).startswith("did you mean 'm77'? Known: m77, ")


def test_an_unknown_name_without_candidates_is_reported() -> None:
    assert nearest("a", []) == "none exist"
    assert unknown("team", "a", []) == ("unknown team 'a'", "remove it: no team is defined")
    assert nearest("x", ["a100", "h100"]) == "known: a100, h100"


@pytest.mark.parametrize(
    ("cloud", "command"), [("aws", "tenancy machines --cloud aws"), (None, "tenancy machines")], ids=["aws", "existing"]
)
def test_an_unknown_machine_type_lists_the_nearest_and_the_command_for_all(cloud: str | None, command: str) -> None:
    cluster = {"cloud": "existing", "provider": cloud} if cloud else {"cloud": "existing"}
    message = one(stack(cluster=cluster, pools={"h100": pool("p5.48xlarg")}, teams={}))
    assert message.startswith("pools.h100.machine: unknown machine type 'p5.48xlarg' (did you mean 'p5.48xlarge'?); ")
    assert message.endswith(f"; list them with: {command}), or add it under machines")
    assert len(message) < 300


def test_an_unknown_kind_of_a_choice_lists_the_kinds() -> None:
    assert one(stack(pools={"h100": pool(capacity="sport")}, teams={})) == (
        "pools.h100.capacity: unknown kind 'sport' (did you mean 'spot'?); use one of: capacity-block, flex-start,"
        " on-demand, queued, reserved, spot"
    )
    assert one(stack(cluster={"name": "ml"})) == (
        "cluster: required key 'cloud' is missing; add it: The cluster: created here, or an existing one"
    )


def test_an_empty_value_is_shown_in_quotes() -> None:
    assert one(stack(operators={"kueue": {"install": "here", "version": ""}})).startswith(
        'operators.kueue.version: "" '
    )


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


def test_a_shorthand_equals_its_long_form() -> None:
    assert errors(stack(pools={"h100": pool(nodes={"min": 2, "max": 2})})) == errors(stack(pools={"h100": pool()}))
    for sections in (stack(priorities={"hi": 5}), stack(priorities={"hi": {"value": 5}})):
        assert errors(sections) == []
    for sections in (stack(datasets={"d": "s3://b/Path/V1"}), stack(datasets={"d": {"bucket": "s3://b/Path/V1"}})):
        assert errors(sections) == []


def test_an_unknown_reference_does_not_hide_an_overcommitted_team() -> None:
    problems = errors(stack(teams={"a": team(gpus={"h100": {"guaranteed": 24}}, priority="hgih", cohort="nowhere")}))
    assert [line.split(":")[0] for line in problems] == [
        "teams.a.cohort",
        "teams.a.gpus.h100.guaranteed",
        "teams.a.priority",
    ]
