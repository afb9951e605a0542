"""README.md and the pages under docs/ are true: links, command lines, stacks, generated pages, output and pictures."""

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from sys import executable
from typing import Any

import pytest
import typer
import yaml
from builders import Data, play_scenario
from command_lines import command_of
from jsonschema import Draft202012Validator
from package_schema import misfits
from picture_drawn import architecture, borrowing
from repository import ROOT
from typer.testing import CliRunner
from workflow_tools import commands

from components.provider.package import TENANCY, package_schema
from gpu_tenancy.cli import documentation
from gpu_tenancy.cli.commands.catalogue import abilities
from gpu_tenancy.cli.documentation import command_tree, commands_page
from gpu_tenancy.cli.main import app
from gpu_tenancy.cli.stack_reference import Reference, stack_page
from gpu_tenancy.kueue.unmodelled import Unmodelled
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.model.schema import file_schema
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.simulation.scenario import Submitted, read_scenario

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

PARTS = ("gpu_tenancy", "components", "stacks", "__main__.py", "Pulumi.yaml")
BLOCK = re.compile(r"^```(yaml|python|diff)\n# (file|add to|in): (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for part in PARTS:
        place = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        place(ROOT / part, tmp_path / part)
    return tmp_path


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Mark, place and text of each block of a page that belongs into the project."""
    for _, how, where, what in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        yield how, where, what


def follow(project: Path, how: str, where: str, what: str) -> None:
    file = project / where
    if how == "file":
        assert not file.exists(), where
        file.write_text(what, encoding="utf-8")
    elif how == "add to":
        with file.open("a", encoding="utf-8") as existing:
            existing.write(what)
    else:
        before = file.read_text(encoding="utf-8")
        file.write_text(patched(before.splitlines(), what.splitlines()), encoding="utf-8")


def patched(lines: list[str], diff: list[str]) -> str:
    """Lines after a diff without line numbers: ' ' is looked up, '-' deleted, '+' inserted after the last one."""
    at = 0
    for line in diff:
        if line.startswith("+"):
            lines.insert(at, line[1:])
            at += 1
        else:
            at = lines.index(line[1:])
            if line.startswith("-"):
                del lines[at]
            else:
                at += 1
    return "\n".join(lines) + "\n"


def preview(project: Path, stack: str) -> tuple[int, str, Path]:
    out = project / "out"
    # `-m` puts the working folder first, so the copy's modules run and not this project's.
    done = run(
        [executable, "-c", "from gpu_tenancy.cli.main import main; main()", "preview", stack, "--out", str(out)],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, out / "objects"


@pytest.mark.process
@pytest.mark.slow
def test_a_cloud_is_added_as_the_page_says(copy: Path) -> None:
    steps = list(blocks("another-cloud.md"))
    assert [how for how, _, _ in steps] == ["add to", "file", "file", "in", "file", "add to", "file"]
    for step in steps:
        follow(copy, *step)
    code, words, objects = preview(copy, "coreweave")
    assert code == 0, words
    (pool,) = (
        found
        for file in objects.rglob("*.yaml")
        for found in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if found["kind"] == "NodePool"
    )
    assert pool["spec"]["instanceType"] == "gd-8xh100ib-i128"
    assert (pool["spec"]["minNodes"], pool["spec"]["maxNodes"]) == (0, 4)
    assert pool["spec"]["nodeTaints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]


@pytest.mark.process
@pytest.mark.slow
def test_the_added_cloud_refuses_what_its_row_refuses(copy: Path) -> None:
    for step in blocks("another-cloud.md"):
        follow(copy, *step)
    stack = copy / "stacks" / "Pulumi.coreweave.yaml"
    stack.write_text(stack.read_text(encoding="utf-8").replace("fabric: true", "capacity: spot"), encoding="utf-8")
    code, words, _ = preview(copy, "coreweave")
    assert code == 1
    assert (
        "pools.h100.capacity: spot is not available: node pools of CKS have no spot nodes here; use on-demand" in words
    )


@pytest.mark.process
@pytest.mark.slow
def test_added_cloud_is_unknown_without_its_module(copy: Path) -> None:
    for how, where, what in blocks("another-cloud.md"):
        if not where.startswith("components/"):
            follow(copy, how, where, what)
    code, words, _ = preview(copy, "coreweave")
    assert code == 1
    assert "components.clouds.coreweave" in words


@pytest.mark.process
@pytest.mark.slow
def test_a_service_that_is_only_described_needs_rows_alone(copy: Path) -> None:
    for how, where, what in list(blocks("another-cloud.md"))[:2]:
        follow(copy, how, where, what)
    (copy / "stacks" / "Pulumi.described.yaml").write_text(
        "config:\n"
        "  gpu-tenancy:cluster: {cloud: existing, provider: coreweave, provides: [networkPolicies]}\n"
        "  gpu-tenancy:pools: {h100: {machine: gd-8xh100ib-i128, nodes: 2}}\n"
        "  gpu-tenancy:teams: {a: {owner: o, costCenter: c, gpus: {h100: {guaranteed: 8}}}}\n",
        encoding="utf-8",
    )
    code, words, _ = preview(copy, "described")
    assert code == 0, words


def fenced(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_programs_in_other_languages_have_equal_inputs() -> None:
    page = ROOT / "docs" / "languages.md"
    program, *_ = (yaml.safe_load(block) for block in fenced(page, "yaml"))
    component = program["resources"]["ml"]
    assert component["type"].replace(":", ":index:") == TENANCY
    assert misfits(package_schema(), TENANCY, component["properties"]) == []
    sections = {**component["properties"], "cluster": {"cloud": "existing", **component["properties"]["cluster"]}}
    assert sorted(load(Source(sections)).teams) == ["ml-research"]
    assert program["outputs"] == {"queues": "${ml.queues}"}
    for language in ("ts", "go", "csharp"):
        block = fenced(page, language)[0]
        words = ["ml-prod", "a100", "p4de.24xlarge", "ml-research", "research", "rd-001", "8", "32", "queues"]
        for word in [*words, "networkPolicies"]:
            assert word in block, (language, word)


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Targets of links: ids, and headings whose anchor is the same on GitHub and in MkDocs."""
    text = prose(page)
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        letters = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        github, mkdocs = letters.replace(" ", "-"), re.sub(r"[-\s]+", "-", letters)
        found |= {github} & {mkdocs}
    return found


@EACH_PAGE
def test_every_relative_link_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), target
        if page.parent.name == "docs":
            assert page.parent in file.parents, f"{target} is not part of the site"


