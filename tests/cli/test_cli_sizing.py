"""`tenancy size`, warnings about servers, and CPUs and memory in previews and `whatif`."""

import json
from pathlib import Path

import pytest
import yaml
from builders import Data, pool, server, team
from cli_builders import Project, small, tenancy
from cpu_stacks import CPUS, MIXED
from repository import ROOT

LOAD = ("--rate", "10000/s", "--per-replica", "220/s", "--latency", "100ms")


def lines(*words: str) -> list[str]:
    done = tenancy("size", *words, project=ROOT)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_without_a_stack_replicas_and_gpus_are_calculated() -> None:
    assert lines(*LOAD, "--gpus", "2", "--surge", "3") == [
        "replicas: 10,000/s ÷ 220/s = 46 replicas",
        "a replica: 220/s within 100ms by your measurement, at most 22 requests at a time on average",
        "guaranteed: 92 GPUs, limit: 98",
        "nodes, prices and the headroom for a lost node: specify a stack",
    ]


def test_counts_missing_nodes_beside_guarantees() -> None:
    replicas, _, promised, cost, hardware = lines("local", *LOAD, "--flavor", "l4", "--surge", "2")
    assert replicas.endswith("+ 4 for the loss of a node = 50")
    assert promised == "guaranteed: 50 l4 GPUs, limit: 52"
    # 4.6016 US dollars an hour for four L4s, 730 hours.
    assert cost == "cost: $41,990 a month, $43,669 for the limit"
    assert hardware.endswith("54 are guaranteed to others: 42 GPUs are missing (11 nodes with 4 GPUs)")


def test_a_server_of_a_stack_has_its_own_guarantee() -> None:
    shown = lines("local", "ml-serving/model-server", *LOAD)
    assert shown[-1] == "hardware: 64 l4 GPUs at most, of which 4 are guaranteed to others: enough"


def test_options_replace_parts_of_server_load(tmp_path: Path) -> None:
    project = Project.at(tmp_path)
    sections = small()
    load = {"rate": "200/s", "perReplica": "100/s"}
    sections["teams"]["vision"]["serving"] = {"api": server(replicas=3, load=load)}
    project.write("good", sections)
    words = ("size", "good", "vision/api", "-o", "json")
    first, more = (json.loads(tenancy(*words, *own, project=tmp_path).stdout) for own in ((), ("--rate", "900/s")))
    assert first["replicas"] == {"needed": 2, "withHeadroom": 3, "peak": 3}
    assert (more["rate"], more["replicas"]["needed"]) == (900, 9)
    assert more["hardware"] == {"maximum": 8, "guaranteedToOthers": 0, "missing": 2}
    assert more["monthly"] == pytest.approx(10 * 6.88 * 730, rel=0.1)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--rate", "10/s"], "--rate or --per-replica is missing; measure one replica under load"),
        (["--rate", "10", "--per-replica", "1/s"], "--rate 10: is not a rate above 0; set requests per second"),
        (["--rate", "10/s", "--per-replica", "0/s"], "--per-replica 0/s: is not a rate above 0"),
        ([*LOAD[:4], "--latency", "100"], "--latency 100: is not a duration; set one such as 100ms"),
        (["local", *LOAD], "is measured on one kind of GPU; specify one of: a100, h100, l4"),
        (["local", *LOAD, "--flavor", "l40"], "--flavor l40: unknown flavor with GPUs; did you mean 'l4'?"),
        (["local", "ml-serving/model"], "unknown server 'ml-serving/model'; did you mean 'ml-serving/model-server'?"),
        (["local", "ml-production/rank-server"], "--rate or --per-replica is missing; measure"),
    ],
)
def test_what_cannot_be_calculated_is_refused_with_its_fix(words: list[str], error: str) -> None:
    done = tenancy("size", *words, project=ROOT)
    assert done.exit_code == (2 if "missing" in error or "one kind of" in error else 1)
    assert error in " ".join(done.stderr.split())


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


def test_the_size_of_a_server_counts_base_and_burst(project: Project) -> None:
    project.write("bursting", small(**BURSTING))
    done = tenancy("size", "bursting", "vision/api", project=project.folder)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].endswith("= 14 replicas, + 4 for the loss of a node = 18")
    assert "guaranteed: 10 l4 GPUs, limit: 10" in lines
    assert lines[-2].startswith("burst: 8 of the 18 replicas on 8 l4-spot GPUs, ")
    assert lines[-1] == "without the burst: 10 replicas = 2,000/s of the load of 2,800/s"
    found = json.loads(tenancy("size", "bursting", "vision/api", "-o", "json", project=project.folder).stdout)
    assert found["burst"] == {"flavor": "l4-spot", "replicas": 8, "gpus": 8, "rateWithout": 2000}
    assert found["gpus"] == {"guaranteed": 10, "limit": 10}
    (other,) = tenancy("size", "bursting", "vision/api-burst", project=project.folder).stderr.splitlines()
    assert "unknown server 'vision/api-burst'" in other


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
