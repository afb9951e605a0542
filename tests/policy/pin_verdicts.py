"""Writes what packs say of our stacks and of foreign programs, to be reviewed line by line before it is kept.

`PYTHONPATH=tests:tests/policy:policy:policy/workloads:policy/clouds python -m pin_verdicts`
"""

from pathlib import Path

import test_policy_foreign as foreign
import test_policy_processes as processes
import yaml
from repository import ROOT

from document import PACKS
from gpu_tenancy.console.policies.process import pack_process
from gpu_tenancy.console.project import stack_names


def write(file: Path, found: object) -> None:
    file.write_text(yaml.safe_dump(found, width=118, allow_unicode=True), encoding="utf-8")


def main() -> None:
    write(foreign.VERDICTS, {name: foreign.verdict(name) for name in foreign.NAMES})
    found: dict[str, dict[str, list[str]]] = {name: {} for name in stack_names()}
    for pack in PACKS:
        with pack_process(ROOT / "policy" / pack) as client:
            for stack, packs in found.items():
                if said := processes.verdict(processes.judged(client, pack, stack)):
                    packs[pack] = said
    write(processes.VERDICTS, {stack: said for stack, said in found.items() if said})


if __name__ == "__main__":
    main()
