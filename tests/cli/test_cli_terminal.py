import errno

import pytest
import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import SPACE, ConsoleError
from gpu_tenancy.base.output import Output


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConsoleError("x is not a folder", "specify one"), 1, "error: x is not a folder; specify one"),
        (OSError(errno.EACCES, "Permission denied", "/x"), 1, f"error: /x: Permission denied; {terminal.WRITABLE}"),
        (OSError(errno.ENOSPC, "No space left"), 1, f"error: a file: No space left; {SPACE}"),
        (FileExistsError("x is not ours; move it"), 1, "error: x is not ours; move it"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to continue"),
    ],
)
def test_file_errors_are_one_line_with_a_fix(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "err", Output(stderr=True))
    with pytest.raises(typer.Exit) as ended, terminal.errors():
        raise error
    assert (ended.value.exit_code, capsys.readouterr().err) == (code, f"{words}\n")


def test_an_error_of_the_system_that_no_user_can_correct_is_passed_on() -> None:
    with pytest.raises(OSError, match="bad descriptor"), terminal.errors():
        raise OSError(errno.EBADF, "bad descriptor")
