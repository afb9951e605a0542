"""The guards of a running cluster: attempts by dry run, and their policies against those of the stack."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at, text_at
from gpu_tenancy.clouds.programs import DeniedError
from gpu_tenancy.doctor.guards import guard_rows
from gpu_tenancy.doctor.results import Question, Row, answers, judged
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.model.plan import Plan

_GROUP: Final = "admissionregistration.k8s.io"
_DEFAULTS: Final[Mapping[str, Json]] = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
"""What the API server adds to a policy, which changes nothing:
https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/validating-admission-policy-v1/."""
_FIX: Final = "deploy the stack again, and read the audit log to find who changed it"


def live_rows(
    cluster: Cluster, planned: Plan, manifests: Iterable[Mapping[str, Json]], team: str = ""
) -> Iterator[Row]:
    """The policies of guards and defaults, then an attempt for each guard in the namespace of a team, or of all.

    Raises:
        ConsoleError: the stack has no such team.
    """
    if team and team not in planned.guards.teams:
        raise ConsoleError(f"{team}: no team of the stack", f"specify one of {', '.join(planned.guards.teams)}")
    policies = [one for one in manifests if text_at(one, "apiVersion").partition("/")[0] == _GROUP]
    questions = (
        Question(
            text_at(one, "kind"), text_at(one, "metadata", "name"), "as in the stack", partial(_compared, cluster, one)
        )
        for one in policies
    )
    compared = [*answers(questions)]
    yield from compared
    differing = {row.subject for row in compared if row.verdict != "OK"}
    same = {row.subject for row in compared} - differing
    yield from guard_rows(cluster, planned, policies, team, as_rendered=same)


def _compared(cluster: Cluster, wanted: Mapping[str, Json]) -> Iterator[Row]:
    kind, name = text_at(wanted, "kind"), text_at(wanted, "metadata", "name")
    try:
        live = cluster.get(text_at(wanted, "apiVersion"), kind, name)
    except ApiError as error:
        if error.status == 403:  # noqa: PLR2004 - forbidden
            raise DeniedError(f"get on {kind.lower()} in {_GROUP}") from error
        raise
    differing = [*differences(map_at(wanted, "spec"), map_at(live, "spec"), "spec")] if live else []
    seen = f"{differing[0]} differs" if differing else "as in the stack" if live else "missing"
    yield judged(kind, name, "as in the stack", seen, fits=bool(live) and not differing, fix=_FIX)


def differences(wanted: Json, live: Json, path: str) -> Iterator[str]:
    """Paths at which a live value is not the wanted one, beside defaults of the API server."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key in {**wanted, **live}:
            yield from differences(
                wanted.get(key, _DEFAULTS.get(key)), live.get(key, _DEFAULTS.get(key)), f"{path}.{key}"
            )
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(item, other, f"{path}[{index}]")
    elif (wanted or live) and wanted != live:  # the API server leaves out empty lists
        yield path
