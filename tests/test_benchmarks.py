"""What `make bench` says about figures that differ from the recorded ones."""

from benchmarks.comparing import changes, figures


def test_figures_have_the_path_by_which_they_are_recorded() -> None:
    measured = {"machine": {"system": "Linux"}, "rows": [{"teams": 10, "preview": 0.5}]}
    assert dict(figures(measured)) == {"rows / 0 / teams": 10.0, "rows / 0 / preview": 0.5}


def test_only_large_differences_of_figures_that_are_long_enough_are_lines() -> None:
    before = {"a": 10.0, "b": 10.0, "c": 10.0, "short": 0.01}
    now = {"a": 12.0, "b": 13.0, "c": 7.0, "short": 9.0, "new": 1.0}
    assert list(changes(before, now)) == ["b: 10.0 → 13.0, worse", "c: 10.0 → 7.0, better"]


def test_seconds_of_a_machine_that_is_slower_today_are_not_worse_but_memory_is() -> None:
    before = {"first": 10.0, "again": 10.0, "peak": 100.0}
    assert list(changes(before, {"first": 20.0, "again": 30.0, "peak": 200.0}, slower=2)) == [
        "again: 20.0 → 30.0, worse",
        "peak: 100.0 → 200.0, worse",
    ]
