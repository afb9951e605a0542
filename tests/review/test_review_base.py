"""A stack and its policies at another git ref, and the review of the changes since then."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from builders import Data
from cli_builders import Project, git, small
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.main import app
from gpu_tenancy.engine.project import Preview, preview
from gpu_tenancy.engine.recording import UNKNOWN
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.project import stack_file
from gpu_tenancy.packs.configuration import PackChoice, choose
from gpu_tenancy.packs.evaluation import evaluate
from gpu_tenancy.packs.findings import PackResult, RuleState
from gpu_tenancy.review import base as base_module
from gpu_tenancy.review import policies as compared
from gpu_tenancy.review.base import Base, base_in, checkout
from gpu_tenancy.review.build import as_json, review
from gpu_tenancy.review.policies import judged
from gpu_tenancy.review.review import PolicyChanges, Rules, Verdict
from gpu_tenancy.review.verdict import BLOCKED, OK, REVIEW, verdict

pytestmark = pytest.mark.process
RENDERED: Final = dict[bytes, Any]()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "repository" / "platform")
    found.write("s", small())
    git(tmp_path, "init", "-q", "repository")
    git(found.folder, "add", ".")
    git(found.folder, "commit", "-qm", "first")
    return found


@pytest.fixture(autouse=True)
def rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of another ref runs once for each stack file, in a process of its own."""
    run = base_module._registrations  # pyright: ignore[reportPrivateUsage]

    def registrations(folder: Path, stack: str, ref: str) -> Any:
        content = (folder / "__main__.py").read_bytes() + stack_file(folder, stack).read_bytes()
        return RENDERED.get(content) or RENDERED.setdefault(content, run(folder, stack, ref))

    monkeypatch.setattr(base_module, "_registrations", registrations)


def base(ref: str, project: Project) -> Base:
    with checkout(project.folder, ref) as copy:
        return base_in(copy, ref, "s", "gpu-tenancy")


