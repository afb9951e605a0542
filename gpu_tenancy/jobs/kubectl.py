"""kubectl as a command runs it, for shells in pods and forwarded ports; what the GPUs of pods do.

The light client has neither. nvidia-smi in a container sees its own GPUs only.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.base.progress import patient
from gpu_tenancy.base.quantity import MEMORY, amount_text, gpus
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import Manifest, name_of, requests
from gpu_tenancy.kube.errors import NO_CONTAINERS, SIMULATED

QUERY: Final = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")
"""Percent of the last second in which a kernel ran, and MiB: https://docs.nvidia.com/deploy/nvidia-smi/index.html."""
_MIB: Final = 2**20
_AT_ONCE: Final = 8
_REASONS: Final = (
    ("(Forbidden)", "you may not exec into them"),
    ("executable file not found", "their image has no nvidia-smi"),
    ("no answer within", "no answer in time"),
)
"""Why a pod does not tell, by a part of what kubectl or a container runtime prints."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Of one or several GPUs.

    Attributes:
        percent: of each GPU, how long a kernel ran.
        used: memory of all of them in bytes.
        memory: that they have.
    """

    percent: tuple[int, ...]
    used: int
    memory: int

    @property
    def busy(self) -> str:
        """The mean, and the least busy GPU if that differs much: `81 %, one 0 %`."""
        mean, least = sum(self.percent) / len(self.percent), min(self.percent)
        return f"{mean:.0f} %" + (f", one {least} %" if least < mean / 2 else "")

    @property
    def filled(self) -> str:
        """Memory in use."""
        return f"{amount_text(MEMORY, self.used)} of {amount_text(MEMORY, self.memory)}"


def read_gpu_use(text: str) -> GpuUse | None:
    """What nvidia-smi printed for `QUERY`; None if a number is not available, as for MIG partitions."""
    try:
        rows = [tuple(int(cell) for cell in line.split(",")) for line in text.splitlines() if line.strip()]
        percent, used, memory = zip(*rows, strict=True)
    except ValueError:
        return None
    return GpuUse(percent, sum(used) * _MIB, sum(memory) * _MIB)


@dataclass(frozen=True, slots=True)
class Answers:
    """What pods say of their GPUs.

    Attributes:
        use: by the name of the pod; without pods that do not tell.
        notes: how many do not tell, and why.
    """

    use: Mapping[str, GpuUse] = field(default_factory=dict[str, GpuUse])
    notes: tuple[str, ...] = ()


def gpu_use(pods: Iterable[Manifest], run: Callable[[str], str]) -> Answers:
    """What the GPUs of running pods do; `run` prints the answer of `QUERY` in the pod with a name."""
    asked = [
        name_of(pod)
        for pod in pods
        if text_at(pod, "status", "phase") == "Running" and gpus(requests(map_at(pod, "spec")))
    ]

    def ask(name: str) -> GpuUse | str:
        try:
            return read_gpu_use(run(name)) or "nvidia-smi has no number, as for MIG partitions"
        except ConsoleError as error:
            text = str(error)
            other = text.partition("` failed: ")[2] or text
            return next((reason for part, reason in _REASONS if part in text), other)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = dict(zip(asked, threads.map(ask, asked), strict=True))
    reasons = Counter(answer for answer in answers.values() if isinstance(answer, str))
    return Answers(
        {name: answer for name, answer in answers.items() if isinstance(answer, GpuUse)},
        tuple(f"GPU use of {plural(count, 'pod')} unknown: {reason}" for reason, count in reasons.items()),
    )


def together(use: Mapping[str, GpuUse], names: Iterable[str]) -> GpuUse | None:
    """The GPUs of several pods; None if none of them tells."""
    known = [use[name] for name in names if name in use]
    if not known:
        return None
    percent = tuple(one for each in known for one in each.percent)
    return GpuUse(percent, sum(each.used for each in known), sum(each.memory for each in known))


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
        """With the cluster that a command asks. Raises ConsoleError if there is no kubectl."""
        if not shutil.which("kubectl"):
            raise ConsoleError("kubectl not found", "install it: https://kubernetes.io/docs/tasks/tools/")
        from gpu_tenancy.cluster.contexts import chosen, uses_embedded  # noqa: PLC0415 - it loads the schema of stacks

        local = embedded or (not (kubeconfig or context) and uses_embedded())
        file, used = chosen(kubeconfig, context, embedded=local)
        return cls(file, ("kubectl", *(("--context", used) if used else ()), "--namespace", namespace))

    def nvidia_smi(self, pod: str) -> str:
        """What nvidia-smi says of the GPUs of a pod. Raises ConsoleError if the pod does not tell."""
        return self.run("exec", pod, "--", *QUERY, fix="see `tenancy logs`", patience=patient(_PATIENCE))

    def run(self, *words: str, fix: str, shown: bool = False, patience: float | None = None) -> str:
        """The output of kubectl with some words after the options for the cluster; nothing if it is shown.

        With `shown`, kubectl prints to the terminal itself. `patience` is in seconds; None for any time. Raises
        ConsoleError if it fails, or takes too long.
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
