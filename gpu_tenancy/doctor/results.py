"""Results of a preflight, as a table or JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import typer
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, answer
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural
from gpu_tenancy.clouds.clients import DeniedError, NoAnswerError, NotFoundError
from gpu_tenancy.doctor.needs import NodesNeed
from gpu_tenancy.model.spec.clouds.base import CloudCluster

Verdict: TypeAlias = Literal["OK", "missing", "unknown"]  # `unknown`: no right, or not reported


@dataclass(frozen=True, slots=True)
class Row:
    """One check of a subject, such as the name of a quota; `fix` is in the imperative, empty if all is well."""

    check: str
    subject: str
    needed: str
    available: str
    verdict: Verdict
    fix: str = ""


def judged(check: str, subject: str, needed: str, available: str, *, fits: bool, fix: str) -> Row:  # noqa: PLR0913
    """A row with verdict `OK`, or `missing` with its fix."""
    return Row(check, subject, needed, available, "OK" if fits else "missing", "" if fits else fix)


@dataclass(frozen=True, slots=True)
class Question:
    """A part of a preflight that asks the cloud; `subject` is for a row without an answer."""

    check: str
    subject: str
    needed: str
    ask: Callable[[], Iterable[Row]]


def zone_row(need: NodesNeed, zones: str, available: str, offered: set[str], *, fits: bool) -> Row:
    """Whether the machine type of a pool is offered in its zones; the fix names the zones in `offered`."""
    fix = f"set pools.{need.pool}.zones: [{', '.join(sorted(offered))}]"
    if need.pool == "system":
        fix = "set another cluster.create.system.machine"
    elif not offered:
        fix = f"set another pools.{need.pool}.machine, or another region"
    return judged("zones", f"{need.pool}: {need.machine.type}", zones, available, fits=fits, fix=fix)


def cluster_question(
    section: CloudCluster,
    service: tuple[str, Callable[[], Iterable[object]]],
    ready: tuple[str, Callable[[], object]],
    keys: str,
) -> Question:
    """Whether a service offers the version of a cluster to create, or an existing cluster is ready.

    `service`: name, and a call for offered versions. `ready`: the expected status, and a call for the present one.
    `keys`: place of the cluster in the section.
    """
    creation, (name, offered), (wanted, ask) = section.creation, service, ready

    def offers() -> Iterator[Row]:
        version = creation.version if creation else ""
        versions = sorted({str(one) for one in offered()})
        fix = f"set cluster.create.version to one of {', '.join(versions)}"
        fits = version in versions
        yield judged("Kubernetes", version, f"offered by {name}", ", ".join(versions), fits=fits, fix=fix)

    def is_ready() -> Iterator[Row]:
        try:
            status = str(ask())
        except NotFoundError:
            status = ""
        fix = "wait until it is" if status else f"add cluster.create, or correct {keys}"
        yield judged("cluster", section.name, wanted, status or "no such cluster", fits=status == wanted, fix=fix)

    if creation:
        return Question("Kubernetes", creation.version, f"offered by {name}", offers)
    return Question("cluster", section.name, wanted, is_ready)


def answers(questions: Iterable[Question]) -> Iterator[Row]:
    """Rows of all questions; verdict `unknown` for a question without an answer."""
    for question in questions:
        try:
            yield from list(question.ask())
        except NoAnswerError as error:
            yield Row(question.check, question.subject, question.needed, "no answer", "unknown", str(error))
        except DeniedError as error:
            fix, available = f"grant {error}", "no permission to ask"
            yield Row(question.check, question.subject, question.needed, available, "unknown", fix)


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of the cloud."""

    limit: int
    used: int | None  # by all users; None if not reported
    unit: str  # noun, such as `vCPUs`
    fix: str
    exists: bool = True  # `used` may include own nodes


def compared(check: str, subject: str, needed: int, quota: Quota) -> Row:
    """Compares a quota's limit and use with the need of the stack at its maximum number of nodes."""
    used = quota.used or 0
    available = f"{quota.limit:,} {quota.unit}" + ("" if quota.used is None else f", {used:,} in use")
    verdict, fix = "OK", ""
    if needed > quota.limit or (needed > quota.limit - used and not quota.exists):
        verdict, fix = "missing", quota.fix
    elif needed > quota.limit - used:
        own = f"count how many of the {used:,} in use are this cluster's own"
        verdict, fix = "unknown", f"{own}; if too few are free, {quota.fix}"
    return Row(check, subject, f"{needed:,} {quota.unit}", available, verdict, fix)


def rights_of(
    place: str, rights: Sequence[str], ask: Callable[[], Mapping[str, str]], fix: str, missing: str = ""
) -> Question:
    """Whether all rights on a place are `allowed` by the answers: one row, or one for each that is not.

    `fix`: how to get one; `missing`: what to do if the place does not exist, empty if that is no answer.
    """
    needed = plural(len(rights), "right")

    def asked() -> Iterator[Row]:
        try:
            answers = ask()
        except NotFoundError:
            if not missing:
                raise
            yield Row("rights", place, needed, "not found", "missing", missing)
            return
        lacking = [right for right in rights if answers.get(right) != "allowed"]
        if not lacking:
            yield Row("rights", place, needed, "allowed", "OK")
        for right in lacking:
            yield Row("rights", f"{right} on {place}", "allowed", answers.get(right, "not allowed"), "missing", fix)

    return Question("rights", place, needed, asked)


_STYLES: Final[dict[Verdict, str]] = {"OK": "green", "missing": "red", "unknown": "yellow"}


def conclude(rows: Sequence[Row], output: Form | None) -> None:
    """Prints all rows, fixes, and the number of rows by verdict. Raises typer.Exit if a row is `missing`."""
    listed = table("check", "of", "needed~", "available~", "result", drop=("needed", "available"))
    for row in rows:
        cells = (row.check, row.subject, row.needed, row.available)
        listed.add_row(*cells, Text(row.verdict, style=_STYLES[row.verdict]))
    fixes = [Text(f"{row.check} {row.subject}: {row.available}; {row.fix}") for row in rows if row.fix]
    parts = [listed, *([Text("")] if fixes else []), *fixes, Text(f"\n{counts(rows)}")]
    answer(output, [asdict(row) for row in rows], *parts)
    if any(row.verdict == "missing" for row in rows):
        raise typer.Exit(terminal.ExitCode.BLOCKED)


def counts(rows: Sequence[Row]) -> str:
    """Numbers by verdict: `12 OK, 1 missing, 2 unknown`."""
    verdicts = [row.verdict for row in rows]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in _STYLES)