def raised(limit: int) -> Data:
    sections = small()
    sections["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 2, "limit": limit}}
    return sections


@pytest.mark.slow
def test_the_base_stack_is_read_from_its_ref(project: Project) -> None:
    as_it_is = preview("s", project.folder)
    project.write("s", raised(4))
    found = base("HEAD", project)
    assert found.stack == as_it_is.stack
    assert found.rendered is not None
    assert found.rendered.registrations == as_it_is.rendered.registrations
    assert found.notes == ()


@pytest.mark.slow
def test_a_review_shows_gains_with_file_and_line(project: Project) -> None:
    project.write("s", raised(4))
    found = review(preview("s", project.folder), project.folder, ref="HEAD")
    assert "Team speech: l4 limit raised from 2 to 4 GPUs" in found.verdict.sentences
    assert found.verdict.title == OK
    assert {change.place for change in found.changes} == {"ClusterQueue speech", "ResourceQuota speech/budget"}
    lines = Path(project.folder, "stacks/Pulumi.s.yaml").read_text(encoding="utf-8").splitlines()
    assert found.where["team speech"] == f"stacks/Pulumi.s.yaml:{lines.index('    speech:') + 1}"


def test_a_stack_that_was_not_there_is_all_new(project: Project) -> None:
    project.write("new", small())
    found = review(preview("new", project.folder), project.folder, ref="HEAD")
    assert found.comparison is not None
    assert found.comparison.notes == ("stack new does not exist at HEAD; all resources are new",)
    assert found.comparison.before is None
    assert len(found.changes) == found.resources
    assert {change.action for change in found.changes} == {"create"}


@pytest.mark.slow
def test_an_invalid_base_is_named_and_compared_with_nothing(project: Project) -> None:
    wrong = small()
    wrong["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 99}}
    project.write("s", wrong)
    git(project.folder, "commit", "-qam", "wrong")
    project.write("s", small())
    found = base("HEAD", project)
    (note,) = found.notes
    assert note.startswith(
        "Nothing is compared, all resources are shown as new: stack s at HEAD is invalid under the current rules"
        " (stacks/Pulumi.s.yaml:"
    )
    seen = review(preview("s", project.folder), project.folder, ref="HEAD").verdict
    assert (seen.title, note in seen.sentences) == (REVIEW, True)
    assert (found.stack, found.rendered.registrations) == (None, ())
    project.write("s", small())
    git(project.folder, "commit", "-qam", "right")
    (project.folder / "__main__.py").write_text("raise ValueError('no program')\n")
    git(project.folder, "commit", "-qam", "broken")
    with pytest.raises(ConsoleError, match=r"HEAD: cannot render stack s with the program at this ref \(.*no program"):
        base("HEAD", project)


def test_a_ref_that_is_not_there_is_named(project: Project) -> None:
    with pytest.raises(ConsoleError, match=r"nowhere: git rev-parse failed: .*specify a branch, tag or commit"):
        base("nowhere", project)


@pytest.mark.slow
def test_machines_read_the_same_review(project: Project) -> None:
    found = review(preview("s", project.folder), project.folder, ref="HEAD")
    data = json.loads(as_json(found))
    assert data["verdict"]["line"] == found.verdict.line
    assert [team["name"] for team in data["now"]["teams"]] == ["speech", "vision"]
    assert as_json(found) == as_json(review(preview("s", project.folder), project.folder, ref="HEAD"))


# Pulumi's own preview, laid over.


def pulumi_preview(folder: Path, *steps: dict[str, object]) -> Path:
    file = folder / "preview.json"
    file.write_text(json.dumps({"steps": steps}), encoding="utf-8")
    return file


def step(op: str, urn: str, before: object = None, after: object = None, **rest: object) -> dict[str, object]:
    type_ = urn.split("::")[2].rpartition("$")[2]
    states = {"oldState": before, "newState": after}
    kept = {key: {"type": type_, "custom": True, "inputs": state} for key, state in states.items() if state is not None}
    return {"op": op, "urn": urn, **kept, **rest}


def test_pulumis_preview_is_grouped_by_team(project: Project) -> None:
    found = preview("s", project.folder)
    quota = next(resource.urn for resource in found.rendered.registrations if resource.type.endswith(":ResourceQuota"))
    whole = quota.replace("urn:pulumi:s::", "urn:pulumi:acme/gpu-tenancy/s::")
    gone = "urn:pulumi:s::gpu-tenancy::kubernetes:core/v1:Secret::old"
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}
    file = pulumi_preview(
        project.folder,
        step("same", gone.replace("old", "kept"), {}, {}),
        step(
            "update",
            whole,
            {"spec": {"hard": {"requests.nvidia.com/gpu": "2", "key": secret}}},
            {"spec": {"hard": {"requests.nvidia.com/gpu": UNKNOWN, "key": "b"}}},
            detailedDiff={
                'spec.hard["requests.nvidia.com/gpu"]': {"kind": "update"},
                "spec.hard.key": {"kind": "update"},
            },
        ),
        step("delete", gone, {}),
    )
    seen = review(found, project.folder, real=file)
    assert seen.real is not None
    assert seen.real.same == 1
    deleted, updated = seen.real.changes
    assert (deleted.action, deleted.place, deleted.group) == ("delete", "Secret old", "not in the stack file")
    assert (updated.action, updated.group) == ("update", "team speech")
    assert [(field.path, field.before, field.after) for field in updated.fields] == [
        ("spec.hard.key", "[secret]", "b"),
        ("spec.hard.requests.nvidia.com/gpu", "2", "[unknown]"),
    ]
    assert "1 resource will be deleted: Secret old" in seen.verdict.sentences


@pytest.mark.parametrize(
    ("text", "why"), [("{", "not valid JSON"), ("{}", "missing key 'steps'"), (None, "cannot read the file")]
)
def test_an_invalid_preview_file_is_refused(project: Project, text: str | None, why: str) -> None:
    file = project.folder / "p.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConsoleError, match=f"p.json: {why}.*specify a file written by `pulumi preview --json`"):
        review(preview("s", project.folder), project.folder, real=file)


@pytest.mark.slow
def test_removed_and_added_teams_have_one_sentence_each(project: Project) -> None:
    sections = small()
    sections["teams"]["third"] = {**sections["teams"].pop("speech"), "gpus": {"l4": {"guaranteed": 1, "limit": 3}}}
    project.write("s", sections)
    found = review(preview("s", project.folder), project.folder, ref="HEAD").verdict.sentences
    assert "Team speech is removed (had 2 l4 GPUs guaranteed, limit 2)" in found
    assert "Team third is added (1 l4 GPU guaranteed, limit 3)" in found
    assert len([reason for reason in found if "speech" in reason and "deleted" not in reason]) == 1


@pytest.mark.slow
def test_a_review_names_what_the_change_would_adopt(project: Project) -> None:
    sections = small()
    sections["cluster"]["adopt"] = ["Namespace/vision"]
    project.write("s", sections)
    current = preview("s", project.folder)
    for ref in ("HEAD", None):
        verdict = review(current, project.folder, ref=ref).verdict
        assert verdict.title == REVIEW
        assert verdict.sentences[0] == "1 object will be adopted if existing: Namespace/vision"
    git(project.folder, "commit", "-qam", "adopt")
    assert review(current, project.folder, ref="HEAD").verdict.title == OK


# A change of the policies themselves, which the policies at the base judge too.


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
    stack = small(**sections)
    stack["teams"]["vision"]["training"]["nightly"]["workers"] = workers
    return stack


@pytest.fixture
def own_project(tmp_path: Path) -> Project:
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


def write_pack(own_project: Project, text: str) -> None:
    (own_project.folder / "policy" / "own" / "__main__.py").write_text(text, encoding="utf-8")


def configure(own_project: Project, environment: str = "dev", **rules: object) -> None:
    file = own_project.folder / "policy" / "config" / f"own-{environment}.json"
    file.write_text(json.dumps({name.replace("_", "-"): rule for name, rule in rules.items()}), encoding="utf-8")


def commit(own_project: Project) -> None:
    git(own_project.folder, "add", ".")
    git(own_project.folder, "commit", "-qm", "committed")


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


def evaluated(own_project: Project, before: Preview, now: Preview, pack: str = "own") -> Rules:
    chosen = choose(pack, own_project.folder, production=now.stack.is_production)
    [result] = evaluate(now.rendered, [chosen])
    packs = [compared.Evaluated(pack, chosen, result)]
    with checkout(own_project.folder, "HEAD") as copy:
        base = Base("HEAD", copy.commit, before.stack, before.rendered)
        changes = compared.policy_changes(now, packs, base, copy, own_project.folder)
    return replace(judged(now.rendered, [result]), changes=changes)


def decided(rules: Rules, now: Preview) -> Verdict:
    return verdict(outlook(now.stack), None, (), rules)


def test_rules_that_are_all_disabled_are_named_and_never_fine(own_project: Project, one: Preview) -> None:
    configure(own_project, all="disabled")
    seen = decided(evaluated(own_project, one, one), one)
    assert seen.title == REVIEW
    disabled = "few-pods: mandatory → disabled, named: mandatory → disabled, titled: advisory → disabled"
    assert seen.sentences[:2] == (f"Policies weaker: 3 rules ({disabled})", "Policies: no rule is enabled")


def test_rules_that_are_weaker_need_review(own_project: Project, one: Preview) -> None:
    configure(own_project, few_pods={"most": 100}, named="remediate", titled="disabled")
    seen = decided(evaluated(own_project, one, one), one)
    assert seen.title == REVIEW
    assert seen.sentences[:2] == (
        "Policies weaker: 2 rules (named: mandatory → remediate, titled: advisory → disabled)",
        "Policies have other settings: 1 rule (few-pods: settings changed: most)",
    )


def test_a_stricter_rule_is_not_weaker(own_project: Project, one: Preview) -> None:
    configure(own_project, titled="mandatory")
    assert decided(evaluated(own_project, one, one), one).title == OK


def _loosened(own_project: Project) -> None:
    configure(own_project, few_pods={"most": 100})


def _silenced(own_project: Project) -> None:
    write_pack(own_project, PACK.replace("if job and", "if False and"))


def _disabled(own_project: Project) -> None:
    configure(own_project, few_pods="disabled")


@pytest.mark.parametrize("weaken", [_loosened, _silenced, _disabled])
def test_violation_hidden_by_changed_policies_blocks(
    own_project: Project, one: Preview, two: Preview, weaken: Callable[[Project], None]
) -> None:
    weaken(own_project)
    rules = evaluated(own_project, one, two)
    seen = decided(rules, two)
    assert rules.violated
    assert (seen.title, seen.sentences[0]) == (BLOCKED, HIDDEN)


def test_unchanged_violation_does_not_block(own_project: Project, two: Preview) -> None:
    configure(own_project, few_pods={"most": 2})
    rules = evaluated(own_project, two, two)
    seen = decided(rules, two)
    assert not rules.violated
    assert seen.title == REVIEW
    assert "1 mandatory violation of unchanged resources" in seen.sentences[0]


def test_a_rule_that_is_removed_is_named(own_project: Project, one: Preview) -> None:
    write_pack(own_project, PACK.replace('"few-pods"', '"few-pods-2"'))
    seen = decided(evaluated(own_project, one, one), one)
    assert seen.sentences[0] == "Policies weaker: 1 rule (few-pods: mandatory → removed)"


def test_compares_with_the_bases_configuration_set(own_project: Project, one: Preview) -> None:
    configure(own_project, few_pods={"most": 3})
    own_project.write("s", pods(1, environment="prod"))
    commit(own_project)
    rules = evaluated(own_project, one, one)
    assert rules.changes
    assert [rule.change for rule in rules.changes.weaker] == ["settings changed: most"]


def exempted(stack: Preview, key: str, *, listed: bool = False) -> Preview:
    """The stack with an exemption of its first resource."""
    first, *others = stack.rendered.registrations
    tags: Any = [{"key": key, "value": "2099-01-31 why"}] if listed else {key: "2099-01-31 why"}
    inputs = {**first.inputs, "metadata": {"annotations": {"note": "exempt"}}, "tags": tags}
    # pyrefly: ignore[bad-argument-type]
    return replace(stack, rendered=replace(stack.rendered, registrations=(replace(first, inputs=inputs), *others)))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("key", ["exempt.gpu-rules/few-pods", "exempt:few-pods", "exempt-few-pods"])
def test_a_new_exemption_is_named(one: Preview, key: str, *, listed: bool) -> None:
    now = exempted(one, key, listed=listed).rendered
    for before in (one.rendered, replace(one.rendered, registrations=())):
        [exemption] = compared.new_exemptions(before, now)
        assert (exemption.rule, exemption.text) == ("few-pods", "2099-01-31 why")
    assert list(compared.new_exemptions(now, now)) == []


def test_a_new_exemption_needs_review(one: Preview) -> None:
    exemptions = tuple(compared.new_exemptions(one.rendered, exempted(one, "exempt:few-pods").rendered))
    seen = decided(Rules((), 3, ("own 1.0.0",), {"mandatory": 3}, PolicyChanges("HEAD", exemptions=exemptions)), one)
    assert seen.title == REVIEW
    assert seen.sentences[0] == f"1 new exemption: few-pods ({exemptions[0].place})"


def test_a_pack_that_the_base_does_not_have_needs_review(own_project: Project, one: Preview) -> None:
    git(own_project.folder, "rm", "-rq", "--cached", "policy/own")
    git(own_project.folder, "commit", "-qm", "without")
    seen = decided(evaluated(own_project, one, one), one)
    assert (seen.title, seen.sentences[0]) == (REVIEW, "Policy pack own does not exist at HEAD")


def test_a_pack_that_does_not_run_at_the_base_needs_review(own_project: Project, one: Preview) -> None:
    write_pack(own_project, "raise SystemExit('broken')")
    commit(own_project)
    write_pack(own_project, PACK)
    seen = decided(evaluated(own_project, one, one), one)
    assert seen.title == REVIEW
    assert seen.sentences[0].startswith("Policy pack own cannot be evaluated as at HEAD: policy pack ")
    assert "did not start: broken" in seen.sentences[0]


def test_policies_that_did_not_change_are_evaluated_once(
    own_project: Project, one: Preview, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[PackResult]:
        pytest.fail(f"{rendered.stack}: {chosen} is evaluated again")

    monkeypatch.setattr(compared, "evaluate", again)
    rules = evaluated(own_project, one, one)
    assert rules.changes == PolicyChanges("HEAD")
    assert decided(rules, one).title == OK


def test_installed_pack_is_not_part_of_the_change(own_project: Project, one: Preview) -> None:
    installed = own_project.folder / "venv" / "own"
    shutil.copytree(own_project.folder / "policy" / "own", installed)
    assert decided(evaluated(own_project, one, one, str(installed)), one).title == OK


def test_changed_pack_beside_the_project_needs_review(tmp_path: Path, one: Preview) -> None:
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
    assert (seen.title, seen.sentences[0]) == (REVIEW, f"Policy pack {pack} changed since HEAD, outside the project")


def test_committed_bytecode_is_a_change(own_project: Project, one: Preview, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = own_project.folder / "policy" / "own" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "rules.cpython-312.pyc").write_bytes(b"")
    again: list[PackChoice] = []

    def noted(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[PackResult]:
        again.extend(chosen)
        return evaluate(rendered, chosen)

    monkeypatch.setattr(compared, "evaluate", noted)
    evaluated(own_project, one, one)
    assert again == []
    git(own_project.folder, "add", "-f", ".")
    evaluated(own_project, one, one)
    assert len(again) == 1


@pytest.mark.slow
def test_the_command_and_its_reports_name_what_the_change_hides(own_project: Project, tmp_path: Path) -> None:
    configure(own_project, few_pods="advisory", named="disabled")
    own_project.write("s", pods(2))
    arguments = ["preview", "s", "--base", "HEAD", "--policy", "own", "--project", str(own_project.folder)]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert (result.exit_code, result.stderr) == (3, "")
    lines = result.stdout.splitlines()
    weaker = "Policies weaker: 2 rules (few-pods: mandatory → advisory, named: mandatory → disabled)"
    assert lines[2:5] == [BLOCKED, f"- {HIDDEN}", f"- {weaker}"]  # after what the cluster must have
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
    seen = decided(Rules((), sum(levels.values()) - levels.get("disabled", 0), ("own 1.0.0",), levels), one)
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
