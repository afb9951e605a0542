"""Other programs that render and apply the objects of the same stacks, each only if it is on this machine.

`python -m benchmarks.peers` prints a table for 10 and 100 teams; `--json FILE` writes the numbers. Each renderer is a
whole command with its imports, and has to write as many objects as `tenancy preview`. Those that apply have an empty
API server with definitions and nodes, and wait for nothing.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import yaml

from benchmarks.measuring import Watch, arguments, write
from benchmarks.projects import NAME, platform_in, prepared, project_of
from gpu_tenancy.engine.objects import KubernetesObject, waves
from gpu_tenancy.engine.project import Preview, preview

SIZES: Final = (10, 100)
TEAM: Final = "team-0"
"""The team of the pattern: peers write its objects once for each team."""
_CHART: Final = {"apiVersion": "v2", "name": "benchmark", "version": "0.1.0"}
_CDK8S: Final = """
import json
from pathlib import Path

from cdk8s import ApiObject, App, Chart, JsonPatch

shared, pattern, teams = json.loads((Path(__file__).parent / "objects.json").read_text())
app = App()
chart = Chart(app, "benchmark")


def declare(name, manifest):
    declared = ApiObject(chart, name, api_version=manifest["apiVersion"], kind=manifest["kind"])
    for key, value in manifest.items():
        declared.add_json_patch(JsonPatch.add(f"/{key}", value))


for number, manifest in enumerate(shared):
    declare(f"shared-{number}", manifest)
for team in range(teams):
    for number, manifest in enumerate(json.loads(pattern.replace("TEAM", str(team)))):
        declare(f"team-{team}-{number}", manifest)
print(app.synth_yaml())
"""

Row: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The objects of a stack with one team, for peers that write them for any number of teams.

    Attributes:
        team: manifests of one team as JSON, with `TEAM` in place of its number.
    """

    shared: Sequence[Mapping[str, Any]]
    team: str
    teams: int

    @classmethod
    def of(cls, one: Sequence[KubernetesObject], teams: int) -> "Pattern":
        """The pattern from the objects of a stack with one team."""
        own = [item.manifest for item in one if TEAM in (item.namespace, item.name)]
        text = json.dumps(own)
        for name in ("team", "owner", "cc"):
            text = text.replace(f"{name}-0", f"{name}-TEAM")
        return cls([item.manifest for item in one if item.manifest not in own], text, teams)

    @property
    def objects(self) -> int:
        """Number of objects that a peer has to write."""
        return len(self.shared) + self.teams * len(json.loads(self.team))


def helm_template(pattern: Pattern, folder: Path) -> list[str] | None:
    """A chart whose template repeats the team's objects."""
    helm = shutil.which("helm")
    if helm is None:
        return None
    (folder / "templates").mkdir()
    (folder / "Chart.yaml").write_text(yaml.safe_dump(_CHART), encoding="utf-8")
    (folder / "values.yaml").write_text(yaml.safe_dump({"teams": list(range(pattern.teams))}), encoding="utf-8")
    own = json.dumps(json.loads(pattern.team)).replace("TEAM", "{{ . }}")
    blocks = _documents([*json.loads(own)])
    (folder / "templates" / "teams.yaml").write_text(f"{{{{ range .Values.teams }}}}\n{blocks}\n{{{{ end }}}}\n")
    (folder / "templates" / "shared.yaml").write_text("{{ .Files.Get `shared.txt` }}\n")
    (folder / "shared.txt").write_text(_documents(pattern.shared), encoding="utf-8")
    return [helm, "template", "benchmark", str(folder)]


