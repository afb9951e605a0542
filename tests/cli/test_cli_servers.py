"""What people and pipelines see of servers before a deployment."""

import json
from pathlib import Path

import pytest
from builders import pool, server, team
from cli_builders import Project, small, tenancy


def _previewed(project: Project, out: Path, sections: dict[str, object]) -> tuple[str, str, str]:
    """What a preview prints, its page, and its comment."""
    project.write("servers", sections)
    seen = tenancy("preview", "servers", "--out", out, project=project.folder)
    assert seen.exit_code == 0, seen.output
    page, comment = ((out / f"report.{end}").read_text(encoding="utf-8") for end in ("html", "md"))
    return " ".join(seen.stdout.split()), page, comment


def test_warnings_about_servers_are_in_the_output_the_page_and_the_comment(project: Project, tmp_path: Path) -> None:
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
def test_the_packs_accept_a_burst(project: Project) -> None:
    project.write("bursting", small(**BURSTING))
    seen = tenancy("preview", "bursting", "--policy", "workloads", "--policy", "clouds", project=project.folder)
    assert seen.exit_code == 0, seen.output
    assert "no mandatory violations" in seen.stdout
    assert "advisory" not in seen.stdout
