import pytest
from builders import Data, errors, pool, stack

from gpu_tenancy.base.problems import listed, nearest, unknown


def one(sections: Data) -> str:
    """The only error: a second one would be a consequence of the first."""
    (problem,) = errors(sections)
    return problem


def test_a_valid_stack_has_no_errors() -> None:
    assert errors(stack()) == []


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
