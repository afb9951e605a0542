"""The kubeconfig by which a MultiKueue manager reaches a worker: a bounded token, and the Secret that has it."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_tenancy.access.kubeconfigs import with_token
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.operators.kueue import KUBECONFIG_KEY, TEAM_LABEL, kueue_namespace, worker_access
from gpu_tenancy.model.project import declared
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import Person

LONGEST: Final = 30 * 24 * 3600
"""Seconds that a token of a manager is valid at most."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker and what its manager has of it.

    Attributes:
        stack: of the worker.
        account: of the manager, in the cluster of the worker.
        manager: stack of the manager.
        secret: its Secret for this worker, in Kueue's namespace.
    """

    stack: Stack
    account: Person
    manager: str
    secret: str


def worker_of(name: str, project: Path | None) -> Worker:
    """A worker by the name of its stack.

    Raises:
        ConsoleError: the stack does not exist, or is no worker.
        StackError: the file of the worker or of its manager is invalid.
    """
    stack = declared(name, project).stack
    access = worker_access(Environment(stack))
    if access is None or stack.multikueue is None or stack.multikueue.manager is None:
        raise ConsoleError(f"stack {name} is not a MultiKueue worker", "set multikueue.manager, or specify a worker")
    manager = stack.multikueue.manager
    managing = declared(manager, project).stack.multikueue
    # A worker is valid only if its manager names it.
    secret = next(worker.secret for worker in (managing.workers if managing else ()) if worker.stack == name)
    account = Person("serviceaccount", f"{access.account.namespace}/{access.account.name}")
    return Worker(stack, account, manager, secret)


def worker_config(cluster: Cluster, config: Mapping[str, Any], worker: Worker, seconds: float) -> dict[str, Any]:
    """A kubeconfig with a token of the manager's account in a worker.

    Raises:
        ConsoleError: the stack of the worker is not deployed, or the validity is out of bounds.
        ApiError: the caller may not create the token.
    """
    namespace, _, account = worker.account.name.partition("/")
    if not cluster.exists("v1", "ServiceAccount", account, namespace):
        raise ConsoleError(f"service account {namespace}/{account} does not exist", "deploy the stack of the worker")
    return with_token(cluster, config, worker.account, seconds, LONGEST)


def write_secret(manager: Cluster, worker: Worker, config: Mapping[str, Any]) -> str:
    """Writes a kubeconfig to the manager's Secret for a worker; Kueue reads it again when it changes.

    Returns:
        What was written.

    Raises:
        ApiError: the caller may not write it.
    """
    namespace = kueue_namespace()
    text = yaml.safe_dump(dict(config), sort_keys=False)
    manager.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": worker.secret,
                "namespace": namespace,
                "labels": dict([TEAM_LABEL]),
            },
            "type": "Opaque",
            "data": {KUBECONFIG_KEY: base64.b64encode(text.encode()).decode()},
        }
    )
    return f"Secret {namespace}/{worker.secret} of stack {worker.manager}: written, valid until {expiry(config)}"


def expiry(config: Mapping[str, Any]) -> str:
    """When the token of a kubeconfig expires; the API server may have made it shorter than asked."""
    (user,) = config["users"]
    payload = user["user"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return f"{datetime.fromtimestamp(claims['exp'], UTC):%Y-%m-%d %H:%M} UTC"
