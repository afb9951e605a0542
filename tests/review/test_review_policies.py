"""A change of the policies themselves, which the policies at the base judge too."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import Data
from cli_builders import Project, git, small
from typer.testing import CliRunner

from gpu_tenancy.cli.main import app
from gpu_tenancy.engine.project import Preview, preview
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.packs.choosing import choose
from gpu_tenancy.packs.evaluation import PackChoice, evaluate
from gpu_tenancy.packs.findings import PackResult, RuleState
from gpu_tenancy.review import policies as compared
from gpu_tenancy.review.base import Base, checkout
from gpu_tenancy.review.policies import judged
from gpu_tenancy.review.review import PolicyChanges, Rules, Verdict
from gpu_tenancy.review.verdict import BLOCKED, OK, REVIEW, verdict

pytestmark = pytest.mark.process

PACK = """
from pulumi_policy import *

def few(args, report):
    job = args.resource_type == "kubernetes:batch/v1:Job"
    if job and args.props["spec"]["parallelism"] > args.get_config()["most"]:
        report("has too many pods")

def named(args, report):
    pass

PolicyPack("own", [
    ResourceValidationPolicy("few-pods", "Jobs have few pods.", [few], EnforcementLevel.MANDATORY,
        config_schema=PolicyConfigSchema({"most": {"type": "integer", "default": 1}})),
    ResourceValidationPolicy("named", "All have names.", [named], EnforcementLevel.MANDATORY),
    ResourceValidationPolicy("titled", "All have titles.", [named], EnforcementLevel.ADVISORY),
])
"""
HIDDEN = (
    "Policies at HEAD: 1 mandatory violation of new or updated resources that the changed policies do not report:"
    " few-pods (Job vision/nightly)"
)


def pods(workers: int, **sections: Any) -> Data:
    """A stack whose job has that many pods."""
    stack = small(**sections)
    stack["teams"]["vision"]["training"]["nightly"]["workers"] = workers
    return stack


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with a pack and two configuration sets, committed with a stack that violates nothing."""
    own = Project.at(tmp_path / "repository")
    (own.folder / "policy" / "own").mkdir(parents=True)
    write_pack(own, PACK)
    (own.folder / "policy" / "own" / "PulumiPolicy.yaml").write_text("{runtime: python}", encoding="utf-8")
    (own.folder / "policy" / "config").mkdir()
    configure(own)
    configure(own, "prod")
    own.write("s", pods(1))
    git(own.folder, "init", "-q")
    commit(own)
    return own


def write_pack(project: Project, text: str) -> None:
    (project.folder / "policy" / "own" / "__main__.py").write_text(text, encoding="utf-8")


def configure(project: Project, environment: str = "dev", **rules: object) -> None:
    file = project.folder / "policy" / "config" / f"own-{environment}.json"
    file.write_text(json.dumps({name.replace("_", "-"): rule for name, rule in rules.items()}), encoding="utf-8")


