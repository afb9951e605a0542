"""CronJobs of the platform on the API server: their command with the real kubectl, as their account.

Their image is Alpine's, whose shell, awk and date are busybox, with fewer options than this machine's.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_tool import busybox
from researchers import Researcher
from starts import GUARD

TOOLS: Final = ("sh", "awk", "cat", "cut", "date", "grep", "sed", "sleep", "sort")  # that scripts use


class Scheduled:
    """A CronJob; `variables` are in place of its own."""

    def __init__(self, researcher: Researcher, folder: Path, namespace: str, name: str, **variables: str) -> None:
        job: Any = researcher.cluster.get("batch/v1", "CronJob", name, namespace)
        (self.container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        self.kubeconfig = folder / f"{name}.kubeconfig"
        config: Any = yaml.safe_load(researcher.kubeconfig.read_text(encoding="utf-8"))
        account = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"]
        config["users"][0]["user"] = {"token": researcher.cluster.token(namespace, account, seconds=3600)}
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.folder, self.variables = folder, variables
        self.tools = folder / "tools"
        self.tools.mkdir(exist_ok=True)
        programs = {**dict.fromkeys(TOOLS, busybox()), "kubectl": Path(shutil.which("kubectl") or "kubectl")}
        for tool, program in programs.items():
            (self.tools / tool).unlink(missing_ok=True)
            (self.tools / tool).symlink_to(program)

    def run(self) -> "subprocess.CompletedProcess[str]":
        given = {one["name"]: one["value"] for one in self.container["env"]} | self.variables
        own = {"PATH": str(self.tools), "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}
        shell, *words = self.container["command"]
        command = [str(self.tools / Path(shell).name), *words]
        return subprocess.run(command, env={**given, **own}, capture_output=True, text=True, check=False, timeout=GUARD)

    def __call__(self) -> str:
        done = self.run()
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def can(self, verb: str, resource: str, namespace: str) -> bool:
        resource, _, below = resource.partition("/")
        asked = ["auth", "can-i", verb, resource, f"--subresource={below}", "-n", namespace]
        words = ["kubectl", f"--kubeconfig={self.kubeconfig}", *asked]
        answer = subprocess.run(words, capture_output=True, text=True, check=False, timeout=GUARD).stdout.strip()
        assert answer in {"yes", "no"}
        return answer == "yes"
