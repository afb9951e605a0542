"""What GPUs of pods do, as nvidia-smi prints it, and its table."""

from typing import Any

import pytest
from live_builders import GPU, pod
from rich.text import Text

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import Output
from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.jobs.gpu_use import GpuUse, gpu_use, read_gpu_use, together
from gpu_tenancy.jobs.overview import UseRow, used

GIB = 2**30
MISSING = ' failed: exec failed: "{}": exec: "nvidia-smi": executable file not found in $PATH: unknown'
REFUSED = {
    "no-smi": MISSING.format("4f0e"),
    "other": MISSING.format("5c1d"),
    "denied": ' failed: Error from server (Forbidden): pods "denied" is forbidden: cannot create resource "pods/exec"',
    "silent": ": no answer within 20 s",
    "restarts": " failed: error: unable to upgrade connection",
}
"""What kubectl says of pods, after the command."""


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("97, 61440, 81920\n99, 61440, 81920\n", GpuUse((97, 99), 120 * GIB, 160 * GIB)),
        ("[N/A], 1024, 20480\n", None),
        ("No devices were found\n", None),
        ("", None),
    ],
)
def test_what_nvidia_smi_prints_is_read_or_unknown(printed: str, found: GpuUse | None) -> None:
    assert read_gpu_use(printed) == found


def test_only_running_pods_with_gpus_are_asked_and_one_that_does_not_tell_is_left_out() -> None:
    asked: list[str] = []

    def run(name: str) -> str:
        asked.append(name)
        if name in REFUSED:
            raise ConsoleError(f"`kubectl exec {name} -- nvidia-smi`{REFUSED[name]}", "see `tenancy logs`")
        return "[N/A], 1024, 20480\n" if name == "mig" else "50, 0, 81920"

    cpu: Any = pod("cpu", gpus=0, on="n1")
    pods = [*(pod(name, on="n1") for name in ("train", "mig", *REFUSED)), pod("pending"), cpu]
    found = gpu_use(pods, run)
    assert found.use == {"train": GpuUse((50,), 0, 80 * GIB)}
    assert sorted(asked) == sorted(["mig", "train", *REFUSED])
    assert found.notes == (
        "GPU use of 1 pod unknown: nvidia-smi has no number, as for MIG partitions",
        "GPU use of 2 pods unknown: their image has no nvidia-smi",
        "GPU use of 1 pod unknown: you may not exec into them",
        "GPU use of 1 pod unknown: no answer in time",
        "GPU use of 1 pod unknown: error: unable to upgrade connection; see `tenancy logs`",
    )


def test_of_a_job_the_mean_and_a_gpu_that_does_nothing_are_told() -> None:
    of = {"a": GpuUse((90, 95), GIB, 160 * GIB), "b": GpuUse((0, 95), GIB, 160 * GIB)}
    assert of["a"].busy == "92 %"
    whole = together(of, ("a", "b", "unknown"))
    assert whole
    assert (whole.busy, whole.filled) == ("70 %, one 0 %", "2Gi of 320Gi")
    assert together(of, ("unknown",)) is None


def test_the_table_fits_80_columns_with_what_gpus_do() -> None:
    requests = {CPU: 86400, MEMORY: 900 * GIB, GPU: 8}
    taken = {CPU: 40000, MEMORY: 300 * GIB}
    found = (
        UseRow("0 pair-node-0-0-abcde", "a100-node-1", taken, requests, GpuUse((90,) * 8, 488 * GIB, 640 * GIB)),
        UseRow("1 pair-node-0-1-fghij", "a100-node-2", taken, requests, None),
    )
    console = Output(width=80, terminal=True)
    with console.capture() as captured:
        console.print(used(found, pods=True, busy=True))
    lines = Text.from_ansi(captured.get()).plain.splitlines()
    assert all(len(line) <= 80 for line in lines)
    told, unknown, left_out = lines[-3:]
    assert told.split()[-5:] == ["90", "%", "488Gi", "of", "640Gi"]
    assert unknown.split()[-2:] == ["?", "?"]
    assert left_out == "not shown, because the terminal is narrow: CPUs"
