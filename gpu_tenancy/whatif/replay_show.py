"""A replay in a terminal."""

from rich.console import Console
from rich.markup import escape

from gpu_tenancy.base.terminal import table
from gpu_tenancy.whatif.replayed import Replayed, headline, sentences, teams_table, tone

_STYLES = {"bad": "red", "notice": "yellow", "good": "green"}


def show(console: Console, replayed: Replayed) -> None:
    """Prints the result: who waits how long, who gives way, who gains and who loses."""
    console.print(f"[bold {_STYLES[tone(replayed)]}]{escape(headline(replayed))}[/]", highlight=False)
    for sentence in sentences(replayed):
        console.print(escape(sentence), highlight=False)
    console.print()
    found = teams_table(replayed)
    heads = [f"{column.title}{'#' if column.number else ''}" for column in found.columns]
    listed = table(*heads, drop=("longest wait", "never start", "GPU-hours"))
    for line in found.rows:
        listed.add_row(*(f"{cell.text} (was {cell.was})" if cell.was else cell.text for cell in line.cells))
    console.print(listed, highlight=False)
    for part in replayed.not_simulated:
        console.print(f"[dim]used by this stack but not simulated: {escape(part)}[/dim]", highlight=False)
