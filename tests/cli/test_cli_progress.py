import io
import re

import pytest
from rich.console import Console

from gpu_tenancy.base import progress, terminal
from gpu_tenancy.base.progress import line, measured


@pytest.mark.parametrize(
    ("done", "seconds", "words"),
    [
        (0, 15, "compiling: 0 of 2,000 packages"),
        (500, 60, "compiling: 500 of 2,000 packages, about 3 min left"),
        (1500, 60, "compiling: 1,500 of 2,000 packages, about 20 s left"),
        (2000, 60, "compiling: 2,000 of 2,000 packages"),
    ],
)
def test_progress_shows_done_and_remaining_time(done: int, seconds: float, words: str) -> None:
    assert line("compiling", done, 2000, "packages", seconds) == words


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    told: list[str] = []
    with measured(told.append, "compiling", 3, "packages") as advance:
        advance(2)
        while not any("2 of 3" in words for words in told):
            pass
    assert told
    assert set(told) <= {"compiling: 0 of 3 packages", "compiling: 2 of 3 packages, about 0 s left"}


def test_on_a_terminal_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")  # nothing is drawn on a dumb terminal
    monkeypatch.setattr(terminal, "err", Console(file=screen, force_terminal=True, width=120))
    with measured(terminal.Drawn(), "compiling", 2000, "packages") as advance:
        advance(1500)
    assert re.search(r"compiling.*1,500 of 2,000 packages", screen.getvalue())
