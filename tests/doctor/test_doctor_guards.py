"""The table of attempts, and the comparison of policies."""

from pathlib import Path

import pytest
from repository import ROOT

from gpu_tenancy.doctor.guards import attempts
from gpu_tenancy.doctor.live import differences

POLICIES: Path = ROOT / "components/guards/policies"


def test_each_guard_has_an_attempt_or_says_why_it_has_none() -> None:
    assert attempts().keys() == {file.stem for file in POLICIES.glob("*.yaml")} - {"shared"}
    for attempt in attempts().values():
        assert bool(attempt.untried) + bool(attempt.create) + bool(attempt.patch and attempt.change) == 1
        assert attempt.untried or attempt.by


@pytest.mark.parametrize(
    ("live", "paths"),
    [
        ({"validationActions": ["Deny"], "rules": [{"a": 1, "matchPolicy": "Equivalent"}], "objectSelector": {}}, []),
        ({"validationActions": ["Audit"], "rules": [{"a": 1}]}, ["spec.validationActions[0]"]),
        ({"validationActions": ["Deny"], "rules": []}, ["spec.rules"]),
        (
            {"validationActions": ["Deny"], "rules": [{"a": 1}], "objectSelector": {"matchLabels": {"x": "y"}}},
            ["spec.objectSelector.matchLabels"],
        ),
        ({"validationActions": ["Deny"], "rules": [{"a": 1}], "matchPolicy": "Exact"}, ["spec.matchPolicy"]),
        ({"validationActions": ["Deny"], "rules": [{"a": 1}], "paramKind": {"kind": "X"}}, ["spec.paramKind"]),
    ],
)
def test_only_defaults_of_the_api_server_are_no_difference(live: dict[str, object], paths: list[str]) -> None:
    wanted = {"validationActions": ["Deny"], "rules": [{"a": 1}]}
    assert [*differences(wanted, live, "spec")] == paths  # type: ignore[arg-type]
