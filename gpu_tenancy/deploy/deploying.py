"""Deploys the Pulumi stacks of an environment in order, and those of one stage side by side."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from pulumi.automation import CommandError, ConcurrentUpdateError, Stack
from pulumi.automation.events import EngineEvent

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.progress import Report
from gpu_tenancy.deploy.moving import Entry, Move, Moving, State, is_scaffold, name_of, placement
from gpu_tenancy.deploy.pulumi_cli import fix_for
from gpu_tenancy.deploy.recovering import PROVIDERS, only_objects, recovered
from gpu_tenancy.deploy.repairing import reread
from gpu_tenancy.deploy.stacks import Stacks, stderr_of
from gpu_tenancy.engine.recording import STACK_TYPE
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.plan.parts import CLUSTER, KEY, OPERATORS
from gpu_tenancy.model.project import Declared
from gpu_tenancy.model.source import to_config
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster

Reach: TypeAlias = Callable[[Entry], AbstractContextManager[Cluster]]
"""Opens the cluster of a provider, given its inputs."""
_EXPORTS: Final = 4
"""States that are read at once: each by a process of the Pulumi CLI, which needs half a second of one core."""
_CLUSTER: Final = "cluster-kubernetes"
"""Name of the provider of a cloud's cluster."""
_CONNECTION: Final[dict[str, Json]] = {"kubeconfig": "{}", "identifier": "offline"}
_POOLS: Final = frozenset(
    {"aws:eks/nodeGroup:NodeGroup", "gcp:container/nodePool:NodePool", "azure-native:containerservice:AgentPool"}
)
"""Types of node pools, on which nothing of other teams depends: `Cluster.system` in components/clouds."""
_REFERENCED: Final[Mapping[str, Mapping[str, Json]]] = {
    "pulumi:pulumi:StackReference": {"outputs": {"connection": _CONNECTION}}
}
"""What a part reads of another one, where only the URNs of its resources matter."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a deployment or a preview of one stack did.

    Attributes:
        changes: number of resources by operation of the engine, such as `create` and `same`.
    """

    stack: str
    changes: Mapping[str, int]
    seconds: float


_NO_POOL: Final = (
    "everything else is deployed; find capacity in another zone or by another capacity, or set nodes.min to 0, then run"
    " the same command again"
)


class PoolsError(ConsoleError):
    """Only node pools of a stack failed, usually without capacity: everything else was deployed."""


