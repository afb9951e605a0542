"""Stand-ins for absent parts of the embedded platform: the kubelet of a gate's pod, and operators."""

import base64
import os
import subprocess
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final

import yaml
from starts import GUARD

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, UnknownKindError
from gpu_tenancy.kube.references import Reference

_ADMISSION: Final = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
_GONE, _CHANGED = 404, 409
_PAUSE: Final = 0.2


@contextmanager
def played(*steps: Callable[[], None]) -> Generator[None]:
    """Repeats each step beside the test, which fails if one of them does."""
    ended = Event()

    def play() -> None:
        while not ended.wait(_PAUSE):
            for step in steps:
                step()

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play)
        try:
            yield
        finally:
            ended.set()
            playing.result()


@dataclass
class Kubelet:
    """Runs the one container of each Job's pod, by the `kubectl` of the PATH in place of the image's.

    As a kubelet, it gives the container the pod's own account and files, and restarts it after a failure if the pod
    requires it. The nodes are kwok's, which only reports pods as running.
    """

    cluster: Cluster
    kubeconfig: Path  # the administrator's: a kubelet may request tokens of its pods' accounts
    folder: Path
    exits: list[int] = field(default_factory=list[int])  # the exit code of each run
    words: list[str] = field(default_factory=list[str])

    def step(self) -> None:
        for pod in self.cluster.list("v1", "Pod", labels="batch.kubernetes.io/job-name"):
            found: Any = pod
            if found["status"].get("phase") == "Running" and "deletionTimestamp" not in found["metadata"]:
                try:
                    self._run(found)
                except (ApiError, subprocess.CalledProcessError):
                    if self._stays(found):  # Of a pod that is gone meanwhile there is nothing to say.
                        raise

    def _stays(self, pod: Any) -> bool:
        now: Any = self.cluster.get(*Reference.of(pod))
        return now and now["metadata"]["uid"] == pod["metadata"]["uid"] and "deletionTimestamp" not in now["metadata"]

    def _run(self, pod: Any) -> None:
        (container,) = pod["spec"]["containers"]
        home = self.folder / pod["metadata"]["uid"]
        places = {mount["mountPath"]: self._mounted(pod, mount["name"], home) for mount in container["volumeMounts"]}
        arguments = [_within(places, argument) for argument in container["args"]]
        named = {each["name"]: _within(places, each["value"]) for each in container.get("env", [])}
        environment = {**named, "PATH": os.environ["PATH"], "KUBECONFIG": str(self._identity(pod, home))}
        done = _kubectl(*arguments, environment=environment)
        self.exits.append(done.returncode)
        self.words.append(f"{done.stdout}{done.stderr}")
        self._report(pod, container, done.returncode)

    def _mounted(self, pod: Any, volume: str, home: Path) -> Path:
        place = home / volume
        place.mkdir(parents=True, exist_ok=True)
        (source,) = (each for each in pod["spec"]["volumes"] if each["name"] == volume)
        if "configMap" in source:
            words: Any = self.cluster.get("v1", "ConfigMap", source["configMap"]["name"], pod["metadata"]["namespace"])
            for name, text in words["data"].items():
                (place / name).write_text(text)
        return place

    def _identity(self, pod: Any, home: Path) -> Path:
        """A kubeconfig of the pod's account alone, with a token that is bound to the pod."""
        metadata, account = pod["metadata"], pod["spec"]["serviceAccountName"]
        bound = ("--bound-object-kind=Pod", f"--bound-object-name={metadata['name']}")
        asked = _kubectl(
            f"--kubeconfig={self.kubeconfig}", "create", "token", account, f"-n{metadata['namespace']}", *bound
        )
        asked.check_returncode()
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"] = [{"name": "pod", "user": {"token": asked.stdout.strip()}}]
        config["contexts"][0]["context"] |= {"user": "pod", "namespace": metadata["namespace"]}
        file = home / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    def _report(self, pod: Any, container: Any, code: int) -> None:
        name = {"name": container["name"], "image": container["image"]}
        (before,) = pod["status"]["containerStatuses"]
        ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        status: dict[str, Any] = {"phase": "Succeeded"}
        if code:
            assert pod["spec"]["restartPolicy"] == "OnFailure"
            status = {"phase": "Running"}
        count = before["restartCount"] + bool(code)
        state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended} if code else {"state": ended}
        status["containerStatuses"] = [{**name, "ready": False, "imageID": "", "restartCount": count, **state}]
        self.cluster.patch(Reference.of(pod), {"status": status}, subresource="status")


def _within(places: dict[str, Path], text: str) -> str:
    """A container's argument, with this machine's paths."""
    for mount, place in places.items():
        if f"={mount}/" in f"={text}/":
            return text.replace(mount, str(place), 1)
    return text


def _kubectl(*arguments: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["kubectl", *arguments], env=environment, capture_output=True, text=True, check=False, timeout=GUARD
    )


@dataclass
class Operator:
    """Adds a finalizer to each object of its kinds, and removes it after deletion, while its Deployment exists.

    If the Deployment is deleted first, the objects are never deleted.
    """

    cluster: Cluster
    name: str  # of the Deployment, and of the webhooks' configuration
    namespace: str
    kinds: Sequence[tuple[str, str]]  # API version and kind
    cleared: list[Reference] = field(default_factory=list[Reference])  # objects whose finalizer was removed

    @property
    def finalizer(self) -> str:
        return f"stand-in.example.com/{self.name}"

    @property
    def there(self) -> bool:
        return self.cluster.exists("apps/v1", "Deployment", self.name, self.namespace)

    def step(self) -> None:
        if not self.there:
            return
        for kind in self.kinds:
            with suppress(UnknownKindError):  # Not yet: the definitions come with the release.
                for one in self.cluster.list(*kind):
                    self._hold(one)

    def _hold(self, one: Any) -> None:
        reference, metadata = Reference.of(one), one["metadata"]
        held = self.finalizer in metadata.get("finalizers", [])
        if held == ("deletionTimestamp" not in metadata):
            return
        others = [each for each in metadata.get("finalizers", []) if each != self.finalizer]
        try:
            finalizers = others if held else [*others, self.finalizer]
            seen: Any = {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}
            self.cluster.patch(reference, {"metadata": seen})
        except ApiError as error:
            if error.status not in {_GONE, _CHANGED}:  # Of what somebody else touched since, the next step tells.
                raise
            return
        if held:
            self.cleared.append(reference)

    def trust(self, authority: Path) -> None:
        """Sets the CA of its webhooks, as an operator does after it has made its certificate."""
        found: Any = self.cluster.get(*_ADMISSION, self.name)
        bundle = base64.b64encode(authority.read_bytes()).decode()
        webhooks: list[Any] = [
            {**each, "clientConfig": {**each["clientConfig"], "caBundle": bundle}} for each in found["webhooks"]
        ]
        if found["webhooks"] != webhooks:
            self.cluster.patch(Reference(*_ADMISSION, self.name), {"webhooks": webhooks})
