"""Writes the findings of the packs for this repository's stacks and for foreign programs; review each line.

`PYTHONPATH=tests:tests/policy:policy:policy/workloads:policy/clouds python -m pin_verdicts`
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import test_policy_foreign as foreign
import test_policy_processes as processes
import yaml
from rendered_stacks import SHARED
from repository import ROOT

from document import PACKS
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.packs.process import pack_process


def write(file: Path, verdicts: object) -> None:
    file.write_text(yaml.safe_dump(verdicts, width=118, allow_unicode=True), encoding="utf-8")


def main() -> None:
    write(foreign.VERDICTS, {name: foreign.verdict(name) for name in foreign.NAMES})
    verdicts: dict[str, dict[str, list[str]]] = {name: {} for name in stack_names()}
    for pack in PACKS:
        with pack_process(ROOT / "policy" / pack) as client:
            for stack, packs in verdicts.items():
                if verdict := processes.verdict(processes.judged(client, pack, stack)):
                    packs[pack] = verdict
    write(processes.VERDICTS, {stack: packs for stack, packs in verdicts.items() if packs})


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        os.environ[SHARED] = folder
        main()
