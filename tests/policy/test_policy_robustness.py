"""Odd values at each place of programs: no pack fails, no rule has an internal error, no secret is shown."""

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import cycle
from typing import Any, Final, cast

import pytest
import yaml
from policy_builders import FOREIGN, UNKNOWN, Sample, foreign_program, secret
from pulumi.runtime.proto import analyzer_pb2 as wire
from samples import all_cases

from gpu_tenancy.packs.configuration import RuleConfig
from gpu_tenancy.packs.evaluation import Session
from gpu_tenancy.packs.process import Client
from rule_engine.reading import SECRET, SIGNATURE

pytestmark = pytest.mark.process

FOREIGN_RESOURCES: Final = [
    resource
    for file in sorted(FOREIGN.glob("*.yaml"))
    if file.stem != "verdicts"
    for resource in foreign_program(file.stem)
]
WELL_MADE: Final[list[Sample]] = [
    resource for case in all_cases() if case.outcome == "allowed" for resource in case.program.values()
] + FOREIGN_RESOURCES
"""Allowed programs, and foreign ones: every type that a rule reads is among them."""

WORDS: Final = re.compile(r"hush|7654321|76543")  # a part of every secret here, in any excerpt
SECRETS: Final[list[object]] = [
    "hush0",
    "hush1.example.com:5000/hush2/hush3:hush4",
    "hush5=hush6,hush7;hush8",
    "76543Gi",
    7654321,
    ["hush9", 7654321],
    {"held": "hush10", "nested": {"value": "hush11"}},
]
ODD: Final[list[object]] = [
    None, True, False, "", " ", "x", "*", "-1", "1e999999999", "0x10", "9" * 100, "NaN", "8 GPUs", "a/b:c@d", "é" * 50,
    0, -1, 0.5, 8, 1e300, -1e300, float("inf"), float("nan"), [], {}, [None], [[]], [{}], {"": ""}, {"a": None},
    {"*": {"b": [1]}}, [1, "a", None, {"name": 3}], UNKNOWN, [UNKNOWN], {"a": UNKNOWN},
    {SIGNATURE: SECRET}, {SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "text": "x"}, {SIGNATURE: 1},
]  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    below: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        below = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        below = list(enumerate(cast("list[Any]", value)))
    for key, item in below:
        yield from paths(item, (*at, key))


def put(props: Any, path: tuple[Any, ...], value: Any) -> None:
    *way, last = path
    for key in way:
        props = props[key]
    props[last] = value


def broken() -> Iterator[Sample]:
    """Each place of each type once: of a wrong kind, missing, unknown, or secret."""
    values, seen = cycle([*ODD, *map(secret, SECRETS)]), set[tuple[object, ...]]()
    for resource in WELL_MADE:
        for path in paths(resource.props):
            place = (resource.type, *("item" if isinstance(key, int) else key for key in path))
            if place not in seen:
                seen.add(place)
                props = deepcopy(resource.props)
                put(props, path, deepcopy(next(values)))
                yield Sample(resource.type, props, resource.name, protect=len(seen) % 2 == 0)


BROKEN: Final = [*broken()]
PROGRAMS: Final = [BROKEN[at : at + 8] for at in range(0, len(BROKEN), 8)]


def together(program: list[Sample]) -> wire.AnalyzeStackRequest:
    request = wire.AnalyzeStackRequest()
    for resource in program:
        sample = resource.request()
        request.resources.add(
            type=sample.type, urn=sample.urn, name=sample.name, properties=sample.properties, options=sample.options
        )
    return request


def messages(client: Client, program: list[Sample]) -> list[str]:
    """All messages of a pack about a program; fails the test if a call fails."""
    diagnostics = [diagnostic for sample in program for diagnostic, _ in client.analyze(sample.request())]
    diagnostics += [diagnostic for diagnostic, _ in client.analyze_stack(together(program))]
    remediations = [remediation for sample in program for remediation in client.remediate(sample.request())]
    return [diagnostic.message for diagnostic in diagnostics] + [remediation.diagnostic for remediation in remediations]


@pytest.mark.slow
def test_a_pack_answers_for_any_properties(packs: dict[str, Client]) -> None:
    for client in packs.values():
        for program in PROGRAMS:
            answers = messages(client, program)
            assert [message for message in answers if "internal error" in message] == []
            assert [message for message in answers if WORDS.search(message)] == []


def test_the_same_program_gets_the_same_answer_twice(packs: dict[str, Client]) -> None:
    for client in packs.values():
        for program in PROGRAMS[::10]:
            assert messages(client, program) == messages(client, program)


@pytest.mark.slow
def test_remedies_change_only_what_violates_their_rule(packs: dict[str, Client]) -> None:
    """With every rule's level `remediate`: marks of secrets and unknown values stay at their places."""
    for client in packs.values():
        Session.of(client, {"all": RuleConfig(wire.REMEDIATE)})
        try:
            for resource in BROKEN:
                request = resource.request()
                before = marks(request.properties)
                for remedy in client.remediate(request):
                    assert "internal error" not in remedy.diagnostic
                    if not remedy.diagnostic:
                        assert marks(remedy.properties) == before
        finally:
            Session.of(client, {})


def marks(struct: Any) -> int:
    """Number of the protocol's marks in properties."""
    text = struct.SerializeToString(deterministic=True)
    return text.count(SIGNATURE.encode()) + text.count(UNKNOWN.encode())


def test_every_type_that_rules_check_is_broken() -> None:
    kinds = {resource.type for resource in BROKEN}
    assert {"kubernetes:apps/v1:Deployment", "kubernetes:batch/v1:Job", "kubernetes:core/v1:ResourceQuota"} <= kinds
    assert len(kinds) > 10, yaml.safe_dump(sorted(kinds))
