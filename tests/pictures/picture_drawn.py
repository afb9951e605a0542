"""Pictures as SVG: borrowing and reclaiming in a run of the simulation of Kueue, and the parts of the program.

An SVG has the colours of the report (style.css) in the reader's scheme, and the same run gives the same bytes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import read_file
from gpu_tenancy.simulation.player import StepResult
from gpu_tenancy.simulation.scenario import read_scenario
from gpu_tenancy.simulation.stage import Held, Moment, holdings
from gpu_tenancy.whatif.timeline import play

_NAME: Final = "example-three-teams"
_STYLE: Final = Path(__file__).with_name("drawn.html").read_text(encoding="utf-8")
_LEFT, _WIDE, _LANE, _STEP = 96, 700, 26, 128


def run_of(name: str) -> tuple[Tree, tuple[StepResult, ...]]:
    tree = Tree(load(read_file(ROOT / "stacks" / f"Pulumi.{name}.yaml")))
    return tree, tuple(play(tree, read_scenario(ROOT / "stacks" / "scenarios" / f"{name}.yaml", tree)))


def borrowing() -> str:
    """Four steps of three teams that share 64 GPUs: guarantees, borrowing, reclaiming."""
    tree, steps = run_of(_NAME)
    moments = [step.shown for step in steps]
    height = 48 + _STEP * len(moments) - 12
    parts = [f'<rect class="paper" width="880" height="{height}" rx="8"/>', *_key()]
    for at, moment in enumerate(moments):
        parts += _step(tree, moment, 48 + at * _STEP)
    says = "; ".join(moment.label for moment in moments)
    return _svg(880, height, f"Three teams share 64 H100 GPUs: {says}", parts)


def _key() -> Iterator[str]:
    yield '<rect class="own" x="16" y="16" width="24" height="12" rx="2"/>'
    yield '<text class="d" x="46" y="26">uses its guarantee</text>'
    yield '<rect class="may" x="176" y="16" width="24" height="12"/><text class="d" x="206" y="26">borrows</text>'
    yield '<line class="mark" x1="282" x2="282" y1="13" y2="31"/><text class="d" x="292" y="26">guarantee</text>'
    yield '<text class="d e" x="864" y="26">64 H100 GPUs, a run of tenancy local demo example-three-teams</text>'


def _step(tree: Tree, moment: Moment, top: int) -> Iterator[str]:
    number, _, label = moment.label.partition(". ")
    yield f'<text class="b" x="16" y="{top + 16}">{number}. {label}</text>'
    if moment.evicted:
        by = moment.evicted[0].by_team
        gpus = sum(job.gpus for job in moment.evicted)
        yield f'<text class="back e" x="864" y="{top + 16}">{gpus} GPUs reclaimed by {by}</text>'
    for lane, held in enumerate(holdings(tree, moment)):
        yield from _lane(held, top + 26 + lane * _LANE)


def _lane(held: Held, top: int) -> Iterator[str]:
    scale = _WIDE / 64
    own, borrowed, sure = (round(scale * gpus, 1) for gpus in (held.own, held.borrowed, held.guaranteed))
    yield f'<text x="16" y="{top + 14}">{held.team}</text>'
    yield f'<rect class="rail" x="{_LEFT}" y="{top}" width="{round(scale * held.limit, 1)}" height="18" rx="2"/>'
    if held.own:
        yield f'<rect class="own" x="{_LEFT}" y="{top}" width="{own}" height="18" rx="2"/>'
        yield f'<text class="in m" x="{_LEFT + own / 2}" y="{top + 13}">{held.own}</text>'
    if held.borrowed:
        yield f'<rect class="may" x="{_LEFT + own}" y="{top + 0.5}" width="{borrowed}" height="17"/>'
    yield f'<line class="mark" x1="{_LEFT + sure}" x2="{_LEFT + sure}" y1="{top - 2}" y2="{top + 20}"/>'
    words = f"{held.runs} GPUs" + (f", {held.borrowed} borrowed" if held.borrowed else "")
    yield f'<text class="{"" if held.runs else "d "}e" x="864" y="{top + 14}">{words if held.runs else "idle"}</text>'


_BOXES: Final = {
    "stack": (300, 12, 280, "stacks/Pulumi.prod.yaml", "one environment"),
    "model": (300, 96, 280, "model", "checks the stack, plans every object"),
    "offline": (24, 196, 250, "tenancy preview", "offline engine: no cloud, no login"),
    "local": (315, 196, 250, "tenancy local up", "API server on your machine"),
    "cloud": (606, 196, 250, "pulumi up", "EKS, GKE, AKS or your cluster"),
    "report": (24, 296, 250, "report, comment, policies", "cost, guarantees, YAML"),
    "checks": (315, 296, 250, "checks of every guarantee", "real Kueue, simulated GPUs"),
    "tenancy": (606, 296, 250, "queues, quotas, jobs", "namespaces, servers, access"),
}
_ARROWS: Final = (
    ("stack", "model"), ("model", "offline"), ("model", "local"), ("model", "cloud"),
    ("offline", "report"), ("local", "checks"), ("cloud", "tenancy"),
)  # fmt: skip


def architecture() -> str:
    """One file becomes a preview, a local platform and a deployment."""
    parts = ['<rect class="paper" width="880" height="360" rx="8"/>']
    for start, end in _ARROWS:
        (x, y, wide, _, _), (to_x, to_y, to_wide, _, _) = _BOXES[start], _BOXES[end]
        begin, stop = x + wide // 2, to_x + to_wide // 2
        middle = (y + 52 + to_y) // 2
        parts.append(f'<path class="arrow" d="M{begin} {y + 52}V{middle}H{stop}V{to_y}"/>')
    for x, y, wide, title, text in _BOXES.values():
        parts.append(f'<rect class="box" x="{x}" y="{y}" width="{wide}" height="52" rx="6"/>')
        parts.append(f'<text class="b m" x="{x + wide // 2}" y="{y + 22}">{title}</text>')
        parts.append(f'<text class="d m" x="{x + wide // 2}" y="{y + 41}">{text}</text>')
    return _svg(880, 360, "One file per environment: preview, local platform and deployment", parts)


def _svg(width: int, height: int, says: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{says}</title>", _STYLE.strip(), *parts, "</svg>", ""])
