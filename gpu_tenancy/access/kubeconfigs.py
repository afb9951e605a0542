"""Kubeconfigs of people and service accounts, with the login of a cluster's cloud, and of MultiKueue managers.

A manager has a token of limited validity for a worker, in a Secret.
"""

import base64
import json
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_tenancy.access.planned import Access, shown
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.output import write_private
from gpu_tenancy.base.terminal import Place
from gpu_tenancy.clouds.clients import CONTAINER, AwsCli, DeniedError, Google, NoAnswerError, Run, run
from gpu_tenancy.cluster.contexts import connect
from gpu_tenancy.cluster.contexts import kubeconfig as kubeconfig_file
from gpu_tenancy.embedded.certificates import issue_client
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.contexts import Entry
from gpu_tenancy.model.kubeconfig import Server, aks_helper, eks_helper, gke_helper, kubeconfig, of_helper
from gpu_tenancy.model.names import EMBEDDED_CONTEXT
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.operators.kueue import KUBECONFIG_KEY, TEAM_LABEL, kueue_namespace, worker_access
from gpu_tenancy.model.plan.people import MEMBER, subject
from gpu_tenancy.model.project import declared
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.cluster import Cluster as Section
from gpu_tenancy.model.spec.cluster import ExistingCluster
from gpu_tenancy.model.spec.people import Person
from gpu_tenancy.model.yaml import parse

SECRETS: Final = ("client-key-data", "token", "password", "auth-provider")  # keys of a user entry with credentials
_MARK: Final = "gpu-tenancy"  # extension that marks our files
_OF_GROUP: Final = "gpu-tenancy:member"  # user name if only the group is known
SHORTEST, LONGEST = 600, 24 * 3600  # seconds of validity: the API server's minimum, and a day


def check_member(access: Access, team: str, who: Person) -> None:
    """Checks that the stack gives a person a role in a team, or in the whole cluster. Raises ConsoleError if not."""
    own = [grant for grant in access.grants if grant.subject == subject(who)]
    if not any(grant.namespace == team or (not grant.namespace and grant.role != MEMBER) for grant in own):
        known = sorted({shown(grant.subject, access.names) for grant in access.grants if grant.namespace == team})
        fix = f"add it to teams.{team}.members" + (f", or specify one of: {', '.join(known)}" if known else "")
        raise ConsoleError(f"--as: {who} has no role in team {team}", fix)


def of_context(entry: Entry, who: Person | None) -> tuple[dict[str, Any], str]:
    """A kubeconfig for a context of another one, and a note for the recipient.

    Credentials are not copied; the user entry then has the same name as in the other file. Raises ConsoleError if
    impersonation needs a copy of the user entry, and that has credentials.
    """
    embedded = [key for key in SECRETS if key in entry.user]
    cluster = with_authority(entry.cluster)
    if not embedded:
        return kubeconfig(entry.name, cluster, entry.user_name, impersonating(entry.user, who)), ""
    if who is not None:
        what = f"context {entry.name}: user {entry.user_name} has credentials in the file ({', '.join(embedded)})"
        fix = "leave --as out, and use kubectl --as and --as-group; or specify --as serviceaccount:NAMESPACE/NAME"
        raise ConsoleError(f"{what}, which are not copied", fix)
    note = f"credentials of user {entry.user_name} are not copied; list both files in KUBECONFIG, this one first"
    return kubeconfig(entry.name, cluster, entry.user_name, None), note


def impersonating(user: Mapping[str, Any], who: Person | None) -> dict[str, Any]:
    """A user entry that impersonates a person, which needs that right; the helper assumes an IAM role instead."""
    if who is None or who.kind == "role":
        return dict(user)
    if who.kind == "group":
        return {**user, "as": _OF_GROUP, "as-groups": [who.name]}
    return {**user, "as": who.name}


def plain(entry: Entry) -> dict[str, Any]:
    """A kubeconfig for the cluster of a context, without a login."""
    return kubeconfig(entry.name, with_authority(entry.cluster), entry.user_name, None)


def as_person(config: Mapping[str, Any], who: Person | None) -> dict[str, Any]:
    """A kubeconfig whose login impersonates a person."""
    (user,) = config["users"]
    return {**config, "users": [{**user, "user": impersonating(user["user"], who)}]}


