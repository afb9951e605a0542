"""What a command says of kubectl that fails, and how long it waits for it."""

from pathlib import Path

import pytest

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.patience import PATIENCE, patient
from gpu_tenancy.cli.kubectl import Kubectl

LOG = "E1127 05:12:01.123456   12345 websocket.go:296] Unknown stream id 1, discarding message"


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (f"{LOG}\nerror: pod lab-0 has no container smi", ": error: pod lab-0 has no container smi"),
        (LOG, ""),
        ("E1127 is not a container", ": E1127 is not a container"),
    ],
    ids=["log and reason", "log", "no log"],
)
def test_a_reason_is_what_kubectl_answers_and_not_what_it_logs(tmp_path: Path, said: str, reason: str) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(ConsoleError) as raised:
        Kubectl(tmp_path / "kubeconfig", (str(program),)).run("exec", "lab-0", fix="see `tenancy logs`")
    assert raised.value.what == f"`{program} exec lab-0` failed{reason}"


def test_who_has_patience_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATIENCE)
    assert patient(60) == 60
    monkeypatch.setenv(PATIENCE, "2.5")
    assert patient(60) == 150


@pytest.mark.parametrize("given", ["0.5", "-3", "nan", "inf", "long"])
def test_patience_that_is_no_number_from_1_is_named(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(PATIENCE, given)
    with pytest.raises(ConsoleError, match=f"GPU_TENANCY_PATIENCE is '{given}', not a number from 1"):
        patient(60)
