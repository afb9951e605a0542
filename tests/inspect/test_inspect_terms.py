"""What a namespace asks of pods and gives them, as a researcher may read it."""

from typing import Any, Final, cast

import pytest
from live_builders import Data, meta, state

from gpu_tenancy.cluster.reading import Missing
from gpu_tenancy.jobs.terms import Terms, read_terms
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError

LEVEL: Final = "pod-security.kubernetes.io/enforce"
FACTS: Final = "guards.gpu-tenancy.dev/"
ROOT: Final = 'pods "train-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'


class Api:
    """An API server that has an account, and refuses pods with a message."""

    def __init__(self, *, account: bool = True, readable: bool = True, refusal: str = "") -> None:
        self.account, self.readable, self.refusal, self.asked = account, readable, refusal, list[Data]()

    def exists(self, *_: str) -> bool:
        if not self.readable:
            raise ApiError(FORBIDDEN, "Forbidden", "you may not")
        return self.account

    def create(self, manifest: Data, *, dry_run: bool) -> Data:
        assert dry_run
        self.asked.append(manifest)
        if self.refusal:
            raise ApiError(FORBIDDEN, "Forbidden", self.refusal)
        return manifest


def terms(api: Api, *spaces: Data) -> Terms:
    hidden = () if spaces else (Missing("Namespace", "namespaces", "you may not list namespaces", "an admin"),)
    return read_terms(cast("Cluster", api), "research", state(hidden, Namespace=[*spaces]), "i:1")


def space(level: str, **facts: str) -> Data:
    return {"metadata": meta("research", labels={LEVEL: level}, annotations={FACTS + k: v for k, v in facts.items()})}


CASES: Final[dict[str, tuple[Api, tuple[Data, ...], Terms]]] = {
    "a readable namespace that rejects root": (
        Api(),
        (space("restricted"),),
        Terms(restricted=True, account="workload"),
    ),
    "a readable namespace that admits root": (Api(), (space("baseline"),), Terms(account="workload")),
    "facts of the guards": (
        Api(),
        (space("baseline", **{"default-priority": "low", "default-deadline": "60"}),),
        Terms(account="workload", priority="low", deadline=60),
    ),
    "a hidden namespace that rejects root": (Api(refusal=ROOT), (), Terms(restricted=True, account="workload")),
    "a hidden namespace that admits root": (Api(), (), Terms(account="workload")),
    "a hidden namespace with another refusal": (Api(refusal="exceeded quota"), (), Terms(account="workload")),
    "a namespace without the account of a stack": (Api(account=False), (space("baseline"),), Terms()),
    "accounts that may not be read": (Api(readable=False), (space("baseline"),), Terms()),
}


@pytest.mark.parametrize(("api", "spaces", "expected"), CASES.values(), ids=CASES)
def test_terms_are_read_from_the_namespace_or_asked_of_the_api_server(
    api: Any, spaces: tuple[Data, ...], expected: Terms
) -> None:
    assert terms(api, *spaces) == expected
    assert len(api.asked) == (0 if spaces else 1)
