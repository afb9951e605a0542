"""Logs of all pods of a job, and its outcome."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.demand import outcome
from gpu_tenancy.cluster.pods import Manifest, ended, name_of, namespace_of
from gpu_tenancy.jobs.jobs import Jobs, read_jobs, uid_of
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import NO_CONTAINERS, SIMULATED, ApiError, UnreachableError
from gpu_tenancy.model.kinds import kinds

_EVERY: Final = 2.0  # seconds between two reads of the pods of a followed job
_DEFAULT: Final = "kubectl.kubernetes.io/default-container"


@dataclass
class Logs:
    """Prints the logs of a job."""

    cluster: Cluster
    write: Callable[[str], None]  # prints a line of a pod
    note: Callable[[str], None]  # prints a note about a pod without a log
    _writing: Lock = field(default_factory=Lock)

    def show(self, jobs: Jobs, manifest: Manifest) -> None:
        """Prints the present lines; raises ConsoleError if no pod has a log."""
        name = name_of(manifest)
        pods = list(enumerate(jobs.pods(manifest)))
        printed = 0
        for number, pod in pods:
            if started(pod):
                printed += self._print(pod, self._prefix(jobs, manifest, number), follow=False)
            else:
                self.note(f"pod {number} ({name_of(pod)}) has no log yet: it is {_phase(pod)}")
        if not printed:
            what = "none of its pods has a log that can be read" if pods else "has no pods"
            raise ConsoleError(f"{name}: {what}", f"`tenancy why {name}` explains what is pending")

    def follow(self, manifest: Manifest) -> str:
        """Prints new lines, also of later pods, until the job ends; returns the outcome, empty if it was deleted."""
        streams: dict[str, Thread] = {}
        api = (text_at(manifest, "apiVersion"), text_at(manifest, "kind"))
        read = {api, *(kind.api for kind in kinds().values() if kind.version and kind.made), ("v1", "Pod")}
        told = ""
        while True:
            jobs = read_jobs(self.cluster, namespace_of(manifest), kinds=read)
            live = next((one for one in jobs.objects if uid_of(one) == uid_of(manifest)), None)
            pods = list(enumerate(jobs.pods(live))) if live else []
            for number, pod in pods:
                stream = streams.get(uid_of(pod))
                if started(pod) and (stream is None or not (stream.is_alive() or ended(pod))):
                    prefix = self._prefix(jobs, live or manifest, number)
                    printing = {"follow": True, "tail": 0 if stream else None}
                    stream = Thread(target=self._print, args=(pod, prefix), kwargs=printing, daemon=True)
                    stream.start()
                    streams[uid_of(pod)] = stream
            waits = [_phase(pod) for _, pod in pods if not started(pod)]
            state = "" if streams and not waits else f"{plural(len(waits), 'pod')} pending" if waits else "no pods yet"
            if state and state != told:
                self.note(f"{name_of(manifest)}: {state}; `tenancy why {name_of(manifest)}` explains it")
            told = state
            if live is None or outcome(live):
                for stream in streams.values():
                    stream.join()
                return outcome(live) if live else ""
            time.sleep(_EVERY)

    def _prefix(self, jobs: Jobs, manifest: Manifest, number: int) -> str:
        count = len(jobs.pods(manifest))
        return f"[{number:{len(str(count - 1))}}] " if count > 1 else ""

    def _print(self, pod: Manifest, prefix: str, *, follow: bool, tail: int | None = None) -> bool:
        """Prints lines of a pod; False if they cannot be read, so that other pods continue."""
        names = [text_at(container, "name") for container in maps_at(pod, "spec", "containers")]
        container = text_at(pod, "metadata", "annotations", _DEFAULT) or names[0]
        try:
            lines = self.cluster.log(namespace_of(pod), name_of(pod), container=container, follow=follow, tail=tail)
            for line in lines:
                with self._writing:
                    self.write(f"{prefix}{line}")
        except (ApiError, UnreachableError) as error:
            why = NO_CONTAINERS if SIMULATED in str(error) else error
            with self._writing:
                self.note(f"{prefix}log of pod {name_of(pod)} not readable: {why}")
            return False
        return True


def started(pod: Manifest) -> bool:
    """Whether a pod has containers that can have a log."""
    return _phase(pod) not in {"pending", ""}


def _phase(pod: Manifest) -> str:
    return text_at(pod, "status", "phase").lower()
