"""What a run of mutants found, compared with the survivors that are known."""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).with_name("survivors")


@dataclass(frozen=True, slots=True)
class Known:
    """The survivors that are known.

    Attributes:
        equivalent: reasons by mutant: no request, or no program, tells it from the original.
        open: mutants that no case kills yet.
    """

    equivalent: Mapping[str, str]
    open: Collection[str]


def known(name: str) -> Known:
    """The file of one tool: `guards` or `packs`."""
    found: Any = yaml.safe_load((FOLDER / f"{name}.yaml").read_bytes()) or {}
    groups: list[dict[str, Any]] = found.get("equivalent") or []
    reasons: dict[str, str] = {mutant: group["reason"] for group in groups for mutant in group["mutants"]}
    return Known(reasons, frozenset(found.get("open") or []))


def sampled(names: Iterable[str], one_of: int) -> list[str]:
    """The same part of the mutants each time, whatever others there are."""
    return [name for name in names if zlib.crc32(name.encode()) % one_of == 0]


@dataclass(slots=True)
class Results:
    """Results by mutant.

    Attributes:
        killed: the test that failed.
        survived: mutants for which none did.
        invalid: mutants that do not compile; they are not counted.
    """

    killed: dict[str, str] = field(default_factory=dict[str, str])
    survived: list[str] = field(default_factory=list[str])
    invalid: dict[str, str] = field(default_factory=dict[str, str])

    def problems(self, listed: Known, all_names: Collection[str]) -> list[str]:
        """What must be changed: new survivors, and entries of the file that are out of date."""
        names = {*listed.equivalent, *listed.open}
        return [
            *(
                f"{name}: no case fails; add a case, or a reason in tests/mutation/survivors"
                for name in self.survived
                if name not in names
            ),
            *(
                f"{name}: is listed as a survivor but {test} fails; remove it"
                for name, test in self.killed.items()
                if name in names
            ),
            *(f"{name}: is listed as a survivor but no mutant; remove it" for name in sorted(names - {*all_names})),
        ]

    def record(self, name: str, listed: Known) -> None:
        """Writes the survivors that have no reason yet into the file of a tool."""
        reasons: dict[str, list[str]] = {}
        for mutant, reason in listed.equivalent.items():
            if mutant not in self.killed:
                reasons.setdefault(reason, []).append(mutant)
        survivors = {*self.survived, *listed.open} - {*self.killed, *listed.equivalent}
        found = {
            "equivalent": [{"reason": reason, "mutants": mutants} for reason, mutants in reasons.items()],
            "open": sorted(survivors),
        }
        text = yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=1000)
        (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")

    def table(self, listed: Known) -> str:
        """Figures by file."""
        rows: dict[str, Counter[str]] = {}
        outcomes = {
            **dict.fromkeys(self.killed, "killed"),
            **{name: "equivalent" if name in listed.equivalent else "survived" for name in self.survived},
        }
        for name, outcome in outcomes.items():
            rows.setdefault(name.split(":")[0].split(" ")[0], Counter())[outcome] += 1
        rows = dict(sorted(rows.items()))
        rows["all"] = sum(rows.values(), Counter[str]())
        lines = [f"{'':32}{'mutants':>9}{'killed':>9}{'equivalent':>12}{'survived':>10}"]
        for name, row in rows.items():
            lines.append(f"{name:32}{row.total():9}{row['killed']:9}{row['equivalent']:12}{row['survived']:10}")
        return "\n".join(lines)
