"""Deploys the Pulumi stacks of an environment in order."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.progress import Report, measured
from gpu_tenancy.deploy.pulumi_cli import fix_for
from gpu_tenancy.deploy.recovering import PROVIDERS, only_objects, recovered, reread, unchanged
from gpu_tenancy.deploy.stacks import PENDING, OperationError, Stacks
from gpu_tenancy.deploy.states import SAME, Entry, Seen, State, is_real, is_scaffold, name_of, outputs_of
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.plan.environment import CLUSTER, KEY, OPERATORS
from gpu_tenancy.model.plan.environment import Environment as Planned
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.project import Declared
from gpu_tenancy.model.source import to_config
from gpu_tenancy.model.spec.cluster import ExistingCluster

Reach: TypeAlias = Callable[[Entry], AbstractContextManager[Cluster]]  # opens the cluster of a provider's inputs
_CONTINUE: Final = "--continue-on-error"  # otherwise a pool without capacity would stop everything
_BUSY: Final = "Operation cannot be fulfilled on resourcequotas"  # the controller of quotas wrote it at the same time
_CLUSTER: Final = "cluster-kubernetes"  # name of the provider of a cloud's cluster
_CONNECTION: Final[dict[str, Json]] = {"kubeconfig": "{}", "identifier": "offline"}
"""Outputs of the cluster stack for previews before its deployment, where only URNs of its resources matter."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a deployment or a preview of one stack."""

    stack: str
    changes: Mapping[str, int]  # numbers of resources by the engine's operation (`create`, `same`)
    seconds: float
    # Numbers of each team's changed resources; shared ones have no name.
    teams: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    destroyed: tuple[str, ...] = ()  # names of deleted and replaced resources


_NO_POOL: Final = (
    "everything else is deployed; find capacity in another zone or by another capacity, or set nodes.min to 0, then run"
    " the same command again"
)


class PoolsError(ConsoleError):
    """Only node pools of a stack failed, usually without capacity: everything else was deployed."""


