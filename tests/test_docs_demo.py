"""The pages' output of `tenancy local demo`, and of groups with even sharing, is the program's."""

import re

import yaml
from builders import Data, play_scenario
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.cli.main import app
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.scenario import Submitted, read_scenario

PAGE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
MODEL = (ROOT / "docs" / "quota-model.md").read_text(encoding="utf-8")
STACK = ROOT / "stacks" / "Pulumi.example-elastic.yaml"


def blocks() -> list[list[str]]:
    """The blocks of output of the page, without trailing spaces."""
    return [
        [line.rstrip() for line in block.splitlines()] for block in re.findall(r"\n```\n(.*?)```\n", PAGE, re.DOTALL)
    ]


def test_docs_show_the_output_of_demo() -> None:
    seen = CliRunner(env={"COLUMNS": "240"}).invoke(app, ["local", "demo", "--project", str(ROOT)])
    printed = [line.rstrip() for line in seen.stdout.splitlines() if "pending" not in line or line.startswith("team ")]
    shown = [block for block in blocks() if "namespace1" in "".join(block)]
    assert len(shown) == 2
    for block in shown:
        start = printed.index(block[0])
        assert printed[start : start + len(block)] == block


def test_the_page_names_each_key_of_a_job() -> None:
    table = PAGE.partition("A job has these keys:")[2].partition("\n\nThe ")[0]
    named = [key for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(Submitted.model_fields)


def test_even_sharing_table_of_docs_matches_simulation() -> None:
    table = MODEL.partition("## Groups with even sharing")[2].partition("In the third step")[0]
    rows = re.findall(r"^\| (?:then )?namespace\d[^|]*\| ([\d, ]+) \| ([\d, ]+) \|$", table, re.MULTILINE)
    assert len(rows) == 4
    config = yaml.safe_load(STACK.read_text(encoding="utf-8"))["config"]
    for column, fairness in enumerate(("even", "hierarchical")):
        sections: Data = {key.removeprefix("gpu-tenancy:"): value for key, value in config.items()}
        tree = Tree(load(Source({**sections, "fairness": fairness})))
        moments = play_scenario(tree, read_scenario(ROOT / "stacks" / "scenarios" / "example-elastic.yaml", tree))
        for step, (row, moment) in enumerate(zip(rows, moments, strict=True)):
            teams = [f"namespace{number + 1}" for number in range(step + 1)]
            running = [sum(job.team == team for job in moment.running) for team in teams]
            assert row[column].strip() == ", ".join(map(str, running))
