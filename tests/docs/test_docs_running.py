"""Runs the pages: each command as it stands, in the order of its page, as its reader.

`make screens` writes the screens of the pages from these runs; without it, a screen that differs beyond names and times
fails.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from blocks import PAGES, Block, Mark, blocks
from fragments import part_of
from people import ON_PLATFORM, People, Ran, within
from screens import alike, command_of, part, screen

from gpu_tenancy.base.progress import Report

pytestmark = pytest.mark.slow

RECORDING: Final = "GPU_TENANCY_SCREENS"  # set by `make screens`
RUN: Final = frozenset({"run", "screen", "part", "submit"})
SCHEDULED: Final = 90.0  # seconds until the pods of a submitted job have nodes


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[People]:
    everybody = People(tmp_path_factory.mktemp("pages"), report)
    yield everybody
    everybody.down()


def marks_of(page: Path) -> list[Mark]:
    return [block.mark for block in blocks(page) if block.mark and block.mark.kind in RUN]


def layer(page: Path) -> pytest.MarkDecorator:
    deployed = any({"starts", "of"} & set(mark.options) or mark.options["as"] in ON_PLATFORM for mark in marks_of(page))
    return pytest.mark.platform if deployed else pytest.mark.process


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=layer(page)) for page in PAGES if marks_of(page)]
)
def test_each_command_of_the_page_runs_as_it_stands(people: People, page: Path) -> None:
    found = blocks(page)
    if any("kubectl" in block.text for block in found if block.mark and block.mark.kind in {*RUN, "each"}):
        kubectl_or_skip()
    people.turn()
    recorded: dict[Block, str] = {}
    for block in found:
        if block.mark is None:
            continue
        if block.mark.kind == "file":
            write(people, found, block)
        elif block.mark.kind == "stack" and "as" in block.mark.options:
            edit(people, block)
        elif block.mark.kind == "submit":
            submit(people, found, block)
        elif block.mark.kind in {"run", "screen"}:
            recorded[block] = run(people, block)
        elif block.mark.kind == "part":
            recorded[block] = compared(block, part(block, people.up().output))
    if os.environ.get(RECORDING):
        rewrite(page, recorded)


@pytest.mark.platform
@pytest.mark.parametrize(
    ("who", "may", "may_not"),
    [
        ("researcher", "create jobs", "list secrets"),
        ("lead", "list secrets", "create jobs -n ml-production"),
        ("auditor", "list clusterrolebindings", "create jobs"),
    ],
)
def test_a_person_has_the_rights_of_the_role_and_no_more(people: People, who: str, may: str, may_not: str) -> None:
    kubectl_or_skip()
    for asked, answer in ((may, "yes"), (may_not, "no")):
        assert people.run(who, f"kubectl auth can-i {asked}").output.splitlines()[-1] == answer


def kubectl_or_skip() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH, which the page's reader has")


def write(people: People, found: list[Block], block: Block) -> None:
    """Writes a file into the folders of all readers who run a block of the page."""
    assert block.mark is not None
    for who in {other.mark.options["as"] for other in found if other.mark and "as" in other.mark.options}:
        file = people.folder(who) / block.mark.text
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")


def edit(people: People, block: Block) -> None:
    """Merges a part of a stack into the file of its reader."""
    assert block.mark is not None
    options = block.mark.options
    file = people.folder(options["as"]) / "stacks" / f"Pulumi.{options['into']}.yaml"
    base = yaml.safe_load(file.read_text(encoding="utf-8"))
    changed = {**base, "config": part_of(base["config"], block)}
    file.write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")


def run(people: People, block: Block) -> str:
    """Runs a block, and returns its expected text in the page."""
    assert block.mark is not None
    options = block.mark.options
    command = command_of(block) if block.mark.kind == "screen" else block.text
    if options.get("beside") == "prometheus":
        people.prometheus()
    if options.get("starts") == "platform":
        assert command.partition("#")[0].strip() == "make up"
        ran = people.up()
    else:
        ran = attempted(
            people, options["as"], command, int(options.get("exit", "0")), float(options.get("within", "0"))
        )
    assert ran.code == int(options.get("exit", "0")), f"{block.place}: exit code {ran.code}\n{command}\n{ran.output}"
    if block.mark.kind == "run":
        return block.text
    return compared(block, screen(block, ran.output))


def compared(block: Block, text: str) -> str:
    if not os.environ.get(RECORDING):
        assert alike(text) == alike(block.text), f"{block.place}: run `make screens`. It shows now:\n{text}"
    return text


def attempted(people: People, who: str, command: str, code: int, seconds: float) -> Ran:
    return within(seconds, lambda: people.run(who, command), code)


def submit(people: People, found: list[Block], block: Block) -> None:
    """Submits a manifest by the commands of the page, and waits until its pods are scheduled."""
    assert block.mark is not None
    options = block.mark.options
    name, namespace = (yaml.safe_load(block.text)["metadata"][key] for key in ("name", "namespace"))
    (people.folder(options["as"]) / "job.yaml").write_text(block.text, encoding="utf-8")
    for step in found:
        if step.mark and step.mark.kind == "each":
            ran = people.run(step.mark.options["as"], step.text.replace("NAME", name))
            assert ran.code == 0, f"{block.place}: {step.text}{ran.output}"
    pods = f"kubectl get pods -n {namespace} -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName --no-headers"
    counted = f'test "$({pods} | grep "^{name}-" | grep -vc "<none>")" = {options["pods"]}'
    ran = attempted(people, options["as"], counted, 0, SCHEDULED)
    seen = people.run(options["as"], f"{pods}; tenancy why {namespace}/{name} || true").output if ran.code else ""
    people.run(options["as"], "kubectl delete -f job.yaml --wait && rm job.yaml")
    assert ran.code == 0, f"{block.place}: not {options['pods']} scheduled pods\n{seen}"


def rewrite(page: Path, recorded: dict[Block, str]) -> None:
    """Writes the recorded screens of a page; the last first, so that places stay."""
    text = page.read_text(encoding="utf-8")
    for block, new in sorted(recorded.items(), key=lambda item: -item[0].start):
        indented = "".join(block.indent + line if line.strip() else line for line in new.splitlines(keepends=True))
        text = text[: block.start] + indented + text[block.end :]
    page.write_text(text, encoding="utf-8")
