"""Secrets of a team: from the Pulumi config, or copied from a cloud's secret manager by External Secrets."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import pulumi
from pulumi.runtime.config import get_config
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret, ServiceAccount
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.base.texts import base64_of
from gpu_tenancy.model.plan.secrets import READER, CopiedSecret, References, SecretReader, Store, TeamSecrets
from gpu_tenancy.model.spec.secrets import CONFIG, set_command

from .objects import Component, Options

_API: Final = "external-secrets.io/v1"  # https://external-secrets.io/latest/api/externalsecret/
CHECKSUM: Final = "gpu-tenancy.dev/secrets"  # annotation of servers' pods: a change of their Secrets restarts them
_CHECKSUM_DIGITS: Final = 4
"""Hexadecimal digits: a change is missed once in 65,536 times, and readers of pods learn only 16 bits of a value."""


class NamespaceSecrets(Component):
    """The Secrets of a team's namespace that this program makes, or has External Secrets make (`made`).

    Values of the Pulumi config are secret outputs: encrypted in the state, `[secret]` in previews. A copied Secret
    belongs to its ExternalSecret; the team's own ServiceAccount reads it in the cloud. Not managed here: Secrets
    created by hand, secrets in the cloud, and External Secrets itself. Workloads need `made` before their first pod.
    """

    def __init__(self, name: str, namespace: str, secrets: TeamSecrets, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:NamespaceSecrets", name, opts)
        self.made: list[pulumi.Resource] = [
            Secret(
                f"{name}-{called}",
                metadata={"name": called, "namespace": namespace},
                type=secret.type,
                # Not stringData, which the API server never removes keys from under server-side apply.
                data={key: config_value(value).apply(base64_of) for key, value in sorted(secret.config.items())},
                opts=self.own,
            )
            for called, secret in secrets.of_config.items()
        ]
        if secrets.reader:
            self._copied(name, namespace, secrets, secrets.reader)

    def _copied(self, name: str, namespace: str, secrets: TeamSecrets, reader: SecretReader) -> None:
        """The Secrets that External Secrets copies, and the ServiceAccount with which it logs in to the cloud."""
        metadata: ObjectMetaArgsDict = {"name": READER, "namespace": reader.team}
        if reader.annotations:
            metadata["annotations"] = dict(reader.annotations)
        account = ServiceAccount(
            f"{name}-reader", metadata=metadata, automount_service_account_token=False, opts=self.own
        )
        stores: dict[Store, CustomResource] = {}
        for store in secrets.stores:
            place: ObjectMetaArgsDict = {"name": store.name, "namespace": namespace}
            spec, after = {"provider": _provider(store, reader)}, self.after(account)
            stores[store] = CustomResource(
                f"{name}-{store.name}", _API, "SecretStore", metadata=place, spec=spec, opts=after
            )
        for secret in secrets.copied:
            place = {"name": secret.name, "namespace": namespace}
            after = self.after(stores[secret.store])
            copy = CustomResource(
                f"{name}-{secret.name}", _API, "ExternalSecret", metadata=place, spec=_copy(secret), opts=after
            )
            self.made.append(copy)


def config_value(name: str) -> pulumi.Output[str]:
    """A secret value of the Pulumi config, a placeholder in an offline preview; raises RunError if it is missing."""
    value = get_config(f"{CONFIG}:{name}")
    if not value:
        raise pulumi.RunError(f"{CONFIG}:{name}: is not in the Pulumi config; run `{set_command(name)}`")
    return pulumi.Output.secret(value)


def checksums(references: References) -> dict[str, pulumi.Output[str]]:
    """The annotation of pods that use Secrets with values of the Pulumi config; empty for other pods."""
    # It is secret too. Only servers have it: a changed value must not restart a job, which reads it when it starts.
    if not references.from_config:
        return {}
    names = sorted({value for _, values in references.from_config for value in values})
    return {CHECKSUM: pulumi.Output.all(*map(config_value, names)).apply(checksum)}


def checksum(values: list[str]) -> str:
    """A short checksum, from which the values cannot be found."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(hashlib.sha256(value.encode()).digest())
    return digest.hexdigest()[:_CHECKSUM_DIGITS]


def _provider(store: Store, reader: SecretReader) -> Mapping[str, Any]:
    """The cloud's secret manager, and the identity that reads it."""
    # https://external-secrets.io/latest/provider/aws-access/,
    # https://external-secrets.io/latest/provider/google-secrets-manager/,
    # https://external-secrets.io/latest/provider/azure-key-vault/
    account = {"name": READER}
    if store.manager == "aws":
        auth: dict[str, Any] = {"jwt": {"serviceAccountRef": account}}
        return {"aws": {"service": "SecretsManager", "region": store.place, "auth": auth}}
    if store.manager == "gcp":
        auth = {"workloadIdentity": {"serviceAccountRef": account, **reader.cluster}}
        return {"gcpsm": {"projectID": store.place, "auth": auth}}
    vault = f"https://{store.place}.vault.azure.net"
    return {"azurekv": {"authType": "WorkloadIdentity", "vaultUrl": vault, "serviceAccountRef": account}}


def _copy(secret: CopiedSecret) -> Mapping[str, Any]:
    remote = {"key": secret.remote}
    keys = [
        {"secretKey": key, "remoteRef": {**remote, "property": field} if field else remote}
        for key, field in secret.keys
    ]
    return {
        "refreshInterval": f"{secret.refresh}s",
        "secretStoreRef": {"kind": "SecretStore", "name": secret.store.name},
        # Pods that run keep the last value if the secret in the cloud is deleted.
        "target": {
            "name": secret.name,
            "creationPolicy": "Owner",
            "deletionPolicy": "Retain",
            "template": {"type": secret.type},
        },
        **({"data": keys} if keys else {"dataFrom": [{"extract": remote}]}),
    }
