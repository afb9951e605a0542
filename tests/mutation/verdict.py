"""What a run of mutants found, compared with the survivors that are known."""

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).with_name("survivors")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the mutants of one tool.

    Attributes:
        judged: the parts, by the first words of names, whose mutants have all been tried. Others are not tried again.
        groups: each a reason why nothing tells its mutants from the original, with their names or with expressions for
            whole names.
        open: mutants that no case kills yet.
        readers: of mutants of what several guards read, the guard in which a case kills it, if not the first one.
    """

    judged: Collection[str]
    groups: Sequence[Mapping[str, Any]]
    open: Collection[str]
    readers: Mapping[str, str]

    def reason(self, name: str) -> str:
        """Why a mutant is equivalent; empty if it is not listed as such."""
        return next(
            (
                group["reason"]
                for group in self.groups
                if name in group.get("mutants", ()) or any(re.fullmatch(one, name) for one in group.get("matching", ()))
            ),
            "",
        )

    def lists(self, name: str) -> bool:
        """Whether a mutant is a known survivor."""
        return name in self.open or bool(self.reason(name))

    def chosen(self, names: Iterable[str], prefix: str, one_of: int, turn: int = 0, *, new: bool) -> list[str]:
        """Names of mutants to try: of parts that are judged, of new ones, or of those that begin with a prefix.

        Args:
            prefix: one or several, with commas between them; `open` for those that no case kills yet.
            one_of: of so many parts of the mutants, each the same whatever others there are,
            turn: it is this one.
        """
        return [
            name
            for name in names
            if (name.startswith(tuple(prefix.split(","))) or (name in self.open and "open" in prefix.split(",")))
            and (new or prefix or part_of(name) in self.judged)
            and zlib.crc32(name.encode()) % one_of == turn % one_of
        ]

    def stale(self, names: Collection[str]) -> list[str]:
        """The entries, of names and expressions, that are of no mutant any more."""
        listed = [*self.open, *self.readers, *(name for group in self.groups for name in group.get("mutants", ()))]
        patterns = [pattern for group in self.groups for pattern in group.get("matching", ())]
        return [
            *(name for name in listed if name not in names),
            *(pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in names)),
            *(part for part in self.judged if not any(part_of(name) == part for name in names)),
        ]


def part_of(name: str) -> str:
    """The file that a mutant is of."""
    return name.partition(" ")[0].rstrip(":")


def known(name: str) -> Known:
    """The file of one tool: `guards` or `packs`.

    Raises:
        ValueError: the count of open mutants is not that of the list.
    """
    found: Any = yaml.safe_load((FOLDER / f"{name}.yaml").read_bytes())
    count, names = found["open"]["count"], found["open"]["mutants"]
    if count != len(names):
        raise ValueError(f"tests/mutation/survivors/{name}.yaml: open.count: {count} is not {len(names)}; correct it")
    readers = {name: guard for guard, mutants in found.get("readers", {}).items() for name in mutants}
    return Known(found["judged"], found["equivalent"], frozenset(names), readers)


@dataclass(slots=True)
class Results:
    """Results by mutant.

    Attributes:
        killed: the test that failed.
        survived: mutants for which none did.
        invalid: mutants that do not compile; they are not counted.
        readers: the guard in which a mutant of what several read was killed, if it was not asked in the usual one.
    """

    killed: dict[str, str] = field(default_factory=dict[str, str])
    survived: list[str] = field(default_factory=list[str])
    invalid: dict[str, str] = field(default_factory=dict[str, str])
    readers: dict[str, str] = field(default_factory=dict[str, str])

    def problems(self, listed: Known, all_names: Collection[str]) -> list[str]:
        """What must be changed: new survivors, and entries of the file that are out of date."""
        return [
            *(
                f"{name}: no case fails; add a case, or a reason in tests/mutation/survivors"
                for name in self.survived
                if not listed.lists(name)
            ),
            *(
                f"{name}: is listed as a survivor but {test} fails; remove it"
                for name, test in self.killed.items()
                if listed.lists(name)
            ),
            *(f"{name}: is in tests/mutation/survivors but no mutant; remove it" for name in listed.stale(all_names)),
        ]

    def record(self, name: str, listed: Known, all_names: Collection[str]) -> None:
        """Writes the survivors that have no reason yet into the file of a tool, and which parts are judged."""
        groups: list[dict[str, Any]] = []
        for group in listed.groups:
            names = [one for one in group.get("mutants", ()) if one in all_names and one not in self.killed]
            if names or "matching" in group:
                groups.append({**group, **({"mutants": names} if names else {})})
        survivors = {*self.survived, *listed.open}.intersection(all_names) - {*self.killed}
        survivors = sorted(one for one in survivors if not listed.reason(one))
        tried = {*self.killed, *self.survived, *self.invalid}
        missed = {part_of(one) for one in all_names if one not in tried}
        found = {
            "judged": sorted({*listed.judged, *({part_of(one) for one in tried} - missed)}),
            "equivalent": groups,
            "open": {"count": len(survivors), "mutants": survivors},
        }
        readers: dict[str, list[str]] = {}
        for one, guard in sorted({**listed.readers, **self.readers}.items()):
            if one in all_names:
                readers.setdefault(guard, []).append(one)
        found |= {"readers": dict(sorted(readers.items()))} if readers else {}
        text = yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=1000)
        (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")

    def table(self, listed: Known) -> str:
        """Figures by file."""
        rows: dict[str, Counter[str]] = {}
        outcomes = {
            **dict.fromkeys(self.killed, "killed"),
            **{name: "equivalent" if listed.reason(name) else "survived" for name in self.survived},
        }
        for name, outcome in outcomes.items():
            rows.setdefault(part_of(name), Counter())[outcome] += 1
        rows = dict(sorted(rows.items()))
        rows["all"] = sum(rows.values(), Counter[str]())
        lines = [f"{'':32}{'mutants':>9}{'killed':>9}{'equivalent':>12}{'survived':>10}"]
        for name, row in rows.items():
            lines.append(f"{name:32}{row.total():9}{row['killed']:9}{row['equivalent']:12}{row['survived']:10}")
        return "\n".join(lines)