@contextmanager
def connected(config: Mapping[str, Any]) -> Generator[Path]:
    """A temporary file with a kubeconfig that has no credentials."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        write_private(file, yaml.safe_dump(dict(config)))
        yield file


def with_token(
    cluster: Cluster, config: Mapping[str, Any], who: Person, seconds: float, longest: float = LONGEST
) -> dict[str, Any]:
    """A kubeconfig with a token of a service account (TokenRequest) instead of the caller's login.

    Raises ConsoleError if the account does not exist or the validity is out of bounds, ApiError without the right.
    """
    _check_validity(seconds, longest)
    namespace, _, account = who.name.partition("/")
    if not cluster.exists("v1", "ServiceAccount", account, namespace):
        fix = f"deploy the stack if it declares it; else run `kubectl create serviceaccount {account} -n {namespace}`"
        raise ConsoleError(f"--as: service account {namespace}/{account} does not exist", fix)
    token = cluster.token(namespace, account, seconds=int(seconds))
    (entry,) = config["clusters"]
    return kubeconfig(entry["name"], entry["cluster"], account, {"token": token})


def with_certificate(config: Mapping[str, Any], who: Person, seconds: float) -> dict[str, Any]:
    """A kubeconfig for the embedded platform with a client certificate of a person, signed by the platform's CA.

    Raises ConsoleError if the validity is out of bounds, or the platform issues no certificates.
    """
    _check_validity(seconds, LONGEST)
    me = subject(who)
    user, group = (me.name, None) if me.kind == "User" else (_OF_GROUP, me.name)
    (entry,) = config["clusters"]
    return kubeconfig(entry["name"], entry["cluster"], str(who), issue_client(Platform().places, user, group, seconds))


def _check_validity(seconds: float, longest: float) -> None:
    if not SHORTEST <= seconds <= longest:
        what = f"--for: {seconds:g} s is not between 10m and {longest / 3600:g}h"
        raise ConsoleError(what, "set a duration such as 1h")


def in_team(config: Mapping[str, Any], stack: str, team: str) -> str:
    """The text of a kubeconfig with the namespace of a team, marked as a file of ours."""
    (context,) = config["contexts"]
    name = f"{stack}-{team}"
    placed = {"name": name, "context": {**context["context"], "namespace": team}}
    mark = [{"name": _MARK, "extension": {"stack": stack, "team": team}}]
    whole = {**config, "contexts": [placed], "current-context": name, "extensions": mark}
    return yaml.safe_dump(whole, sort_keys=False)


def write(file: Path, text: str) -> None:
    """Writes a kubeconfig with mode 0600. Raises ConsoleError if the file exists and this command did not write it."""
    mark = f"\nextensions:\n- name: {_MARK}\n"
    if file.exists() and mark not in file.read_text(encoding="utf-8", errors="replace"):
        what = f"--out: {file} exists and was not written by this command"
        raise ConsoleError(what, "specify another file, or remove it")
    write_private(file, text)


def helper_config(cluster: Section, who: Person | None = None, run: Run = run) -> dict[str, Any] | None:
    """A kubeconfig with the login helper of a cloud, which assumes an IAM role `who`; None for an `ExistingCluster`.

    Raises ConsoleError if the cloud does not answer, or the caller may not ask.
    """
    if isinstance(cluster, ExistingCluster):
        return None
    try:
        match cluster:
            case AwsCluster():
                role = who.name if who and who.kind == "role" else None
                answer = AwsCli(run, cluster.region).ask("eks", "describe-cluster", name=cluster.name)["cluster"]
                server = Server(cluster.name, answer["endpoint"], answer["certificateAuthority"]["data"])
                return of_helper(server, eks_helper(cluster.name, cluster.region, role))
            case GcpCluster():
                return of_helper(_gke(cluster, run), gke_helper())
            case AzureCluster():
                return of_helper(_aks(cluster, run), aks_helper(), "kubelogin")
    except DeniedError as error:
        fix = f"ask an administrator of the cloud for {error}, or pass the cluster's kubeconfig with --kubeconfig"
        raise ConsoleError(f"cluster {cluster.name}: its address cannot be read", fix) from error
    except NoAnswerError as error:
        fix = "check cluster.name and its place in the stack, and that the cluster is deployed"
        raise ConsoleError(f"cluster {cluster.name}: {error}", fix) from error


def _gke(cluster: GcpCluster, run: Run) -> Server:
    url = f"{CONTAINER}/projects/{cluster.project}/locations/{cluster.location}/clusters/{cluster.name}"
    answer = Google(run).get(url, "container.clusters.get")
    if cluster.endpoint == "dns":
        name = answer["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"]
        return Server(cluster.name, f"https://{name}", authority=None)
    return Server(cluster.name, f"https://{answer['endpoint']}", answer["masterAuth"]["clusterCaCertificate"])


def _aks(cluster: AzureCluster, run: Run) -> Server:
    # AKS returns the CA only in a kubeconfig, whose user entry may have a key and is dropped.
    place = ("--subscription", cluster.subscription, "--resource-group", cluster.resource_group)
    done = run(("az", "aks", "get-credentials", *place, "--name", cluster.name, "--file", "-", "--only-show-errors"))
    if done.returncode:
        raise NoAnswerError(" ".join(done.stderr.split()))
    (entry,) = parse(done.stdout)["clusters"]
    return Server(cluster.name, entry["cluster"]["server"], entry["cluster"]["certificate-authority-data"])


def with_authority(cluster: dict[str, Any]) -> dict[str, Any]:
    """A cluster entry with an embedded CA. Raises OSError if the CA cannot be read."""
    rest = {key: value for key, value in cluster.items() if key != "certificate-authority"}
    if "certificate-authority" in cluster and "certificate-authority-data" not in cluster:
        content = Path(cluster["certificate-authority"]).read_bytes()
        rest["certificate-authority-data"] = base64.b64encode(content).decode()
    return rest


def source(cluster: Section, place: Place) -> tuple[Path, str | None]:
    """Kubeconfig and context that a user names, else of the stack, else kubectl's. Raises ConsoleError if missing."""
    given, context, embedded = place
    if embedded:
        with connect(place):
            return Platform().kubeconfig, EMBEDDED_CONTEXT
    section = cluster if isinstance(cluster, ExistingCluster) else None
    named = Path(section.kubeconfig).expanduser() if section and section.kubeconfig else None
    return kubeconfig_file(given or named), context or (section.context if section and not given else None)


