"""Warnings about servers, and CPUs and memory in previews and `whatif`."""

import json
from pathlib import Path

import pytest
import yaml
from builders import Data, pool, server, team
from cli_builders import Project, small, tenancy
from cpu_stacks import CPUS, MIXED


def _previewed(project: Project, out: Path, sections: dict[str, object]) -> tuple[str, str, str]:
    """The output of a preview, its page, and its comment."""
    project.write("servers", sections)
    seen = tenancy("preview", "servers", "--out", out, project=project.folder)
    assert seen.exit_code == 0, seen.output
    page, comment = ((out / f"report.{end}").read_text(encoding="utf-8") for end in ("html", "md"))
    return " ".join(seen.stdout.split()), page, comment


def test_server_warnings_are_in_output_page_and_comment(project: Project, tmp_path: Path) -> None:
    sections = small()
    sections["teams"]["vision"]["serving"] = {"api": server(replicas=2, gpus=2)}
    printed, page, comment = _previewed(project, tmp_path, sections)
    warning = "teams.vision.serving.api: a rollout has 1 of 2 replicas: 4 nvidia.com/gpu of flavor h100 are guaranteed"
    assert warning in printed
    assert warning in page
    assert f"- {warning}" in comment


BURSTING = {
    "pools": {
        "cpu": pool("m7i.8xlarge", 1),
        "l4": pool("g6.12xlarge", 4, labels={"capacity": "reserved"}),
        "l4-spot": pool("g6.12xlarge", {"min": 0, "max": 4}, labels={"capacity": "spot"}, capacity="spot"),
    },
    "teams": {
        "vision": team(
            priority="high",
            gpus={"l4": {"guaranteed": 12}, "l4-spot": {"guaranteed": 0, "limit": 8}},
            serving={
                "api": server(
                    flavor="l4",
                    replicas=10,
                    burst={"flavor": "l4-spot", "max": 8},
                    load={"rate": "2800/s", "perReplica": "200/s"},
                )
            },
        )
    },
}


@pytest.mark.process
@pytest.mark.slow
def test_the_packs_accept_a_burst(project: Project) -> None:
    project.write("bursting", small(**BURSTING))
    seen = tenancy("preview", "bursting", "--policy", "workloads", "--policy", "clouds", project=project.folder)
    assert seen.exit_code == 0, seen.output
    assert "no mandatory violations" in seen.stdout
    assert "advisory" not in seen.stdout


@pytest.fixture
def project(project: Project) -> Project:
    project.write("cpus", CPUS)
    project.write("mixed", MIXED)
    return project


def run(project: Project, *arguments: object) -> str:
    done = tenancy(*arguments, project=project.folder)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(text: str, start: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.startswith(start)]


def test_preview_and_report_show_cpus_and_memory_of_each_team(project: Project, tmp_path: Path) -> None:
    text = run(project, "preview", "cpus", "--out", tmp_path / "out")
    assert "CPUs and memory per team" in text
    shown = " ".join(rows(text, "etl ")[0])
    assert shown == "etl general CPUs Kueue 40 128Gi 64 to 80 80 80 immediately"
    assert rows(text, "web ")[1] == ["web", "general", "memory", "Kueue", "64Gi", "64Gi", "64Gi", "64Gi", "immediately"]
    assert "31 CPUs, 116Gi memory" in text
    assert "GPU" not in text.partition("CPUs and memory per team")[2]
    comment = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "| guaranteed | **60** of 124 | CPUs, always available |" in comment
    assert "| **etl** | general memory | " in comment
    assert "CPUs and memory available to each team" in comment
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "CPUs and memory always available" in page
    assert "price per CPU-hour" in page
    assert "etl, general CPUs: 40 guaranteed; limit 80 of 124" in page
    assert "None" not in page.partition("<main>")[2]


def test_a_mixed_tree_shows_gpus_and_cpus(project: Project, tmp_path: Path) -> None:
    text = run(project, "preview", "mixed", "--out", tmp_path / "out")
    assert "GPUs, CPUs and memory per team" in text
    assert rows(text, "vision ") == [
        ["vision", "h100", "Kueue", "8", "191", "CPUs", "and", "1911Gi", "16", "16", "16", "immediately"]
    ]
    assert len(rows(text, "etl ")) == 2
    comment = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "| guaranteed | **8** of 16 | GPUs, always available |" in comment


def test_whatif_shows_cpus_and_memory_of_each_team(project: Project, tmp_path: Path) -> None:
    text = run(project, "whatif", "cpus", "--last", "etl", "--out", tmp_path)
    assert rows(text, "etl ")[0][:8] == ["etl", "general", "CPUs", "40", "80", "64", "24", "16"]
    assert rows(text, "web ")[1][:8] == ["web", "general", "memory", "64Gi", "64Gi", "64Gi", "0", "0"]
    page = (tmp_path / "whatif.html").read_text(encoding="utf-8")
    assert "124 of 124 CPUs and 268.8Gi of 464Gi memory in use, 1 team with pending jobs" in page
    assert "etl uses 64 (24 borrowed, 16 pending)" in page
    assert "or of CPUs with their share of memory" in page
    mixed = run(project, "whatif", "mixed")
    assert rows(mixed, "vision ")[0][:7] == ["vision", "h100", "8", "16", "16", "8", "0"]
    assert len(rows(mixed, "etl ")) == 2


def test_a_job_on_cpus_runs_with_its_cpus_and_memory(project: Project, tmp_path: Path) -> None:
    job: Data = {"gpus": 0, "flavor": "general", "cpu": 10, "memory": "16Gi"}
    file = tmp_path / "jobs.yaml"
    submitted = [{"name": "big", "team": "etl", "pods": 4, **job}, {"name": "late", "team": "web", "pods": 8, **job}]
    file.write_text(yaml.safe_dump({"steps": [{"submit": submitted}]}), encoding="utf-8")
    text = run(project, "whatif", "cpus", "--workloads", file, "--out", tmp_path)
    assert "big admitted: etl uses 40 general CPUs" in text
    assert "late (web) pending: " in text
    assert rows(text, "web ")[0][:8] == ["web", "general", "CPUs", "20", "60", "0", "0", "80"]
    page = (tmp_path / "whatif.html").read_text(encoding="utf-8")
    assert "40 CPUs, 64Gi memory of general" in page
    seen = json.loads(run(project, "whatif", "cpus", "--workloads", file, "--json"))
    (step,) = seen["steps"]
    moment = step["foreseen"]
    assert moment["running"][0]["amounts"] == {"cpu": 40_000, "memory": 64 * 2**30}