class Environment:
    """The stacks of the environment that `read` declares; `existing` has the names of existing stacks."""

    def __init__(
        self, read: Declared, stacks: Stacks, report: Report, reach: Reach, killed: Iterable[str] = ()
    ) -> None:
        """Reads the states of the unlocked stacks; `killed` ones may have had a killed deployment.

        Raises InterruptedDeploymentError if a state has pending operations, ConsoleError if one cannot be read.
        """
        self.read, self.stacks, self._report, self._reach = read, stacks, report, reach
        self._rendered: dict[str, Rendered] = {}
        self._killed, self._finished = frozenset(killed), set[str]()
        # To nobody: previews are short, and deletions too.
        self._advance: Callable[[int], None] = lambda _: None
        self._moved = False
        self.existing = stacks.existing()
        self._states: dict[str, State] = {name: stacks.export(name) for name in self.existing}

    @property
    def cluster(self) -> str:
        """The deployment target, for a question to the user."""
        section = self.read.stack.cluster
        if isinstance(section, ExistingCluster):
            context = f", context {section.context}" if section.context else ""
            return f"the cluster of kubeconfig {section.kubeconfig or 'of kubectl'}{context}"
        return f"{section.cloud} cluster {section.name}"

    def check(self) -> None:
        """Raises ConsoleError if a stack has resources that the environment lacks: it would create them again."""
        for name in self.existing:
            real = sum(map(is_real, self._states[name].get("resources") or ()))
            if real and name not in self.stacks.names:
                stacks = ", ".join(self.stacks.names)
                raise ConsoleError(
                    f"stack {name} has {real} resources, but the environment is deployed as {stacks}",
                    "move them with `pulumi state move` as in docs/splitting.md, or undo the change of `split`",
                )

    def up(self) -> list[Result]:
        """Deploys all stacks; a resource that another stack may still need is deleted last, in reverse order.

        Raises ConsoleError as `check` does, or if a stack fails; later stacks run only if just node pools failed.
        """
        self.check()
        self.stacks.create(self.existing)
        for name in self.stacks.names:
            self._states.setdefault(name, {})
        kept = {name: self._superfluous(name) for name in self.stacks.names[:-1]}
        self._finished.clear()
        again = [name for name, urns in reversed(kept.items()) if urns]
        with measured(self._report, "deploying", len(self.read.stack.teams), "teams") as self._advance:
            done = self._each(self.stacks.names, lambda name: self._up(name, kept.get(name, [])))
            return [*done, *self._each(again, lambda name: self._up(name, []))]

    def edited(self) -> list[str]:
        """What others changed in the cluster since the last deployment; raises ConsoleError if it does not answer."""
        connection = self._connection()
        if connection is None:
            return []
        with self._reach(connection) as cluster:
            found = [recovered(None, one, (), cluster, adopt=(), mark="") for one in self._states.values()]
        return [line for one in found for line in one.changed]

    def recover(self) -> bool:
        """Updates states by the cluster: the next deployment restores what others changed; whether any differed.

        Stacks with only marked objects also get the objects of killed deployments. Raises ConsoleError, except for a
        stack that makes its cluster: the next deployment may be what makes the cluster answer.
        """
        differed = False
        for name in (one for one in self.stacks.names if one in self.existing):
            marked = self._is_marked(name)
            try:
                differed |= self._recover(name, self.render(name) if marked else None)
            except ConsoleError as error:
                if marked:
                    raise
                self._report(f"{name}: not compared with its cluster: {error}")
        return differed

    def _is_marked(self, name: str) -> bool:
        """Whether a stack has only Kubernetes objects, which carry the mark of the environment."""
        part, stack = self.stacks.part(name), self.read.stack
        if part in {CLUSTER, OPERATORS}:
            return False
        there = Planned(stack)
        here = any(installed_by(there, operator) == "here" for operator in operators())
        if not part and (here or not isinstance(stack.cluster, ExistingCluster)):
            return False
        return only_objects(self._states.get(name, {}))

    def _up(self, name: str, kept: list[str]) -> Seen:
        options = [*(f"--exclude={urn}" for urn in kept), _CONTINUE]
        if not self._is_marked(name):
            seen = self._operate(name, "up", *options)
            self._moved |= seen.changed
            return seen
        unknown = name in self._killed or not self._states.get(name, {}).get("resources")
        found = self._recover(name, self.render(name) if unknown else None)
        if not (found or unknown or self._moved) and (same := self._same(name)):
            return same
        try:
            return self._operate(name, "up", *options, at_the_end=True)
        except PoolsError:
            raise
        except ConsoleError as error:
            self._states[name] = self.stacks.interrupted(name)
            complete = not (unknown or self._states[name].get(PENDING))
            # A run was killed of which nothing told: it created objects that the state does not have.
            if _BUSY not in error.what and not (complete and self._recover(name, self.render(name))):
                raise
        return self._operate(name, "up", *options, at_the_end=True)

    def _recover(self, name: str, rendered: Rendered | None) -> bool:
        """Compares a stack with its cluster, and with its registrations only where its state may lack objects."""
        connection = self._connection()
        if connection is None:  # nothing was ever deployed
            return False
        state = self._states.get(name) or self.stacks.interrupted(name)
        section = self.read.stack.cluster
        with self._reach(connection) as cluster:
            others = list(self._states.values())
            found = recovered(rendered, state, others, cluster, adopt=section.adopt, mark=self.stacks.mark)
        ran = (f"{one}: deleted; it runs again only when the stack changes it" for one in found.ran)
        for line in (*found.changed, *ran):
            self._report(line)
        if found.taken:
            self._report(f"{name}: {len(found.taken)} objects with the mark of the stack taken into its state")
        if found.state is not state:
            self.stacks.replace(name, found.state)
            self._states[name] = found.state
        if found.reread:
            reread(self.stacks, name, found.reread)
        return bool(found.taken or found.reread)

    def _connection(self) -> Entry | None:
        """The inputs of the cluster's provider; None if no stack has it yet."""
        section = self.read.stack.cluster
        if isinstance(section, ExistingCluster):
            return {"kubeconfig": section.kubeconfig, "context": section.context}
        entries = (entry for state in list(self._states.values()) for entry in state.get("resources") or ())
        return next((one["inputs"] for one in entries if one["type"] == PROVIDERS and name_of(one) == _CLUSTER), None)

    def _same(self, name: str) -> Seen | None:
        """The result of a deployment that changes nothing; None if Pulumi must be asked."""
        state = self._states.get(name, {})
        if not (self._is_marked(name) and unchanged(self.render(name), state, self.stacks.mark)):
            return None
        seen = Seen(self._team_finished)
        seen.changes = {SAME: len(state["resources"])}
        return seen

    def preview(self) -> list[Result]:
        """Previews the stacks that exist; raises ConsoleError as `check` does, or if a preview fails."""
        self.check()
        ready = [name for name in self.stacks.names if name in self.existing]
        return self._each(ready, lambda name: self._same(name) or self._operate(name, "preview"))

    def down(self) -> list[Result]:
        """Deletes the stacks and their resources, the last one first; stops with ConsoleError at the first failure."""
        return self._each(reversed(self.existing), lambda name: self._operate(name, "destroy", "--remove"))

    def _superfluous(self, name: str) -> list[str]:
        part, state = self.stacks.part(name), self._states.get(name, {})
        there = [str(entry["urn"]) for entry in state.get("resources") or () if not is_scaffold(entry)]
        if part is None or not there:
            return []
        registered = {registration.urn for registration in self.render(name).registrations}
        return [urn for urn in there if urn not in registered]

    def render(self, name: str) -> Rendered:
        """The registrations of a stack's program."""
        if name not in self._rendered:
            part = self.stacks.part(name)
            config = {**to_config(self.read.source), **({KEY: part} if part else {})}
            connection = {
                "connection": _CONNECTION,
                **outputs_of(self._states.get(f"{self.stacks.environment}.{CLUSTER}", {})),
            }
            self._rendered[name] = render(
                self.read.project,
                project=self.stacks.project,
                stack=name,
                config=config,
                answers={"pulumi:pulumi:StackReference": {"outputs": connection}},
            )
        return self._rendered[name]

    def _each(self, names: Iterable[str], action: Callable[[str], Seen]) -> list[Result]:
        done: list[Result] = []
        failed: list[ConsoleError] = []
        for name in names:
            try:
                self._report(f"{name}: started")
                began = time.monotonic()
                seen = action(name)
                teams = {team: dict(counts) for team, counts in seen.teams.items()}
                result = Result(name, seen.changes, time.monotonic() - began, teams, tuple(seen.destroyed))
                self._report(f"{name}: {counted(seen.changes) or 'nothing'} ({result.seconds:.0f} s)")
                done.append(result)
            except PoolsError as error:
                failed.append(error)
            except ConsoleError as error:
                failed.append(error)
                break
        if len(failed) > 1:
            what = "\n".join(error.what for error in failed)
            raise ConsoleError(what, fix_for(what))
        if failed:
            raise failed[0]
        return done

    def _operate(self, name: str, command: str, *options: str, at_the_end: bool = False) -> Seen:
        seen = Seen(self._team_finished)
        try:
            self.stacks.operate(name, command, *options, on_event=seen, at_the_end=at_the_end)
        except OperationError as error:
            why = seen.errors or error.what
            what = f"pulumi {command} of stack {name} failed"
            if seen.only_pools:
                raise PoolsError(f"{what} for node pools only:\n{why}", _NO_POOL) from error
            raise ConsoleError(f"{what}:\n{why}", fix_for(why)) from error
        return seen

    def _team_finished(self, team: str) -> None:
        if team not in self._finished:
            self._finished.add(team)
            self._advance(len(self._finished))


def counted(changes: Mapping[str, int]) -> str:
    """`2 create, 14 same`; empty if there is nothing."""
    return ", ".join(f"{number} {operation}" for operation, number in sorted(changes.items()) if number)
