"""How long the commands that ask a cluster take to start, beside an empty Python: `python -m benchmarks.starting`.

Seconds of processor time, the least of some runs, and multiples of the empty Python, which depend less on the
machine.
"""

import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Final

from benchmarks.measuring import arguments, write

_TENANCY: Final = str(Path(sys.executable).with_name("tenancy"))
_IMPORTS: Final = "import gpu_tenancy.cli.main, gpu_tenancy.inspect.show, gpu_tenancy.kube.transport"
_COMMANDS: Final = {
    "an empty Python": (sys.executable, "-c", ""),
    "tenancy --version": (_TENANCY, "--version"),
    "tenancy usage --help": (_TENANCY, "usage", "--help"),
    "tenancy usage, before it asks": (sys.executable, "-c", _IMPORTS),
}
_RUNS: Final = 7


def _seconds(command: tuple[str, ...]) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measures and prints."""
    asked = arguments(__doc__).parse_args()
    seconds: dict[str, float] = {}
    for name, command in _COMMANDS.items():
        seconds[name] = min(_seconds(command) for _ in range(_RUNS))
        sys.stdout.write(f"{name:30} {seconds[name]:5.2f} s  {seconds[name] / seconds['an empty Python']:5.1f} times\n")
    write(asked.json, seconds)


if __name__ == "__main__":
    main()
