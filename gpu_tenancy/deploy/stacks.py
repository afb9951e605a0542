"""The Pulumi stacks of an environment, in a project that is generated for the Automation API."""

import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import yaml
from pulumi.automation import CommandError, InvalidVersionError, LocalWorkspace

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.deploy.pulumi_cli import UNATTENDED, FileBackend, find_pulumi, generated_project, run_pulumi
from gpu_tenancy.deploy.states import Event, State
from gpu_tenancy.model.names import deployed_by
from gpu_tenancy.model.plan.environment import KEY, is_part
from gpu_tenancy.model.project import Declared, stack_file
from gpu_tenancy.model.yaml import read_table

_LOGIN: Final = "run `pulumi login`, then the same command again"
RERUN: Final = "fix the error and run the same command again"
_SALT: Final = "encryptionsalt"
_ENVIRONMENT: Final = {
    "PULUMI_SKIP_UPDATE_CHECK": "true",
    "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
    "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true",
    "GOGC": os.environ.get("GOGC", "400"),
}
"""Variables of the CLI and its plugins. By Go's default GOGC, a quarter of the CLI's time is garbage collection."""
_AT_THE_END: Final = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""The CLI writes the state once: `SkipCheckpoints` in sdk/go/common/env/env.go of Pulumi's repository."""
_LOCKED: Final = ("currently locked", "currently in progress")  # texts of file and bucket backends, and Pulumi Cloud
PENDING: Final = "pending_operations"  # in a state: operations that began and did not end
_VERSION: Final = 3  # version of the states that are written; older states are rewritten in it


class InterruptedDeploymentError(ConsoleError):
    """A deployment of a stack was killed: nobody knows whether the operations in its state were done."""

    def __init__(self, stack: str, environment: str) -> None:
        super().__init__(
            f"stack {stack} has pending operations of an interrupted deployment",
            f"run `tenancy stack repair {environment}`, then the same command again",
        )


class OperationError(ConsoleError):
    """A command of the Pulumi CLI failed; the message has its standard error."""