def commit(project: Project) -> None:
    git(project.folder, "add", ".")
    git(project.folder, "commit", "-qm", "committed")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Preview:
    """The stack whose job has one pod, which no rule of the pack rejects."""
    own = Project.at(tmp_path_factory.mktemp("one") / "project")
    own.write("s", pods(1))
    return preview("s", own.folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Preview:
    """The same with two pods."""
    own = Project.at(tmp_path_factory.mktemp("two") / "project")
    own.write("s", pods(2))
    return preview("s", own.folder)


def evaluated(project: Project, before: Preview, now: Preview, pack: str = "own") -> Rules:
    """The results of the policies of the working tree and of the last commit."""
    chosen = choose(pack, project.folder, production=now.stack.is_production)
    [result] = evaluate(now.rendered, [chosen])
    packs = [compared.Evaluated(pack, chosen, result)]
    with checkout(project.folder, "HEAD") as copy:
        base = Base("HEAD", copy.commit, before.stack, before.rendered)
        changes = compared.policy_changes(now, packs, base, copy, project.folder)
    return replace(judged(now.rendered, [result]), changes=changes)


def decided(rules: Rules, now: Preview) -> Verdict:
    return verdict(outlook(now.stack), None, (), rules)


def test_rules_that_are_all_disabled_are_named_and_never_fine(project: Project, one: Preview) -> None:
    configure(project, all="disabled")
    seen = decided(evaluated(project, one, one), one)
    assert seen.title == REVIEW
    disabled = "few-pods: mandatory → disabled, named: mandatory → disabled, titled: advisory → disabled"
    assert seen.sentences[:2] == (f"Policies weaker: 3 rules ({disabled})", "Policies: no rule is enabled")


def test_rules_that_are_weaker_need_review(project: Project, one: Preview) -> None:
    configure(project, few_pods={"most": 100}, named="remediate", titled="disabled")
    seen = decided(evaluated(project, one, one), one)
    assert seen.title == REVIEW
    assert seen.sentences[:2] == (
        "Policies weaker: 2 rules (named: mandatory → remediate, titled: advisory → disabled)",
        "Policies have other settings: 1 rule (few-pods: settings changed: most)",
    )


def test_a_stricter_rule_is_not_weaker(project: Project, one: Preview) -> None:
    configure(project, titled="mandatory")
    assert decided(evaluated(project, one, one), one).title == OK


def _loosened(project: Project) -> None:
    configure(project, few_pods={"most": 100})


def _silenced(project: Project) -> None:
    write_pack(project, PACK.replace("if job and", "if False and"))


def _disabled(project: Project) -> None:
    configure(project, few_pods="disabled")


@pytest.mark.parametrize("weaken", [_loosened, _silenced, _disabled])
def test_a_violation_that_only_the_policies_of_the_base_report_blocks(
    project: Project, one: Preview, two: Preview, weaken: Callable[[Project], None]
) -> None:
    weaken(project)
    rules = evaluated(project, one, two)
    seen = decided(rules, two)
    assert rules.violated
    assert (seen.title, seen.sentences[0]) == (BLOCKED, HIDDEN)


def test_a_violation_of_a_resource_as_at_the_base_does_not_block_its_repair(project: Project, two: Preview) -> None:
    configure(project, few_pods={"most": 2})
    rules = evaluated(project, two, two)
    seen = decided(rules, two)
    assert not rules.violated
    assert seen.title == REVIEW
    assert "1 mandatory violation of unchanged resources" in seen.sentences[0]


def test_a_rule_that_is_removed_is_named(project: Project, one: Preview) -> None:
    write_pack(project, PACK.replace('"few-pods"', '"few-pods-2"'))
    seen = decided(evaluated(project, one, one), one)
    assert seen.sentences[0] == "Policies weaker: 1 rule (few-pods: mandatory → removed)"


def test_another_environment_is_compared_with_the_configuration_set_of_the_base(project: Project, one: Preview) -> None:
    configure(project, few_pods={"most": 3})
    project.write("s", pods(1, environment="prod"))
    commit(project)
    rules = evaluated(project, one, one)
    assert rules.changes
    assert [rule.change for rule in rules.changes.weaker] == ["settings changed: most"]


def exempted(stack: Preview, key: str, *, listed: bool = False) -> Preview:
    """The stack with an exemption of its first resource."""
    first, *others = stack.rendered.registrations
    tags: Any = [{"key": key, "value": "2099-01-31 why"}] if listed else {key: "2099-01-31 why"}
    inputs = {**first.inputs, "metadata": {"annotations": {"note": "exempt"}}, "tags": tags}
    # pyrefly: ignore[bad-argument-type]
    registrations = (replace(first, inputs=inputs), *others)
    return replace(stack, rendered=replace(stack.rendered, registrations=registrations))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("key", ["exempt.gpu-rules/few-pods", "exempt:few-pods", "exempt-few-pods"])
def test_a_new_exemption_is_named(one: Preview, key: str, *, listed: bool) -> None:
    now = exempted(one, key, listed=listed).rendered
    for before in (one.rendered, None):
        [exemption] = compared.new_exemptions(before, now)
        assert (exemption.rule, exemption.text) == ("few-pods", "2099-01-31 why")
    assert list(compared.new_exemptions(now, now)) == []


def test_a_new_exemption_needs_review(one: Preview) -> None:
    exemptions = tuple(compared.new_exemptions(one.rendered, exempted(one, "exempt:few-pods").rendered))
    rules = Rules((), 3, ("own 1.0.0",), {"mandatory": 3}, PolicyChanges("HEAD", exemptions=exemptions))
    seen = decided(rules, one)
    assert seen.title == REVIEW
    assert seen.sentences[0] == f"1 new exemption: few-pods ({exemptions[0].place})"


def test_a_pack_that_the_base_does_not_have_needs_review(project: Project, one: Preview) -> None:
    git(project.folder, "rm", "-rq", "--cached", "policy/own")
    git(project.folder, "commit", "-qm", "without")
    seen = decided(evaluated(project, one, one), one)
    assert (seen.title, seen.sentences[0]) == (REVIEW, "Policy pack own does not exist at HEAD")


def test_a_pack_that_does_not_run_at_the_base_needs_review(project: Project, one: Preview) -> None:
    write_pack(project, "raise SystemExit('broken')")
    commit(project)
    write_pack(project, PACK)
    seen = decided(evaluated(project, one, one), one)
    assert seen.title == REVIEW
    assert seen.sentences[0].startswith("Policy pack own cannot be evaluated as at HEAD: policy pack ")
    assert "did not start: broken" in seen.sentences[0]


def test_policies_that_did_not_change_are_evaluated_once(
    project: Project, one: Preview, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[PackResult]:
        pytest.fail(f"{rendered.stack}: {chosen} is evaluated again")

    monkeypatch.setattr(compared, "evaluate", again)
    rules = evaluated(project, one, one)
    assert rules.changes == PolicyChanges("HEAD")
    assert decided(rules, one).title == OK


def test_a_pack_that_is_installed_in_the_project_is_not_part_of_the_change(project: Project, one: Preview) -> None:
    installed = project.folder / "venv" / "own"
    shutil.copytree(project.folder / "policy" / "own", installed)
    assert decided(evaluated(project, one, one, str(installed)), one).title == OK


def test_a_pack_beside_the_project_in_its_repository_needs_review_if_it_changed(tmp_path: Path, one: Preview) -> None:
    beside = Project.at(tmp_path / "repository" / "platform")
    pack = tmp_path / "repository" / "packs" / "own"
    pack.mkdir(parents=True)
    (pack / "__main__.py").write_text(PACK, encoding="utf-8")
    (pack / "PulumiPolicy.yaml").write_text("{runtime: python}", encoding="utf-8")
    git(tmp_path / "repository", "init", "-q")
    git(tmp_path / "repository", "add", ".")
    commit(beside)
    assert decided(evaluated(beside, one, one, str(pack)), one).title == OK
    (pack / "__main__.py").write_text(PACK.replace("if job and", "if False and"), encoding="utf-8")
    seen = decided(evaluated(beside, one, one, str(pack)), one)
    assert (seen.title, seen.sentences[0]) == (
        REVIEW,
        f"Policy pack {pack} changed since HEAD, outside the project",
    )


def test_committed_bytecode_which_python_may_read_instead_of_the_source_is_a_change(
    project: Project, one: Preview, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = project.folder / "policy" / "own" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "rules.cpython-312.pyc").write_bytes(b"")
    again: list[PackChoice] = []

    def noted(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[PackResult]:
        again.extend(chosen)
        return evaluate(rendered, chosen)

    monkeypatch.setattr(compared, "evaluate", noted)
    evaluated(project, one, one)
    assert again == []
    git(project.folder, "add", "-f", ".")
    evaluated(project, one, one)
    assert len(again) == 1


@pytest.mark.slow
def test_the_command_and_its_reports_name_what_the_change_hides(project: Project, tmp_path: Path) -> None:
    configure(project, few_pods="advisory", named="disabled")
    project.write("s", pods(2))
    arguments = ["preview", "s", "--base", "HEAD", "--policy", "own", "--project", str(project.folder)]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert (result.exit_code, result.stderr) == (2, "")
    lines = result.stdout.splitlines()
    weaker = "Policies weaker: 2 rules (few-pods: mandatory → advisory, named: mandatory → disabled)"
    assert lines[1:4] == [BLOCKED, f"- {HIDDEN}", f"- {weaker}"]
    assert "  few-pods, unspecified, own, reported by the policies at HEAD only" in lines
    assert "! named: mandatory → disabled (own)" in lines
    markdown, page, data = ((tmp_path / "out" / f"report.{kind}").read_text() for kind in ("md", "html", "json"))
    assert "- ✗ **mandatory at HEAD** <code>few-pods</code> has too many pods" in markdown
    assert "- **weaker** <code>named</code> mandatory → disabled" in markdown
    assert "mandatory at HEAD</span>" in page
    assert "<code>named</code> mandatory → disabled" in page
    changes = json.loads(data)["rules"]["changes"]
    assert changes["weaker"][1] == {"pack": "own", "rule": "named", "change": "mandatory → disabled", "lowered": True}
    assert [line["rule"] for line in changes["unreported"]] == ["few-pods"]


@pytest.mark.parametrize(
    ("levels", "title", "reason"),
    [
        ({}, REVIEW, "Policies: no rule is enabled"),
        ({"disabled": 75}, REVIEW, "Policies: no rule is enabled"),
        ({"disabled": 70, "advisory": 5}, REVIEW, "Policies: no rule is mandatory, 5 passed"),
        ({"advisory": 4, "mandatory": 1}, OK, "Policies: 5 passed, no mandatory violations"),
        ({"remediate": 5}, OK, "Policies: 5 passed, no mandatory violations"),
    ],
)
def test_policies_without_effect_are_never_fine(one: Preview, levels: dict[str, int], title: str, reason: str) -> None:
    rules = Rules((), sum(levels.values()) - levels.get("disabled", 0), ("own 1.0.0",), levels)
    seen = decided(rules, one)
    assert (seen.title, seen.sentences[0]) == (title, reason)


def test_rules_with_a_level_below_that_of_the_base_are_weaker() -> None:
    def pack(**levels: str) -> PackResult:
        return PackResult("own", "1", {name: RuleState(level, {}) for name, level in levels.items()}, ())

    before = pack(a="mandatory", b="remediate", c="advisory", d="disabled", e="remediate", f="mandatory")
    now = pack(a="remediate", b="advisory", c="mandatory", d="disabled", e="mandatory")
    weaker = compared.weaker_rules(before, now)
    assert [(rule.rule, rule.change) for rule in weaker] == [
        ("a", "mandatory → remediate"),
        ("b", "remediate → advisory"),
        ("f", "mandatory → removed"),
    ]