class Environment:
    """The stacks of an environment as they exist, and what has to move between their states."""

    def __init__(self, read: Declared, stacks: Stacks, report: Report, reach: Reach) -> None:
        """Reads the states.

        Args:
            read: the environment's file.
            stacks: of the environment, unlocked.
            report: shows a line of progress.
            reach: opens the cluster of a provider.

        Raises:
            InterruptedDeploymentError: a state has pending operations.
            ConsoleError: a state cannot be read.
        """
        self._read, self.stacks, self._report, self._reach = read, stacks, report, reach
        self._rendered: dict[str, Rendered] = {}
        self.existing = stacks.existing()
        with ThreadPoolExecutor(_EXPORTS) as pool:
            states = zip(self.existing, pool.map(stacks.export, self.existing), strict=True)
        self._states: dict[str, State] = dict(states)
        parts = tuple(part for name in stacks.names if (part := stacks.part(name)))
        moving = Moving(stacks.project, self._states, stacks.names, placement(stacks.environment, parts))
        self._moving = moving

    @property
    def cluster(self) -> str:
        """What the environment is deployed to, for a question to the user."""
        section = self._read.stack.cluster
        if isinstance(section, ExistingCluster):
            context = f", context {section.context}" if section.context else ""
            return f"the cluster of kubeconfig {section.kubeconfig or 'of kubectl'}{context}"
        return f"{section.cloud} cluster {section.name}"

    @property
    def moves(self) -> tuple[Move, ...]:
        """Resources whose stack changes."""
        return self._moving.moves

    def up(self, at_once: int) -> list[Result]:
        """Deploys all stacks; a resource that another stack may still need is deleted last, in reverse order.

        Raises:
            ConsoleError: the deployment of a stack failed; it has the errors of each. Later stages were not started,
                unless only node pools failed.
        """
        self._move()
        for name in self.stacks.names:
            self._states.setdefault(name, {})
        kept = {name: self._superfluous(name) for name in self._early()}
        marked = self._marked(self.stacks.names)
        done = self._each(self.stacks.names, lambda stack: self._up(stack, kept.get(stack.name, []), marked), at_once)
        again = [name for name, urns in reversed(kept.items()) if urns]
        return [*done, *self._each(again, lambda stack: self._up(stack, [], {}), 1)]

    def recover(self) -> bool:
        """Takes into the states what killed deployments did in the cluster; whether there was anything.

        Raises:
            ConsoleError: the cluster does not answer, objects of somebody else exist, or Pulumi fails.
        """
        marked = self._marked([name for name in self.stacks.names if name in self.existing])
        done = [self._recover(self.stacks.stack(name, at_the_end=True), one) for name, one in marked.items()]
        return any(done)

    def _marked(self, names: Iterable[str]) -> dict[str, Rendered]:
        """The stacks that have only objects with the mark of the environment, with what their programs register."""
        on_cloud = not isinstance(self._read.stack.cluster, ExistingCluster)
        shared = {None, CLUSTER, OPERATORS} if on_cloud else {CLUSTER, OPERATORS}
        parts = {name: self.stacks.part(name) for name in names}
        rendered = {name: self._render(name) for name, part in parts.items() if (part and part.name) not in shared}
        return {name: one for name, one in rendered.items() if only_objects(one, self._states.get(name, {}))}

    def _up(self, stack: Stack, kept: list[str], marked: Mapping[str, Rendered]) -> Mapping[str, int]:
        if stack.name not in marked:
            return _up(stack, kept)
        fast = self.stacks.stack(stack.name, at_the_end=True)
        self._recover(fast, marked[stack.name])
        return _up(fast, kept)

    def _recover(self, stack: Stack, rendered: Rendered) -> bool:
        name, connection = stack.name, self._connection()
        if connection is None:  # nothing was ever deployed
            return False
        state = self._states.get(name) or self.stacks.interrupted(name)
        section = self._read.stack.cluster
        with self._reach(connection) as cluster:
            others = list(self._states.values())
            found = recovered(rendered, state, others, cluster, adopt=section.adopt, mark=self.stacks.mark)
        for line in found.changed:
            self._report(line)
        if found.taken:
            self._report(f"{name}: {len(found.taken)} objects with the mark of the stack taken into its state")
            self.stacks.replace(name, found.state)
            self._states[name] = found.state
        if found.reread:
            reread(stack, found.reread)
        return bool(found.taken or found.reread)

    def _connection(self) -> Entry | None:
        """How to reach the cluster, as the inputs of its provider; None if no stack has it yet."""
        section = self._read.stack.cluster
        if isinstance(section, ExistingCluster):
            return {"kubeconfig": section.kubeconfig, "context": section.context}
        entries = (entry for state in list(self._states.values()) for entry in state.get("resources") or ())
        return next((one["inputs"] for one in entries if one["type"] == PROVIDERS and name_of(one) == _CLUSTER), None)

    def preview(self, at_once: int) -> list[Result]:
        """Previews the stacks that exist and have nothing to move first.

        Raises:
            ConsoleError: the preview of a stack failed.
        """
        moving = {stack for move in self.moves for stack in (move.source, move.target)}
        ready = [name for name in self.stacks.names if name in self.existing and name not in moving]
        return self._each(ready, _preview, at_once)

    def down(self, at_once: int) -> list[Result]:
        """Deletes the resources of all stacks, the last stage first, and then the stacks.

        Raises:
            ConsoleError: a resource of a stack was not deleted. Earlier stages were not touched.
        """
        return self._each(reversed(self.existing), _down, at_once)

    def _move(self) -> None:
        self.stacks.create(self.existing)
        for move in self.moves:
            self._report(f"moving {move.resources} resources from the state of {move.source} to that of {move.target}")
        for states in (self._moving.first, self._moving.then):
            for name, state in states.items():
                self.stacks.replace(name, state)
                self._states[name] = state
        for name in self.existing:
            if name not in self.stacks.names and name != self.stacks.environment:
                self._report(f"removing stack {name}, which has no resources any more")
                self.stacks.remove(name)

    def _early(self) -> list[str]:
        last = max(map(self.stacks.stage, self.stacks.names))
        return [name for name in self.stacks.names if self.stacks.stage(name) < last]

    def _superfluous(self, name: str) -> list[str]:
        """URNs of the resources that a stack has and its program no longer registers."""
        part, state = self.stacks.part(name), self._states.get(name, {})
        there = [str(entry["urn"]) for entry in state.get("resources") or () if not is_scaffold(entry)]
        if part is None or not there:
            return []
        registered = {registration.urn for registration in self._render(name).registrations}
        return [urn for urn in there if urn not in registered]

    def _render(self, name: str) -> Rendered:
        """What the program of a stack registers."""
        if name not in self._rendered:
            part = self.stacks.part(name)
            config = {**to_config(self._read.source), **({KEY: part.name} if part else {})}
            self._rendered[name] = render(
                self._read.project, project=self.stacks.project, stack=name, config=config, answers=_REFERENCED
            )
        return self._rendered[name]

    def _each(self, names: Iterable[str], action: Callable[[Stack], Mapping[str, int]], at_once: int) -> list[Result]:
        done: list[Result] = []
        without: dict[str, BaseException] = {}
        for _, stage in groupby(names, self.stacks.stage):
            with ThreadPoolExecutor(at_once) as pool:
                running = {name: pool.submit(self._one, name, action) for name in stage}
            failed = {name: error for name, run in running.items() if (error := run.exception())}
            without |= {name: error for name, error in failed.items() if isinstance(error, PoolsError)}
            if failed.keys() - without.keys():
                raise _failure(without | failed)
            done += [run.result() for name, run in running.items() if name not in failed]
        if without:
            raise _failure(without)
        return done

    def _one(self, name: str, action: Callable[[Stack], Mapping[str, int]]) -> Result:
        self._report(f"{name}: started")
        began = time.monotonic()
        changes = action(self.stacks.stack(name))
        result = Result(name, changes, time.monotonic() - began)
        counts = ", ".join(f"{number} {operation}" for operation, number in sorted(changes.items()) if number)
        self._report(f"{name}: {counts or 'nothing'} ({result.seconds:.0f} s)")
        return result


