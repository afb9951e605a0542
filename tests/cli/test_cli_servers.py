"""What people and pipelines see of servers before a deployment."""

from pathlib import Path

from builders import server
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
