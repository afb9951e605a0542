import pytest
from builders import EXISTING, Data, errors, job, pool, server, stack, team

from gpu_tenancy.base.problems import listed, nearest, unknown


def one(sections: Data) -> str:
    """The only error: a second one would be a consequence of the first."""
    (problem,) = errors(sections)
    return problem


def test_a_valid_stack_has_no_errors() -> None:
    assert errors(stack()) == []


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
    shown, _, rest = listed("m77", many, "tenancy catalogue machines").partition(", …")
    assert shown.split(", ")[0] == "m77"
    assert len(shown.split(", ")) == 5
    assert rest == " (130 in total; list them with: `tenancy catalogue machines`)"
    assert listed("m77", many).endswith(", … (130 in total)")
    assert nearest("m777", many).startswith("did you mean 'm77'? Known: m77, ")


def test_an_unknown_name_without_candidates_is_reported() -> None:
    assert nearest("a", []) == "none exist"
    assert unknown("team", "a", []) == ("unknown team 'a'", "remove it: no team is defined")
    assert nearest("x", ["a100", "h100"]) == "known: a100, h100"


@pytest.mark.parametrize(
    ("cloud", "command"),
    [("aws", "tenancy catalogue machines --cloud aws"), (None, "tenancy catalogue machines")],
    ids=["aws", "existing"],
)
def test_an_unknown_machine_type_lists_the_nearest_and_the_command_for_all(cloud: str | None, command: str) -> None:
    cluster = {"cloud": "existing", "provider": cloud} if cloud else {"cloud": "existing"}
    message = one(stack(cluster=cluster, pools={"h100": pool("p5.48xlarg")}, teams={}))
    assert message.startswith("pools.h100.machine: unknown machine type 'p5.48xlarg' (did you mean 'p5.48xlarge'?); ")
    assert message.endswith(f"; list them with: `{command}`), or add it under machines")
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