def _up(stack: Stack, kept: list[str]) -> Mapping[str, int]:
    with _watched(stack.name, "up") as seen:
        stack.up(
            on_event=seen,
            color="never",
            suppress_outputs=True,
            show_secrets=False,
            exclude=kept or None,
            continue_on_error=True,  # else a pool without capacity would stop what does not need it
        )
    return seen.changes


def _preview(stack: Stack) -> Mapping[str, int]:
    with _watched(stack.name, "preview") as seen:
        stack.preview(on_event=seen, color="never", suppress_outputs=True)
    return seen.changes


def _down(stack: Stack) -> Mapping[str, int]:
    with _watched(stack.name, "destroy") as seen:
        stack.destroy(on_event=seen, color="never", suppress_outputs=True, show_secrets=False, remove=True)
    return seen.changes


class _Seen:
    """What the engine tells during one operation."""

    def __init__(self) -> None:
        self.changes: Mapping[str, int] = {}
        self._failed: set[str] = set()
        self._diagnostics: dict[str, list[str]] = {}

    def __call__(self, event: EngineEvent) -> None:
        if event.summary_event:
            self.changes = {
                str(operation): number for operation, number in event.summary_event.resource_changes.items()
            }
        if event.res_op_failed_event:
            self._failed.add(event.res_op_failed_event.metadata.type)
        found = event.diagnostic_event
        if found and (message := found.message.strip()):
            _, _, name = (found.urn or "").rpartition("::")
            of_resource = name and STACK_TYPE not in str(found.urn)
            self._diagnostics.setdefault(found.severity, []).append(f"{name}: {message}" if of_resource else message)

    @property
    def only_pools(self) -> bool:
        """Whether node pools failed and nothing else."""
        return bool(self._failed) and self._failed <= _POOLS

    @property
    def errors(self) -> str:
        """The engine's errors; if there are none, what the program wrote to standard error."""
        return "\n".join(dict.fromkeys(self._diagnostics.get("error") or self._diagnostics.get("info#err") or ()))


@contextmanager
def _watched(stack: str, command: str) -> Generator[_Seen]:
    """Collects the engine's events of a command.

    Raises:
        ConsoleError: the command failed; with the errors of the engine, or what Pulumi wrote.
    """
    seen = _Seen()
    try:
        yield seen
    except ConcurrentUpdateError as error:
        fix = f"wait for it; if it no longer runs, `pulumi cancel --stack {stack}`"
        raise ConsoleError(f"stack {stack} is locked by another deployment: {stderr_of(error)}", fix) from error
    except CommandError as error:
        why = seen.errors or stderr_of(error)
        what = f"pulumi {command} of stack {stack} failed"
        if seen.only_pools:
            raise PoolsError(f"{what} for node pools only:\n{why}", _NO_POOL) from error
        raise ConsoleError(f"{what}:\n{why}", fix_for(why)) from error


def _failure(failed: Mapping[str, BaseException]) -> BaseException:
    for error in failed.values():
        if not isinstance(error, ConsoleError):
            return error
    errors = [error for error in failed.values() if isinstance(error, ConsoleError)]
    what = "\n".join(error.what for error in errors)
    return errors[0] if len(errors) == 1 else ConsoleError(what, fix_for(what))
