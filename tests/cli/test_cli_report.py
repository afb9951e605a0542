"""`tenancy local up`: its report, one self-contained page, and the order of jobs in a queue."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from builders import GPU, pool, server, stack, stack_of, team
from page_reader import Page, well_formed
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.json import Json
from gpu_tenancy.base.output import Output
from gpu_tenancy.cluster.budgets import Budget
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.explain.usage import TeamBudget
from gpu_tenancy.local import show
from gpu_tenancy.local.checks import Check
from gpu_tenancy.local.report import write_report
from gpu_tenancy.local.settling import in_turns
from gpu_tenancy.local.show import next_steps
from gpu_tenancy.local.summary import Composition, Holding, Summary, Supply
from gpu_tenancy.local.up import Outcome

SUMMARY = Summary(
    holdings=(
        Holding("ml-production", "h100", "Kueue", guaranteed=161, limit=162, used=43, lends=False, resource=GPU),
        Holding("ml-research", "a100", "Kueue", guaranteed=84, limit=325, used=286, lends=True, resource=GPU),
    ),
    budgets=(TeamBudget("ml-research", Budget("budget", "requests.memory", 237 * 2**30, 258 * 2**30)),),
    supply=(
        Supply("a100", "NVIDIA-A100-SXM4-80GB", 47, 379, 287, GPU),
        Supply("h100", "NVIDIA-H100-80GB-HBM3", 28, 224, 44, GPU),
    ),
    waiting=1,
    astray=(),
)
CHECKS = (Check("ml-research cannot use more than its 36", "refused: limits[nvidia.com/gpu] <b>&", holds=True),)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    found = stack_of_repository("local")
    return Outcome(
        preview=found,
        engine="server-side apply",
        changes={"created": 71},
        nodes={"created": 25},
        objects=71,
        kubeconfig=Path("kubeconfig"),
        server="https://127.0.0.1:1",
        summary=SUMMARY,
        checks=CHECKS,
        composition=Composition(("API server 1.36.3", "Kueue 0.19.2"), ("nodes and their GPUs (kwok)",)),
    )


def page(outcome: Outcome, folder: Path) -> str:
    return write_report(outcome, folder).read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_loads_no_resources(outcome: Outcome, tmp_path: Path) -> None:
    text = page(outcome, tmp_path)
    well_formed(text)
    assert "<script" not in text
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_the_page_names_real_and_simulated_parts(outcome: Outcome, tmp_path: Path) -> None:
    texts = " ".join(Page(page(outcome, tmp_path)).texts)
    assert "Real: API server 1.36.3, Kueue 0.19.2. Simulated: nodes and their GPUs (kwok)." in texts


def test_the_same_outcome_gives_the_same_bytes(outcome: Outcome, tmp_path: Path) -> None:
    first = write_report(outcome, tmp_path / "first").read_bytes()
    assert write_report(replace(outcome), tmp_path / "second").read_bytes() == first
    assert write_report(outcome, tmp_path / "first").read_bytes() == first


def test_every_number_of_the_summary_is_on_the_page(outcome: Outcome, tmp_path: Path) -> None:
    texts = Page(page(outcome, tmp_path)).texts
    for holding in SUMMARY.holdings:
        assert {str(holding.guaranteed), str(holding.limit), str(holding.used)} <= set(texts)
    for supply in SUMMARY.supply:
        assert {str(supply.nodes), str(supply.capacity), str(supply.used), supply.product} <= set(texts)
        promised = next(holding.guaranteed for holding in SUMMARY.holdings if holding.flavor == supply.flavor)
        assert str(supply.capacity - promised) in texts
    assert {"requests.memory", "237Gi", "258Gi", "prod-001", "rd-001"} <= set(texts)
    assert any("71 created" in text for text in texts)


def test_the_clusters_messages_are_shown_verbatim(outcome: Outcome, tmp_path: Path) -> None:
    text = page(outcome, tmp_path)
    assert CHECKS[0].seen not in text  # as markup it would be another page
    assert "refused: limits[nvidia.com/gpu] " in text
    assert CHECKS[0].seen in "".join(Page(text).texts)


SKIPPED = Check("a gang starts whole or not at all", "Volcano could not be built", holds=None)
FAILED = Check("a limit holds", "a pod with 9 is admitted", holds=False, message="no quota")


@pytest.mark.parametrize(
    ("checks", "title", "reasons"),
    [
        (CHECKS, "All 1 check passed", []),
        ((*CHECKS, SKIPPED), "1 of 2 checks passed, 1 not checked", ["1 not checked: Volcano could not be built"]),
        ((*CHECKS, FAILED), "1 of 2 checks passed, 1 failed", ["failed: a limit holds"]),
        ((), "0 of 0 checks passed", []),
    ],
)
def test_terminal_and_page_count_what_was_not_checked(
    outcome: Outcome, tmp_path: Path, checks: tuple[Check, ...], title: str, reasons: list[str]
) -> None:
    result = replace(outcome, checks=checks)
    texts = Page(page(result, tmp_path)).texts
    console = Output()
    with console.capture() as captured:
        show.outcome(console, result)
    assert title in texts
    assert {*reasons} <= {*texts}
    assert captured.get().rstrip().endswith("\n  ".join([title, *reasons]))
    assert [text for text in texts if "checks passed" in text.lower()] == ([title] if "checks" in title else [])


def test_next_steps_name_pending_workload_and_job(outcome: Outcome, tmp_path: Path) -> None:
    pending = replace(outcome, summary=replace(SUMMARY, pending=(("other", "x"), ("ml-research", "finetune"))))
    file = tmp_path / "job.yaml"
    assert next_steps(pending, tmp_path) == (
        "usage ml-research",
        "why ml-research/finetune",
        f"fit ml-research -f {file}",
    )
    job = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert (job["kind"], job["metadata"]["name"], job["metadata"]["namespace"]) == ("Job", "example", "ml-research")


def test_next_steps_name_a_pending_burst(outcome: Outcome, tmp_path: Path) -> None:
    pools = {
        "l4": pool("g6.12xlarge", 4, labels={"capacity": "reserved"}),
        "spot": pool("g6.12xlarge", 4, labels={"capacity": "spot"}),
    }
    gpus = {"l4": {"guaranteed": 12}, "spot": {"guaranteed": 8}}
    chat = server(flavor="l4", replicas=10, burst={"flavor": "spot", "max": 8})
    loaded = stack_of(stack(pools=pools, teams={"a": team(gpus=gpus, serving={"chat": chat})}))
    summary = replace(SUMMARY, pending=(("a", "chat-burst"),))
    result = replace(outcome, preview=replace(outcome.preview, stack=loaded), summary=summary)
    assert next_steps(result, tmp_path)[:2] == ("usage a", "why a/chat-burst")


def an_object(name: str, queue: str = "") -> KubernetesObject:
    labels: dict[str, Json] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return KubernetesObject({"kind": "Job", "metadata": {"name": name, "namespace": queue, "labels": labels}}, name)


def test_workloads_of_a_queue_follow_one_another_in_their_order() -> None:
    jobs = [an_object("first", "a"), an_object("second", "a"), an_object("other", "b"), an_object("third", "a")]
    wave = [an_object("claim"), *jobs, an_object("service")]
    names = [[item.name for item in turn] for turn in in_turns([[an_object("namespace")], wave])]
    assert names == [["namespace"], ["claim", "first", "other", "service"], ["second"], ["third"]]
