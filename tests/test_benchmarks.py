"""Output of `make bench` for figures that differ from the recorded ones."""

import json

from benchmarks.bench import RECORD, STARTS, TEAMS, compared
from gpu_tenancy.base.texts import plural


def test_only_large_differences_are_marked() -> None:
    said = [compared(value, 10.0) for value in (12.0, 13.0, 7.0)]
    assert said == ["10.00, as recorded", "10.00, worse", "10.00, better"]
    assert compared(1.0, None) == "not recorded"


def test_the_record_has_each_figure() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    sizes = {
        f"{what} of {plural(teams, 'team')}" for teams in TEAMS for what in ("preview", "review", "memory of a preview")
    }
    assert {*sizes, *STARTS} <= recorded.keys()