@EACH_PAGE
def test_every_command_line_parses(page: Path) -> None:
    for block in fenced(page, "sh"):
        for line in commands(block):
            command, words = command_of(line)
            command.make_context(page.name, list(words))
    # In a sentence a command may be shortened, so only its name and options are known.
    for line in re.findall(r"`(?:\.venv/bin/)?tenancy ([^`]+)`", prose(page)):
        if line == "…":
            continue
        command, words = command_of(line.split())
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known | {"--help"}, line


@EACH_PAGE
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets
    wanted = {"README.md": {"up", "test"}, "getting-started.md": {"up", "down", "preview"}}
    assert wanted.get(page.name, set()) <= named


def test_the_clusters_of_the_page_agree(tmp_path: Path) -> None:
    """The manager of docs/multikueue.md has the sum of its workers."""
    for block in fenced(ROOT / "docs" / "multikueue.md", "yaml"):
        name = block.partition("\n")[0].removeprefix("# file: stacks/")
        (tmp_path / name).write_text(block, encoding="utf-8")
    loaded = {one: load(read_file(tmp_path / f"Pulumi.train-{one}.yaml")) for one in ("hub", "west", "east")}
    assert loaded["hub"].teams["ml-research"].quota["h100"].guaranteed == 16 + 8
    assert loaded["west"].multikueue == loaded["east"].multikueue


def test_the_jobs_of_the_page_are_simulated_on_the_stack_local(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(fenced(ROOT / "docs" / "simulation.md", "yaml")[0], encoding="utf-8")
    tree = Tree(load(read_file(ROOT / "stacks" / "Pulumi.local.yaml")))
    *_, last = play_scenario(tree, read_scenario(file, tree))
    assert [(job.workload, job.gpus) for job in last.running] == [(f"try-{n}", 2) for n in range(1, 5)]


def test_docs_show_the_output_of_whatif() -> None:
    table = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8").partition("```\nteam ")[2].partition("```")[0]
    done = CliRunner().invoke(app, ["whatif", "local", "--last", "ml-research", "--project", str(ROOT)])
    output = [line.split() for line in done.output.splitlines()]
    rows = [line.split() for line in table.splitlines()[1:]]
    assert len(rows) == 2
    assert all(row in output for row in rows)
    (note,) = [line for line in done.output.splitlines() if line.startswith("jobs of ml-research")]
    assert f"```\n{note}\n```" in (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")


def test_what_the_simulation_leaves_out_is_on_its_page() -> None:
    section = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8").partition("## What it leaves out")[2]
    rows = re.findall(r"^\| (?!feature of|-)(.+?) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert len(rows) == len(Unmodelled)


@pytest.mark.parametrize("path", [documentation.STACK, documentation.COMMANDS, documentation.CLOUDS], ids=str)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text == documentation.pages(ROOT)[path], "run `make docs`"


def test_what_each_cloud_supports_is_in_the_table() -> None:
    headings, rows = abilities()
    page = (ROOT / documentation.CLOUDS).read_text(encoding="utf-8")
    for line in (headings, *rows):
        assert f"| {' | '.join(line)} |" in page


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(
        file_schema(), [read_file(file).sections for file in sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))]
    )


def test_reference_has_every_section_and_example(reference: Reference) -> None:
    assert set(reference.places) == set(reference.sections)
    keys = {("", key): schema for key, schema in reference.top.items()} | {
        (name, key): schema
        for name, section in reference.sections.items()
        for key, schema in section.get("properties", {}).items()
    }
    assert set(reference.examples) <= set(keys)
    assert {key for key, schema in keys.items() if "const" not in schema} <= set(reference.examples)
    for key, example in reference.examples.items():
        validator: Any = Draft202012Validator({**keys[key], "$defs": reference.sections})
        assert validator.is_valid(example), key


def test_the_reference_has_the_unit_of_an_amount(reference: Reference) -> None:
    page = stack_page(reference)
    assert "- **`cpu`** (CPUs): " in page
    assert "- **`memory`** (bytes): " in page
    assert "- **`keep`** (duration, default `1d`): " in page
    assert "- **`size`** (bytes, default `200Gi`): " in page
    assert "\nkeda: off\n" in page


def test_reference_describes_shared_keys_once_with_examples() -> None:
    page = (ROOT / documentation.STACK).read_text(encoding="utf-8")
    for key in ("provides", "adopt"):
        assert page.count(f"- **`{key}`** (list of ") == 1
    assert page.count("\nprovides: ") == 1
    examples = [yaml.safe_load(block) for block in fenced(ROOT / documentation.STACK, "yaml")]
    assert len(examples) > 70
    assert all(isinstance(example, dict) for example in examples)


def test_every_command_is_in_the_command_reference() -> None:
    page = commands_page()
    for name, command in command_tree(typer.main.get_command(app)):
        _, found, section = page.partition(f"\n## {name}\n")
        assert found, name
        section = section.partition("\n## ")[0]
        for parameter in command.params:
            shown: list[str] = [] if getattr(parameter, "hidden", False) else parameter.opts
            assert all(f"`{option}`" in section for option in shown if option.startswith("-")), name


def test_every_file_that_contributing_names_exists() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = [path for cell in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE) for path in re.findall(r"`(.+?)`", cell)]
    assert len(named) > 30
    for path in named:
        place = ROOT / path
        assert place.is_dir() if path.endswith("/") else place.is_file(), path


