"""Repairs the states of an environment's Pulumi stacks after a killed deployment.

Pulumi does not know whether a recorded creation was done: it warns at each deployment, and creates the object again,
which fails. Pulumi itself only asks the user for each ID:
https://www.pulumi.com/docs/support/troubleshooting/common-issues/interrupted-updates/.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy.stacks import PENDING, OperationError, Stacks
from gpu_tenancy.deploy.states import Entry, Seen, State, is_object, plain, without_missing
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import Failure, Live, survey
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS

RERUN: Final = "fix the error and run the same command again"
_CREATING: Final = "creating"
_TARGETS: Final = 1_000  # maximum resources in a command: 200 bytes each, Linux allows 2 MB; if more, all are read


@dataclass(frozen=True, slots=True)
class Repaired:
    """The repair of one stack's state.

    `taken` objects have the mark of the environment and are in the state now; `dropped` ones do not exist; `foreign`
    ones have no mark, so the next deployment is refused. `read` is the number of other resources that were read again.
    """

    stack: str
    taken: tuple[Reference, ...]
    dropped: tuple[Reference, ...]
    foreign: tuple[Reference, ...]
    read: int


def repair(stacks: Stacks, usual: Callable[[], Path]) -> list[Repaired]:
    """Ends the pending operations in the states of an environment, by the objects in its cluster, which is not changed.

    The stacks are unlocked; `usual` returns the kubeconfig for providers that name none.

    Raises:
        ConsoleError: a pending creation is not an object of Kubernetes, the cluster does not answer, or Pulumi fails.
    """
    states = {name: stacks.interrupted(name) for name in stacks.existing()}
    pending = {name: state for name, state in states.items() if state.get(PENDING)}
    return [_repair(stacks, name, state, usual) for name, state in pending.items()]


def _repair(stacks: Stacks, name: str, state: State, usual: Callable[[], Path]) -> Repaired:
    operations = state[PENDING]
    creating: list[Entry] = [one["resource"] for one in operations if one["type"] == _CREATING]
    if others := [str(one["urn"]) for one in creating if not is_object(one)]:
        raise ConsoleError(
            f"stack {name}: it is unknown whether the interrupted deployment created {', '.join(others)}",
            f"look for them, then run `pulumi refresh --stack {name}` in {stacks.folder}, which asks for each",
        )
    resources: list[Entry] = [*(state.get("resources") or ())]
    there = {str(one["urn"]) for one in resources}
    missing = {Reference.of(one["inputs"]): one for one in creating if one["urn"] not in there}
    lives = _lives(resources, missing, usual) if missing else {}
    taken = {found: one for found, one in missing.items() if (live := lives[found]) and live.deployed_by == stacks.mark}
    foreign = tuple(found for found, live in lives.items() if live and found not in taken)
    for found, one in taken.items():
        there.add(str(one["urn"]))
        resources.append({**without_missing(one, there), "id": found.place, "outputs": one["inputs"]})
    stacks.replace(name, {**{key: value for key, value in state.items() if key != PENDING}, "resources": resources})
    if reading := sorted({str(one["resource"]["urn"]) for one in operations} & there):
        reread(stacks, name, reading)
    dropped = tuple(found for found, live in lives.items() if not live)
    return Repaired(name, tuple(taken), dropped, foreign, len(reading) - len(taken))


def _lives(
    resources: list[Entry], wanted: Mapping[Reference, Entry], usual: Callable[[], Path]
) -> dict[Reference, Live | None]:
    provider = str(next(iter(wanted.values()))["provider"]).rpartition("::")[0]
    inputs: Entry = next(one["inputs"] for one in resources if one["urn"] == provider)
    with cluster_of(inputs, usual) as cluster, ThreadPoolExecutor(CONNECTIONS) as pool:
        found = survey(cluster, pool, wanted)
    lives: dict[Reference, Live | None] = {}
    for reference, live in found.items():
        if isinstance(live, Failure):
            raise ConsoleError(f"{reference}: {live.why}", RERUN)
        lives[reference] = live
    return lives


@contextmanager
def cluster_of(provider: Entry, usual: Callable[[], Path]) -> Generator[Cluster]:
    """The cluster of a provider, whose kubeconfig is a path, a text, or missing."""
    given, context = plain(provider.get("kubeconfig")) or "", plain(provider.get("context")) or None
    with TemporaryDirectory() as folder:  # only its owner can read it
        file = Path(given).expanduser() if given else usual()
        if "\n" in given or given.startswith("{"):
            file = Path(folder) / "kubeconfig"
            file.write_text(given, encoding="utf-8")
        with Cluster(file, context) as cluster:
            yield cluster


def reread(stacks: Stacks, name: str, urns: Sequence[str]) -> None:
    """Reads the present properties of resources; the program is not run.

    Raises:
        ConsoleError: Pulumi fails.
    """
    targets = [f"--target={urn}" for urn in urns] if len(urns) <= _TARGETS else []
    seen = Seen(lambda _: None)
    try:
        stacks.operate(name, "refresh", "--run-program=false", *targets, on_event=seen)
    except OperationError as error:
        raise ConsoleError(f"pulumi refresh of stack {name} failed: {seen.errors or error.what}", RERUN) from error
