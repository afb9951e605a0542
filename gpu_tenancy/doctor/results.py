"""Results of a preflight: rows with what is needed and what there is, and their output as a table or JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import typer
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form, answer
from gpu_tenancy.base.output import PlainTable
from gpu_tenancy.base.terminal import table
from gpu_tenancy.clouds.programs import DeniedError, NoAnswerError, NotFoundError

Verdict: TypeAlias = Literal["OK", "missing", "unknown"]
"""`unknown`: the caller may not ask, or the cloud does not tell."""


@dataclass(frozen=True, slots=True)
class Row:
    """One check.

    Attributes:
        subject: of what, such as the name of the quota.
        fix: what the user can do, in the imperative; empty if all is well.
    """

    check: str
    subject: str
    needed: str
    available: str
    verdict: Verdict
    fix: str = ""


def judged(check: str, subject: str, needed: str, available: str, *, fits: bool, fix: str) -> Row:  # noqa: PLR0913
    """A row of a question with an answer: `OK`, or `missing` with its fix."""
    return Row(check, subject, needed, available, "OK" if fits else "missing", "" if fits else fix)


def version_row(service: str, version: str, offered: Iterable[str]) -> Row:
    """Whether a Kubernetes service offers the version of a cluster to create."""
    versions = sorted(set(offered))
    fix = f"set cluster.create.version to one of {', '.join(versions)}"
    return judged(
        "Kubernetes", version, f"offered by {service}", ", ".join(versions), fits=version in versions, fix=fix
    )


def cluster_row(name: str, ready: str, ask: Callable[[], object], keys: str) -> Row:
    """Whether an existing cluster has the status `ready`; `keys` of the stack say where it is."""
    try:
        status = str(ask())
    except NotFoundError:
        status = ""
    fix = "wait until it is" if status else f"add cluster.create, or correct {keys}"
    return judged("cluster", name, ready, status or "no such cluster", fits=status == ready, fix=fix)


@dataclass(frozen=True, slots=True)
class Question:
    """A part of a preflight that asks the cloud.

    Attributes:
        subject: of what, where the question cannot be asked.
    """

    check: str
    subject: str
    needed: str
    ask: Callable[[], Iterable[Row]]


def answers(questions: Iterable[Question]) -> Iterator[Row]:
    """Rows of all questions; a question that cannot be answered is a row with verdict `unknown`."""
    for question in questions:
        try:
            yield from list(question.ask())
        except DeniedError as error:
            yield _unknown(question, "no permission to ask", f"grant {error}")
        except NoAnswerError as error:
            yield _unknown(question, "no answer", str(error))


def _unknown(question: Question, available: str, fix: str) -> Row:
    return Row(question.check, question.subject, question.needed, available, "unknown", fix)


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of the cloud.

    Attributes:
        used: by anybody; None where the cloud does not tell.
        unit: noun of the numbers, such as `vCPUs`.
        exists: whether the cluster exists, so that its own nodes may be part of `used`.
    """

    limit: int
    used: int | None
    unit: str
    fix: str
    exists: bool = True


def compared(check: str, subject: str, needed: int, quota: Quota) -> Row:
    """A row of a quota: what the stack needs at its maximum number of nodes, against the limit and what is in use."""
    used = quota.used or 0
    available = f"{quota.limit:,} {quota.unit}" + ("" if quota.used is None else f", {used:,} in use")
    wanted = f"{needed:,} {quota.unit}"
    if needed > quota.limit or (needed > quota.limit - used and not quota.exists):
        return Row(check, subject, wanted, available, "missing", quota.fix)
    if needed > quota.limit - used:
        hint = f"count how many of the {used:,} in use are this cluster's own; if too few are free, {quota.fix}"
        return Row(check, subject, wanted, available, "unknown", hint)
    return Row(check, subject, wanted, available, "OK")


def present(check: str, needed: Iterable[str], available: Iterable[str], fix: str) -> Iterator[Row]:
    """A row for each needed name: OK if it is available."""
    known = set(available)
    for name in needed:
        yield judged(check, name, "yes", "yes" if name in known else "no", fits=name in known, fix=fix)


_STYLES: Final[dict[Verdict, str]] = {"OK": "green", "missing": "red", "unknown": "yellow"}


def conclude(rows: Sequence[Row], output: Form | None) -> None:
    """Prints the rows of a command: all rows, the fixes of those that are not OK, and how many there are of each.

    Raises:
        typer.Exit: something is missing.
    """
    fixes = [Text(f"{row.check} {row.subject}: {row.available}; {row.fix}") for row in rows if row.fix]
    parts = [_table(rows), *([Text("")] if fixes else []), *fixes, Text(f"\n{counts(rows)}")]
    answer(output, [asdict(row) for row in rows], *parts)
    if any(row.verdict == "missing" for row in rows):
        raise typer.Exit(terminal.PROMISE_BROKEN)


def _table(rows: Sequence[Row]) -> PlainTable:
    listed = table("check", "of", "needed~", "available~", "result", drop=("needed", "available"))
    for row in rows:
        cells = (row.check, row.subject, row.needed, row.available)
        listed.add_row(*cells, Text(row.verdict, style=_STYLES[row.verdict]))
    return listed


def counts(rows: Sequence[Row]) -> str:
    """`12 OK, 1 missing, 2 unknown`."""
    verdicts = [row.verdict for row in rows]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in _STYLES)