def test_the_site_has_every_page() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed(site["nav"])) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def listed(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in which a section is a list of its own."""
    for entry in nav:
        ((_, inner),) = entry.items()
        yield from [inner] if isinstance(inner, str) else listed(inner)


@EACH_PAGE
def test_every_path_in_the_docs_exists(page: Path) -> None:
    rooms = "gpu_tenancy|components|policy|tests|stacks|docs|benchmarks"
    for path in re.findall(rf"`((?:{rooms})/[\w./-]+)`", prose(page)):
        assert "NAME" in path or (ROOT / path).exists(), path


@pytest.mark.process
@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = run(
        [executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (tmp_path / "site" / "quota-model" / "index.html").is_file()


def test_floors_of_the_house_match_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (floors,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["gpu_tenancy"])
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    shown = [(int(number), sorted(re.findall(r"`(\w+)`", rooms))) for number, rooms in rows]
    assert shown == [(len(floors) - at, sorted(floor.split(" | "))) for at, floor in enumerate(floors)]


PICTURES = ROOT / "docs" / "pictures"
LARGEST = 150_000


@pytest.mark.parametrize(("name", "drawn"), [("borrowing", borrowing), ("architecture", architecture)])
def test_a_drawn_picture_is_up_to_date(name: str, drawn: object) -> None:
    assert callable(drawn)
    assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == drawn(), "run `make pictures`"


def test_each_picture_is_shown_and_small() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+\.\w+)", page.read_text(encoding="utf-8"))}
    assert {file.name for file in PICTURES.iterdir()} == shown
    assert max(file.stat().st_size for file in PICTURES.iterdir()) < LARGEST


README = (ROOT / "README.md").read_text(encoding="utf-8")
LANDING = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len([line for line in README.splitlines() if not line.startswith("<!--")]) <= 85


@pytest.mark.parametrize("stack", stack_names())
def test_the_landing_page_names_every_stack(stack: str) -> None:
    assert f"`{stack}`" in LANDING


def test_the_landing_page_links_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= set(re.findall(r"\]\(([^)#]+)", LANDING))


PAGE = (ROOT / "docs" / "simulation.md").read_text(encoding="utf-8")
MODEL = (ROOT / "docs" / "quota-model.md").read_text(encoding="utf-8")
STACK = ROOT / "stacks" / "Pulumi.example-elastic.yaml"


def outputs() -> list[list[str]]:
    """The outputs of output of the page, without trailing spaces."""
    return [
        [line.rstrip() for line in block.splitlines()] for block in re.findall(r"\n```\n(.*?)```\n", PAGE, re.DOTALL)
    ]


def test_docs_show_the_output_of_demo() -> None:
    seen = CliRunner(env={"COLUMNS": "240"}).invoke(app, ["local", "demo", "--project", str(ROOT)])
    printed = [line.rstrip() for line in seen.stdout.splitlines() if "pending" not in line or line.startswith("team ")]
    shown = [block for block in outputs() if "namespace1" in "".join(block)]
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
