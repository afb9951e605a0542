"""Dashboards drawn from their JSON, with the values that tests expect of the made-up cluster: there is no Grafana."""

import json
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

import markdown
from builders import Data
from observability_builders import observed, watched
from observability_world import ANSWERS

_ROW: Final = 34  # height of a row of the grid, in pixels
_COLOURS: Final = ("#0b7285", "#b35900", "#5b4bc4", "#a3316f")
_STYLE: Final = Path(__file__).with_name("board.css").read_text(encoding="utf-8")
_TEAM: Final = "a"  # the team of a repeated panel
_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')


def boards() -> Iterator[tuple[str, str]]:
    """Each dashboard as `board-<name>` and its page."""
    for _, text in observed(watched()).dashboards:
        board: Data = json.loads(text)
        name = str(board["uid"]).removeprefix("gpu-tenancy-")
        shown = [panel for panel in board["panels"] if panel["gridPos"]["y"] < 30]
        inner = "".join(_panel(panel, f"{name}/{panel['title']}") for panel in shown)
        note = "drawn from the dashboard's JSON, with values of a made-up cluster"
        title = f"<h1>{escape(board['title'])} <small>{note}</small></h1>"
        style = f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style>'
        yield f"board-{name}", f'{style}<main>{title}<div class="grid">{inner}</div></main>'


def _panel(panel: Data, key: str) -> str:
    place = panel["gridPos"]
    title = escape(str(panel["title"]).replace("$team", _TEAM))
    style = f"grid-column: {place['x'] + 1} / span {place['w']}; min-height: {place['h'] * _ROW // 2}px"
    draw = {"stat": _stat, "table": _table, "timeseries": _lines, "text": _text, "row": _nothing}[panel["type"]]
    return f'<section class="{panel["type"]}" style="{style}"><h2>{title}</h2>{draw(panel, key)}</section>'


def _answers(panel: Data, key: str) -> Iterator[tuple[Data, dict[str, str], float]]:
    """Target, labels and value of each series of a panel."""
    for target in panel.get("targets", []):
        for series, value in ANSWERS.get(f"{key}/{target['refId']}", {}).items():
            labels = dict(_FIELD.findall(series))
            if not panel.get("repeat") or labels["cluster_queue"] == _TEAM:
                yield target, labels, value


def _stat(panel: Data, key: str) -> str:
    unit = "%" if panel["fieldConfig"]["defaults"]["unit"] == "percent" else ""
    return "".join(f'<div class="stat">{value:g}{unit}</div>' for _, _, value in _answers(panel, key))


def _table(panel: Data, key: str) -> str:
    rows: dict[int, tuple[dict[str, str], dict[str, str]]] = {}
    titles = {
        label: title
        for step in panel["transformations"]
        for label, title in step["options"].get("renameByName", {}).items()
    }
    answers = list(_answers(panel, key))
    names = [label for label in titles if any(label in labels for _, labels, _ in answers)]
    columns = dict.fromkeys(target["legendFormat"] for target in panel["targets"])
    # As Grafana merges them: rows are the same if all labels are that both have.
    kept: list[dict[str, str]] = []
    for target, labels, value in answers:
        own = {name: labels[name] for name in names if name in labels}
        found = next((row for row in kept if all(row[name] == text for name, text in own.items() if name in row)), None)
        if found is None:
            kept.append(found := {})
        found.update(own)
        rows.setdefault(id(found), (found, {}))[1][target["legendFormat"]] = _word(panel, target["legendFormat"], value)
    heads = "".join(f"<th>{escape(head)}</th>" for head in (*(titles[name] for name in names), *columns))
    lines = (
        "".join(
            f"<td>{escape(cell)}</td>"
            for cell in (*(named.get(name, "") for name in names), *(cells.get(column, "") for column in columns))
        )
        for named, cells in rows.values()
    )
    return f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _word(panel: Data, column: str, value: float) -> str:
    """A value, or the panel's text for it."""
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"]["options"] == column:
            for entry in override["properties"]:
                if entry["id"] == "mappings":
                    words: Any = entry["value"][0]["options"].get(f"{value:g}")
                    return str(words["text"]) if words else f"{value:g}"
    return f"{value:g}"


def _lines(panel: Data, key: str) -> str:
    """Constant lines, because the made-up cluster has one moment."""
    found = list(_answers(panel, key))
    top = max((value for _, _, value in found), default=1) * 1.15 or 1
    high = panel["gridPos"]["h"] * _ROW // 2 - 62
    drawn, names = list[str](), list[str]()
    for at, (target, labels, value) in enumerate(found):
        colour, y = _COLOURS[at % len(_COLOURS)], round(high - high * value / top, 1)
        legend = _legend(target["legendFormat"], labels)
        drawn.append(f'<line x1="0" x2="100%" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
        names.append(f'<li style="--c: {colour}">{escape(legend)}: {value:g}</li>')
    ground = f'<line x1="0" x2="100%" y1="{high}" y2="{high}" stroke="#d5d8dc"/>'
    return f'<svg width="100%" height="{high + 4}">{ground}{"".join(drawn)}</svg><ul>{"".join(names)}</ul>'


def _legend(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), text)


def _text(panel: Data, _key: str) -> str:
    return f'<div class="text">{markdown.markdown(panel["options"]["content"])}</div>'


def _nothing(_panel: Data, _key: str) -> str:
    return ""
