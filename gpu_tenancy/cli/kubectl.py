"""kubectl as a command runs it: for shells in pods and forwarded ports, which the light client does not have."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import patient
from gpu_tenancy.cluster.contexts import chosen, uses_embedded
from gpu_tenancy.jobs.gpu_use import QUERY
from gpu_tenancy.kube.errors import NO_CONTAINERS, SIMULATED

_PATIENCE: Final = 20.0
"""Seconds for the answer of nvidia-smi in a pod."""
_LOGGED: Final = re.compile(r"^[IWEF]\d{4} [\d:.]+ .*\n?", re.MULTILINE)
"""A line in which kubectl logs its own work: https://github.com/kubernetes/klog/blob/v2.130.1/klog.go"""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with a kubeconfig, in a namespace."""

    kubeconfig: Path
    words: tuple[str, ...]

    @classmethod
    def of(cls, kubeconfig: Path | None, context: str | None, namespace: str, *, embedded: bool) -> "Kubectl":
        """With the cluster that a command asks.

        Raises:
            ConsoleError: there is no kubectl.
        """
        if not shutil.which("kubectl"):
            raise ConsoleError("kubectl not found", "install it: https://kubernetes.io/docs/tasks/tools/")
        local = embedded or (not (kubeconfig or context) and uses_embedded())
        file, used = chosen(kubeconfig, context, embedded=local)
        return cls(file, ("kubectl", *(("--context", used) if used else ()), "--namespace", namespace))

    def nvidia_smi(self, pod: str) -> str:
        """What nvidia-smi says of the GPUs of a pod.

        Raises:
            ConsoleError: the pod does not tell.
        """
        return self.run("exec", pod, "--", *QUERY, fix="see `tenancy logs`", patience=patient(_PATIENCE))

    def run(self, *words: str, fix: str, shown: bool = False, patience: float | None = None) -> str:
        """What it prints; nothing if it is shown.

        Args:
            words: after the options for the cluster.
            fix: what to do if it fails.
            shown: whether it prints to the terminal itself.
            patience: seconds until it is ended; None for any time.

        Raises:
            ConsoleError: it fails, or takes too long.
        """
        every = [*self.words, *words]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        try:
            done = subprocess.run(
                every, env=environment, capture_output=not shown, text=True, check=False, timeout=patience
            )
        except subprocess.TimeoutExpired as error:
            raise ConsoleError(f"`{' '.join(every)}`: no answer within {patience:g} s", fix) from error
        if done.returncode:
            if not shown and SIMULATED in done.stderr:
                raise ConsoleError(f"`{' '.join(every)}` failed: {NO_CONTAINERS}", "use a cluster with real nodes")
            said = "" if shown else _LOGGED.sub("", done.stderr).strip()
            raise ConsoleError(f"`{' '.join(every)}` failed{said and f': {said}'}", fix)
        return "" if shown else done.stdout.strip()
