"""A stack with people in every role, and the command on it."""

from dataclasses import dataclass
from pathlib import Path

from builders import Data, stack, team
from cli_builders import Project
from typer.testing import CliRunner, Result

from gpu_tenancy.cli.main import app

OWN, SIBLING, OTHER = "test-people-vision", "test-people-speech", "test-people-web"
"""Two teams of cohort research, and one of cohort product."""
PEOPLE = {
    "admin": "group:platform-admins",
    "auditor": "user:auditor@example.com",
    "lead of the cohort": "group:research-leads",
    "researcher": "user:ann@example.com",
    "robot": "serviceaccount:default/ci-vision",
    "viewer of all": "group:everybody-in-ml",
    "stranger": "user:eve@example.com",
}


def sections(**more: object) -> Data:
    """A tree of cohorts with three teams, and people in every role."""
    gpus = {"h100": {"guaranteed": 4}}
    return stack(
        people={"names": {"ann": PEOPLE["researcher"]}, "admins": [PEOPLE["admin"]], "auditors": [PEOPLE["auditor"]]},
        cohorts={
            "org": {"members": {"viewers": [PEOPLE["viewer of all"]]}},
            "research": {"parent": "org", "members": {"leads": [PEOPLE["lead of the cohort"]]}},
            "product": {"parent": "org"},
        },
        teams={
            OWN: team(cohort="research", gpus=gpus, members={"researchers": ["ann", PEOPLE["robot"]]}),
            SIBLING: team(cohort="research", gpus=gpus),
            OTHER: team(cohort="product", gpus=gpus),
        },
        **more,
    )


@dataclass(frozen=True)
class Desk:
    """The commands about people in a project with one stack, `people`, and perhaps a cluster."""

    project: Project
    kubeconfig: Path | None = None

    @classmethod
    def at(cls, folder: Path, kubeconfig: Path | None = None, **more: object) -> "Desk":
        project = Project.at(folder)
        project.write("people", sections(**more))
        return cls(project, kubeconfig)

    def run(self, *arguments: object, kubeconfig: Path | None = None) -> Result:
        given = [*map(str, arguments), "--project", str(self.project.folder)]
        if file := kubeconfig or self.kubeconfig:
            given += ["--kubeconfig", str(file)]
        return CliRunner().invoke(app, given)

    def lines(self, *arguments: object) -> list[str]:
        """What a command prints, with one space between columns."""
        result = self.run(*arguments)
        assert (result.stderr, result.exit_code) == ("", 0)
        return [" ".join(line.split()) for line in result.stdout.splitlines()]

    def error(self, *arguments: object) -> str:
        """The error of a command."""
        result = self.run(*arguments)
        assert result.exit_code == 1, result.stdout
        return result.stderr.strip()
