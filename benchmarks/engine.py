"""`pulumi up` and `tenancy up`, first and again, beside a flat Pulumi program that registers the same objects.

`python -m benchmarks.engine --teams 100` starts an API server of its own for each row, and uses a file backend.
`pulumi up` writes the state at each step, unless PULUMI_EXPERIMENTAL and PULUMI_SKIP_CHECKPOINTS are `true`. It needs
the Pulumi CLI on the PATH and its plugin for Kubernetes. Without them nothing is measured.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from benchmarks.measuring import Watch, arguments, write
from benchmarks.projects import NAME, platform_in, prepared, project_of
from gpu_tenancy.deploy.pulumi_cli import PulumiCli, find_pulumi
from gpu_tenancy.engine.project import Preview, preview

FLAT = """
import json
from pathlib import Path

import pulumi
from pulumi_kubernetes import Provider

objects, kubeconfig = json.loads((Path(__file__).parent / "objects.json").read_text())
provider = Provider("cluster", kubeconfig=kubeconfig)
namespaces = {}
for number, (type_, manifest) in enumerate(objects):
    namespace = namespaces.get(manifest["metadata"].get("namespace"))
    options = pulumi.ResourceOptions(provider=provider, depends_on=[namespace] if namespace else [])
    made = pulumi.CustomResource(type_, f"object-{number}", manifest, options)
    if manifest["kind"] == "Namespace":
        namespaces[manifest["metadata"]["name"]] = made
"""
"""A program without components, and without any dependency but that of an object on its namespace."""


def _on_a_platform(folder: Path, project: Path, made: Preview | None = None) -> tuple[Preview, list[Watch]]:
    program = find_pulumi() or "pulumi"
    with platform_in(folder / "platform") as platform:
        declared = made or preview(NAME, project, onto=platform.kubeconfig)
        if made:
            # Namespaces first: the flat program only knows those that it has registered already.
            ordered = sorted(made.objects, key=lambda item: item.manifest["kind"] != "Namespace")
            objects = [(f"kubernetes:{_token(item.manifest)}", item.manifest) for item in ordered]
            (project / "objects.json").write_text(json.dumps([objects, str(platform.kubeconfig)]), encoding="utf-8")
        with prepared(platform, declared):
            cli = PulumiCli(program, folder / "pulumi", project)
            return declared, [Watch.of(lambda: cli.up(NAME, platform.kubeconfig)) for _ in range(2)]


def _tenancy_up(folder: Path, teams: int) -> list[Watch]:
    """Both runs of `tenancy up`."""
    project = project_of(folder / "project", teams)
    with platform_in(folder / "platform") as platform:
        file = project / "stacks" / f"Pulumi.{NAME}.yaml"
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        content["config"]["gpu-tenancy:cluster"]["kubeconfig"] = str(platform.kubeconfig)
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        backend = folder / "backend"
        backend.mkdir()
        own = {"PULUMI_BACKEND_URL": backend.as_uri(), "PULUMI_CONFIG_PASSPHRASE": "", "GPU_TENANCY_CORES": "1"}
        command = [sys.executable, "-m", "gpu_tenancy", "up", NAME, "--yes"]

        def up() -> None:
            ended = subprocess.run(
                command, cwd=project, env={**os.environ, **own}, check=False, capture_output=True, text=True
            )
            if ended.returncode:
                sys.exit(f"{ended.stdout}{ended.stderr}`{' '.join(command[1:])}` failed; nothing is written")

        with prepared(platform, preview(NAME, project, onto=platform.kubeconfig)):
            return [Watch.of(up) for _ in range(2)]


def _token(manifest: Any) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    return f"{group.removesuffix('.k8s.io') or 'core'}/{version}:{manifest['kind']}"


def measure(teams: int) -> dict[str, dict[str, float]]:
    """Seconds of each run and of its processors."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        rows: dict[str, list[Watch]] = {}
        declared, rows["pulumi up"] = _on_a_platform(root / "1", project_of(root / "ours", teams))
        _, rows["flat program"] = _on_a_platform(root / "2", project_of(root / "flat", teams, FLAT), declared)
        rows["tenancy up"] = _tenancy_up(root / "3", teams)
        return {
            name: {
                "objects": len(declared.objects),
                "first s": round(first.wall, 1),
                "first cpu s": round(first.cpu, 1),
                "again s": round(again.wall, 1),
                "again cpu s": round(again.cpu, 1),
            }
            for name, (first, again) in rows.items()
        }


def main() -> None:
    """Prints a row for each program, and how many times the flat one's time this one takes."""
    parser = arguments(__doc__, teams=100)
    given = parser.parse_args()
    if not find_pulumi():
        print("not measured: pulumi is not on the PATH")
        return
    measured = measure(given.teams)
    rows = dict(measured)
    print(f"{given.teams} teams     " + "  ".join(f"{key:>11}" for key in next(iter(rows.values()))))
    for name, row in rows.items():
        print(f"{name:12}  " + "  ".join(f"{value:11.1f}" for value in row.values()))
    flat = rows.pop("flat program")
    for name, row in rows.items():
        ratios = ", ".join(f"{key.removesuffix(' s')} {row[key] / flat[key]:.2f}" for key in row if key != "objects")
        print(f"{name}: {ratios} times the flat program")
    write(given.json, {"teams": given.teams, **measured})


if __name__ == "__main__":
    main()