def kubectl_kustomize(pattern: Pattern, folder: Path) -> list[str] | None:
    """A kustomization of files that have the objects of all teams."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return None
    names = ["shared.yaml"]
    (folder / names[0]).write_text(_documents(pattern.shared), encoding="utf-8")
    for team in range(pattern.teams):
        names.append(f"team-{team}.yaml")
        (folder / names[-1]).write_text(_documents(json.loads(pattern.team.replace("TEAM", str(team)))))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": names}), encoding="utf-8")
    return [kubectl, "kustomize", str(folder)]


def cdk8s(pattern: Pattern, folder: Path) -> list[str] | None:
    """A program in Python; cdk8s runs its own part in Node.js."""
    if find_spec("cdk8s") is None or shutil.which("node") is None:
        return None
    (folder / "objects.json").write_text(json.dumps([pattern.shared, pattern.team, pattern.teams]), encoding="utf-8")
    (folder / "main.py").write_text(_CDK8S, encoding="utf-8")
    return [sys.executable, str(folder / "main.py")]


RENDERERS: Final[Mapping[str, Callable[[Pattern, Path], list[str] | None]]] = {
    "helm template": helm_template,
    "kubectl kustomize": kubectl_kustomize,
    "cdk8s": cdk8s,
}


def _documents(manifests: Sequence[Mapping[str, Any]]) -> str:
    return "\n---\n".join(json.dumps(manifest) for manifest in manifests)


def _run(command: Sequence[str], folder: Path) -> tuple[Row, str]:
    """Seconds of a command on the wall and of its processors, and its output."""
    before = Watch.now()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    taken = Watch.now().since(before)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:2])}: {done.stderr[-2000:]}")
    return {"s": round(taken.wall, 2), "cpu s": round(taken.cpu, 2)}, done.stdout


def rendering(teams: int, folder: Path) -> dict[str, Row | None]:
    """Seconds of `tenancy preview` and of each peer; None for a program that is not here.

    Raises:
        SystemExit: a program failed, or wrote another number of objects.
    """
    ours = project_of(folder / "ours", teams)
    one = preview(NAME, project_of(folder / "one", 1)).objects
    pattern = Pattern.of(one, teams)
    command = [str(Path(sys.executable).with_name("tenancy")), "preview", NAME, "--out", str(folder / "out")]
    rows: dict[str, Row | None] = {"tenancy preview": _run(command, ours)[0]}
    for name, prepare in RENDERERS.items():
        (place := folder / name.replace(" ", "-")).mkdir()
        command = prepare(pattern, place)
        rows[name] = None
        if command:
            rows[name], text = _run(command, place)
            written = sum(1 for line in text.splitlines() if line.startswith(('{"apiVersion"', "apiVersion:")))
            if written != pattern.objects:
                raise SystemExit(f"{name}: wrote {written} objects instead of {pattern.objects}")
    return rows


def applying(teams: int, folder: Path) -> dict[str, Row | None]:
    """Seconds of `kubectl apply --server-side`, first and again; `benchmarks.apply` has ours and the floor."""
    kubectl = shutil.which("kubectl")
    names = {"kubectl apply": [], "kubectl apply --validate=false": ["--validate=false"]}
    if kubectl is None:
        return dict.fromkeys(names)
    project = project_of(folder / "apply", teams)
    rows: dict[str, Row | None] = {}
    for name, options in names.items():
        with platform_in(folder / name.replace(" ", "-").replace("=", "-")) as platform:
            declared = preview(NAME, project, onto=platform.kubeconfig)
            file = _in_order(declared, folder / "objects.json")
            with prepared(platform, declared):
                apply = [kubectl, "apply", "--server-side", "--kubeconfig", str(platform.kubeconfig), *options]
                run = partial(_run, [*apply, "-f", str(file)], folder)
                rows[name] = {f"{turn} {key}": value for turn in ("first", "again") for key, value in run()[0].items()}
    return rows


def _in_order(declared: Preview, file: Path) -> Path:
    items = [item.manifest for wave in waves(declared.objects) for item in wave]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    return file


def main() -> None:
    """Prints a row for each program and size."""
    given = arguments(__doc__).parse_args()
    measured: dict[int, dict[str, Row | None]] = {}
    for teams in [given.teams] if given.teams else SIZES:
        with TemporaryDirectory() as folder:
            measured[teams] = rendering(teams, Path(folder)) | applying(teams, Path(folder))
        for name, row in measured[teams].items():
            cells = "  ".join(f"{key} {value:.2f}" for key, value in row.items()) if row else "not here"
            print(f"{teams:5} teams  {name:32}  {cells}", flush=True)
    write(given.json, measured)


if __name__ == "__main__":
    main()