_LONGEST_OF_MANAGER: Final = 30 * 24 * 3600  # maximum validity of a manager's token in seconds


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, and its manager."""

    stack: Stack  # of the worker
    account: Person  # of the manager, in the worker's cluster
    manager: str  # stack
    secret: str  # in Kueue's namespace of the manager


def worker_of(name: str, project: Path | None) -> Worker:
    """A worker by the name of its stack.

    Raises ConsoleError if the stack does not exist or is not a worker, StackError if its file or its manager's is
    invalid.
    """
    stack = declared(name, project).stack
    access = worker_access(Environment(stack))
    if access is None or stack.multikueue is None or stack.multikueue.manager is None:
        raise ConsoleError(f"stack {name} is not a MultiKueue worker", "set multikueue.manager, or specify a worker")
    manager = stack.multikueue.manager
    managing = declared(manager, project).stack.multikueue
    # A worker is valid only if its manager names it.
    secret = next(worker.secret for worker in (managing.workers if managing else ()) if worker.stack == name)
    return Worker(stack, Person("serviceaccount", f"{access.account.namespace}/{access.account.name}"), manager, secret)


def worker_config(cluster: Cluster, config: Mapping[str, Any], worker: Worker, seconds: float) -> dict[str, Any]:
    """A kubeconfig with a token of the manager's account in a worker.

    Raises ConsoleError if the worker's stack is not deployed or the validity out of bounds, ApiError without the right.
    """
    namespace, _, account = worker.account.name.partition("/")
    if not cluster.exists("v1", "ServiceAccount", account, namespace):
        raise ConsoleError(f"service account {namespace}/{account} does not exist", "deploy the stack of the worker")
    return with_token(cluster, config, worker.account, seconds, _LONGEST_OF_MANAGER)


def secret(worker: Worker, config: Mapping[str, Any]) -> dict[str, Json]:
    """The manager's Secret for a worker, with a kubeconfig; Kueue watches it."""
    text = yaml.safe_dump(dict(config), sort_keys=False)
    data: Json = {KUBECONFIG_KEY: base64.b64encode(text.encode()).decode()}
    metadata: Json = {"name": worker.secret, "namespace": kueue_namespace(), "labels": dict([TEAM_LABEL])}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


def expiry(config: Mapping[str, Any]) -> str:
    """Expiry of a kubeconfig's token; the API server may have shortened it."""
    (user,) = config["users"]
    payload = user["user"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"{datetime.fromtimestamp(claims['exp'], UTC):%Y-%m-%d %H:%M} UTC"
