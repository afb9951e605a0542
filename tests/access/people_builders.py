"""A stack with people in every role, and the command on it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builders import Data, stack, team
from cli_builders import Project
from typer.testing import CliRunner, Result

from gpu_tenancy.cli.main import app
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference

RBAC = "rbac.authorization.k8s.io/v1"

# Two teams of cohort research, and one of cohort product.
OWN, SIBLING, OTHER = "test-people-vision", "test-people-speech", "test-people-web"
PEOPLE = {
    "admin": "group:platform-admins", "auditor": "user:auditor@example.com",
    "lead of the cohort": "group:research-leads", "researcher": "user:ann@example.com",
    "robot": "serviceaccount:default/ci-vision", "viewer of all": "group:everybody-in-ml",
    "stranger": "user:eve@example.com",
}  # fmt: skip


def sections(**more: object) -> Data:
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
    """The commands about people in a project with one stack, `people`, and optionally a cluster."""

    project: Project
    kubeconfig: Path | None = None

    @classmethod
    @contextmanager
    def deployed(
        cls, cluster: Cluster, folder: Path, kubeconfig: Path, *others: Manifest, **more: object
    ) -> Generator["Desk"]:
        """A project whose roles and bindings are in a cluster, with the namespaces of its teams and other objects."""
        made = cls.at(folder, kubeconfig, **more)
        declared = preview("people", made.project.folder).objects
        roles = [one.manifest for one in declared if one.api_version == RBAC]
        assert {str(role["kind"]) for role in roles} == {"ClusterRole", "ClusterRoleBinding", "RoleBinding"}
        ours = [*others, *roles]
        for name in (OWN, SIBLING, OTHER):
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for manifest in ours:
            cluster.apply(manifest)
        yield made
        for manifest in ours:
            cluster.delete(Reference.of(manifest), wait=0)

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
        result = self.run(*arguments)
        assert (result.stderr, result.exit_code) == ("", 0)
        return [" ".join(line.split()) for line in result.stdout.splitlines()]

    def error(self, *arguments: object) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 1, result.stdout
        return result.stderr.strip()