class Stacks:
    """The stacks of one environment (`names`, in order of deployment), with the user's backend, login and passphrase.

    Each has the config of the environment's file, including its secrets provider, and the name of its part. Raises
    ConsoleError if the Pulumi CLI is not on the PATH, or too old.
    """

    def __init__(self, read: Declared, parts: tuple[str, ...], folder: Path) -> None:
        self._file, self.folder, self.environment = stack_file(read.project, read.name), folder, read.name
        self._settings: dict[str, Any] = read_table(self._file)
        self._parts = {f"{read.name}.{part}": part for part in parts}
        self.names = tuple(self._parts) or (read.name,)
        project = generated_project(read.project)
        self.project: str = project["name"]
        self.mark = deployed_by(self.project, self.environment)  # on objects of the environment in the cluster
        write_text(folder / "Pulumi.yaml", yaml.safe_dump(project, sort_keys=False))
        if find_pulumi() is None:
            raise ConsoleError("pulumi is not on the PATH", "install the Pulumi CLI, then run `pulumi login`")
        try:
            self._workspace = LocalWorkspace(work_dir=str(folder), env_vars=_ENVIRONMENT)
        except InvalidVersionError as error:
            raise ConsoleError(str(error), "install a newer Pulumi CLI") from error

    def part(self, name: str) -> str | None:
        """The part of a stack; None for the whole environment, or for a part that no longer exists."""
        return self._parts.get(name)

    def existing(self) -> tuple[str, ...]:
        """Existing stacks in order of deployment, former ones last; raises ConsoleError if the backend is not there."""
        try:
            with _failing("pulumi stack ls", _LOGIN):
                summaries = self._workspace.list_stacks()
        except ConsoleError:
            backend = self._files()
            if backend and (torn := backend.torn()):
                fix = f"copy {torn}.bak over it, the state before the last operation; then run the same command again"
                raise ConsoleError(f"the state {torn} is not complete", fix) from None
            raise
        known = sorted(filter(self._is_own, [summary.name.rpartition("/")[2] for summary in summaries]))
        known.sort(key=lambda name: self.names.index(name) if name in self.names else len(self.names))
        for name in known:
            self._write(name)
        return tuple(known)

    def _files(self) -> FileBackend | None:
        with _failing("pulumi whoami", _LOGIN):
            return FileBackend.of(self._workspace.who_am_i().url or "")

    def _is_own(self, name: str) -> bool:
        part = name.removeprefix(f"{self.environment}.")
        return name == self.environment or (part != name and is_part(part))

    def create(self, existing: tuple[str, ...]) -> None:
        """Creates missing stacks, with one way to encrypt secrets for all; raises ConsoleError if Pulumi fails."""
        for name in self.names:
            if name not in existing:
                self._write(name)
                with _failing(f"pulumi stack init {name}", RERUN):
                    self._workspace.create_stack(name)
                self._keep_salt(name)

    def _write(self, name: str) -> None:
        part = self._parts.get(name)
        config = {**self._settings["config"], **({KEY: part} if part else {})}
        text = yaml.safe_dump({**self._settings, "config": config}, sort_keys=False)
        write_text(self.folder / f"Pulumi.{name}.yaml", text)

    def _keep_salt(self, name: str) -> None:
        if _SALT in self._settings:
            return
        if salt := read_table(self.folder / f"Pulumi.{name}.yaml").get(_SALT):
            self._settings[_SALT] = salt
            text = self._file.read_text(encoding="utf-8")
            write_text(self._file, f"{text.rstrip()}\n{_SALT}: {salt}\n")

    def operate(
        self, name: str, command: str, *options: str, on_event: Callable[[Event], None], at_the_end: bool = False
    ) -> None:
        """Runs `pulumi up`, `preview`, `refresh` or `destroy`; raises ConsoleError (locked stack) or OperationError.

        With `at_the_end`, the state is written only then.
        """
        unasked = () if command == "preview" else ("--yes", "--skip-preview")
        own = {**_ENVIRONMENT, **(_AT_THE_END if at_the_end else {})}
        words = ["pulumi", command, "--json", "--stack", name, *unasked, *options]
        with (
            TemporaryFile("w+", encoding="utf-8") as errors,
            subprocess.Popen(
                [*words, *UNATTENDED],
                cwd=self.folder,
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as running,
        ):
            for line in running.stdout or ():
                if line.startswith("{"):
                    on_event(json.loads(line))
            if running.wait():
                errors.seek(0)
                raise self._failure(name, errors.read().strip())

    def _failure(self, name: str, why: str) -> ConsoleError:
        if any(word in why for word in _LOCKED):
            command = f"tenancy stack repair {self.environment} --unlock"
            fix = f"wait for the other deployment; if it no longer runs, `{command}`"
            return ConsoleError(f"stack {name} is locked by another deployment: {why}", fix)
        return OperationError(why, RERUN)

    def export(self, name: str) -> State:
        """The state of a stack, with secrets: it is never written to a file.

        Raises InterruptedDeploymentError if a deployment of it was interrupted, ConsoleError if it cannot be read.
        """
        state = self.interrupted(name)
        if state.get(PENDING):
            raise InterruptedDeploymentError(name, self.environment)
        return state

    def interrupted(self, name: str) -> State:
        """The state of a stack, maybe with pending operations; raises ConsoleError if it cannot be read."""
        # The Automation API reads it line by line: of 1,000 teams, three million.
        command = ("pulumi", "stack", "export", "--show-secrets", "--stack", name)
        done = run_pulumi(command, self.folder, _ENVIRONMENT)
        if done.returncode:
            why = done.stderr.strip()
            raise ConsoleError(f"pulumi stack export {name} failed: {why}", "check the passphrase and the login")
        return json.loads(done.stdout).get("deployment") or {}

    def unlock(self, *, forced: bool = False) -> tuple[str, ...]:
        """Removes locks of ended deployments and their half-written files; returns the stacks.

        Unless it is `forced`, only of processes of this machine that have ended, in a file backend. Raises ConsoleError
        if the backend cannot be reached.
        """
        backend = self._files()
        names = (self.environment, *(name for name in self.names if name != self.environment))
        locked = [name for name in names if forced or (backend and backend.abandoned(name))]
        if backend and locked:
            backend.remove_torn()
        existing = self.existing() if locked else ()
        for name in (unlocked := tuple(name for name in locked if name in existing)):
            with _failing(f"pulumi cancel --stack {name}", "run the same command again"):
                self._workspace.pulumi_command.run(["cancel", "--yes", "--stack", name], str(self.folder), _ENVIRONMENT)
        return unlocked

    def replace(self, name: str, state: State) -> None:
        """Writes the state of a stack; raises ConsoleError if Pulumi rejects it."""
        # Through a pipe: the Automation API writes it with its secrets to a temporary file.
        given = json.dumps({"version": _VERSION, "deployment": state})
        done = run_pulumi(("pulumi", "stack", "import", "--stack", name), self.folder, _ENVIRONMENT, given)
        if done.returncode:
            failure = self._failure(name, done.stderr.strip())
            if isinstance(failure, OperationError):
                what, fix = f"pulumi stack import {name} failed: {failure.what}", "no resource was deleted"
                raise ConsoleError(what, f"{fix}; run the same command again to continue")
            raise failure


@contextmanager
def _failing(command: str, fix: str) -> Generator[None]:
    try:
        yield
    except CommandError as error:
        why = str(error).partition(" stderr: ")[2].strip() or str(error)
        raise ConsoleError(f"{command} failed: {why}", fix) from error
