"""The preflight on Azure, with recorded answers that have the fields of Microsoft's models."""

from typing import Any

import pytest
from azure.mgmt.containerservice.models import KubernetesVersion, KubernetesVersionListResult
from builders import pool, team
from doctor_builders import AzureSubscription, Data, row, rows_of

from gpu_tenancy.base.errors import ConsoleError

HOME = "/subscriptions/5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d"
SUBNET = f"{HOME}/resourceGroups/network/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes"
FAMILY = "StandardNDSH100v5Family"


def stack() -> Data:
    """Four nodes of 96 vCPUs."""
    return {
        "cluster": {
            "cloud": "azure", "name": "ml", "subscription": HOME.rpartition("/")[2], "resourceGroup": "ml",
            "location": "eastus", "subnet": SUBNET, "provides": ["networkPolicies"],
        },
        "pools": {"h100": pool("Standard_ND96isr_H100_v5", {"min": 0, "max": 4}, zones=["1"])},
        "teams": {"a": team(gpus={"h100": {"guaranteed": 8}})},
    }  # fmt: skip


def sku(**changes: Any) -> Data:
    return {
        "value": [
            {
                "resourceType": "virtualMachines",
                "name": "Standard_ND96isr_H100_v5",
                "family": FAMILY,
                "locationInfo": [{"location": "eastus", "zones": ["1", "2"]}],
                "restrictions": [],
                **changes,
            }
        ]
    }


def usage(limit: int = 400, used: int = 0) -> Data:
    name = {"value": FAMILY.lower(), "localizedValue": "Standard NDSH100v5 Family vCPUs"}
    return {"value": [{"unit": "Count", "currentValue": used, "limit": limit, "name": name}]}


def subscription(**changes: Any) -> AzureSubscription:
    """A subscription that has all that the stack needs."""
    answers: Data = {
        "compute": {"registrationState": "Registered"},
        "feature": {"properties": {"state": "Registered"}, "name": "Microsoft.Compute/EncryptionAtHost"},
        "skus": sku(),
        "usages": usage(),
        "addresses": {"value": [{"currentValue": 5.0, "id": SUBNET, "limit": 251.0, "unit": "Count"}]},
        "rights": {"value": [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Delete"]}]},
        "cluster": {"properties": {"provisioningState": "Succeeded"}},
    } | changes
    ends = {
        "compute": "/providers/Microsoft.Compute",
        "feature": "/features/EncryptionAtHost",
        "skus": "/Microsoft.Compute/skus",
        "usages": "/locations/eastus/usages",
        "addresses": "/virtualNetworks/ml/usages",
        "rights": "/Microsoft.Authorization/permissions",
        "cluster": "/managedClusters/ml",
        "versions": "/kubernetesVersions",
    }
    others = ("ContainerService", "Network", "Storage")
    registered = {f"/providers/Microsoft.{name}": answers["compute"] for name in others}
    return AzureSubscription(registered | {ends[name]: answer for name, answer in answers.items()})


def test_a_ready_subscription_has_all_and_each_question_is_a_get_request() -> None:
    ready = subscription()
    rows = rows_of(stack(), ready)
    assert [(row.check, row.subject) for row in rows if row.verdict != "OK"] == []
    assert {row.check for row in rows} == {"provider", "feature", "zones", "quota", "subnets", "rights", "cluster"}
    assert len(ready.asked) == 9  # The fake fails for any program or method but `az rest --method get`.


def test_the_quota_is_that_of_the_machines_family() -> None:
    found = row(rows_of(stack(), subscription(usages=usage(192))), "quota", FAMILY)
    assert (found.verdict, found.needed, found.available) == ("missing", "384 vCPUs", "192 vCPUs, 0 in use")
    busy = row(rows_of(stack(), subscription(usages=usage(400, 200))), "quota", FAMILY)
    assert busy.verdict == "unknown"


@pytest.mark.parametrize(
    ("changes", "available"),
    [
        ({"restrictions": [{"type": "Location", "values": ["eastus"], "reasonCode": "NotAvailableForSubscription"}]},
         "not available in eastus"),
        ({"restrictions": [{"type": "Zone", "values": ["eastus"], "restrictionInfo": {"zones": ["1"]}}]}, "zones 2"),
    ],
)  # fmt: skip
def test_a_machine_type_that_is_restricted_is_missing(changes: Data, available: str) -> None:
    found = row(rows_of(stack(), subscription(skus=sku(**changes))), "zones", "h100")
    assert (found.verdict, found.available) == ("missing", available)


def test_a_right_that_is_not_granted_and_a_feature_that_is_not_registered_are_missing() -> None:
    lacking = subscription(
        rights={"value": [{"actions": ["Microsoft.ContainerService/*"], "notActions": []}]},
        feature={"properties": {"state": "NotRegistered"}},
    )
    rows = rows_of(stack(), lacking)
    assert row(rows, "rights", "managedClusters/read").verdict == "OK"
    assert row(rows, "rights", "subnets/join").verdict == "missing"
    assert row(rows, "feature", "Encryption").fix == (
        "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`"
    )


ACCOUNT = f"{HOME}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/mldata"
VAULT = f"{HOME}/resourceGroups/keys/providers/Microsoft.KeyVault/vaults/ml-vault"


def with_data(**dataset: Any) -> Data:
    """A cluster to create, whose team has a dataset and a secret."""
    sections = stack()
    sections["cluster"]["create"] = {
        "version": "1.35",
        "system": {"machine": "Standard_D16s_v5"},
        "secretsKey": "https://ml-vault.vault.azure.net/keys/aks/0123456789abcdef0123456789abcdef",
        "vault": VAULT,
        "logs": f"{HOME}/resourceGroups/logs/providers/Microsoft.OperationalInsights/workspaces/ml",
        "tenant": "11111111-2222-3333-4444-555555555555",
        "admins": ["22222222-2222-3333-4444-555555555555"],
    }
    sections["datasets"] = {"corpus": {"bucket": "az://mldata/corpus", **dataset}}
    sections["teams"]["a"]["secrets"] = {"hub": {"from": "azure://keys/ml-vault/hub"}}
    return sections


def for_a_new_cluster(**changes: Any) -> AzureSubscription:
    """A subscription that has the version and the system nodes, too."""
    skus = {"value": [*sku()["value"], *sku(name="Standard_D16s_v5")["value"]]}
    return subscription(versions={"values": [{"version": "1.35"}]}, skus=skus, usages=usage(1000), **changes)


def test_rights_for_data_are_checked_on_each_existing_storage_account_and_vault() -> None:
    ready = for_a_new_cluster()
    rows = rows_of(with_data(account=ACCOUNT), ready)
    assert [(row.check, row.subject) for row in rows if row.verdict != "OK"] == []
    permissions = {
        path.partition("/providers/Microsoft.Authorization")[0] for path in ready.asked if "permissions" in path
    }
    assert permissions == {f"{HOME}/resourcegroups/ml", ACCOUNT, VAULT}
    contributor = {"value": [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}]}
    lacking = rows_of(with_data(account=ACCOUNT), for_a_new_cluster(rights=contributor))
    missing = {row.fix for row in lacking if row.verdict == "missing"}
    assert {f"assign a role with it in {name}" for name in ("storageAccounts/mldata", "vaults/ml-vault")} <= missing


def test_a_storage_account_to_create_needs_its_provider_and_rights_in_the_resource_group() -> None:
    ready = for_a_new_cluster()
    rows = rows_of(with_data(create=True), ready)
    assert row(rows, "provider", "Microsoft.Storage").verdict == "OK"
    assert row(rows, "rights", "Microsoft.Storage/storageAccounts/write").verdict == "OK"
    assert not [path for path in ready.asked if "mldata" in path]


def test_a_small_subnet_is_missing_and_a_forbidden_query_is_unknown() -> None:
    denied = "ERROR: Forbidden({'code':'AuthorizationFailed','message':\"no authorization to perform action 'Microsoft.Network/virtualNetworks/usages/read' over scope\"})"  # noqa: E501
    found = row(rows_of(stack(), subscription(addresses=denied)), "subnets", "nodes")
    assert (found.verdict, found.fix) == ("unknown", "grant Microsoft.Network/virtualNetworks/usages/read")
    small = {"value": [{"currentValue": 0.0, "id": SUBNET, "limit": 3.0}]}
    assert row(rows_of(stack(), subscription(addresses=small)), "subnets", "nodes").verdict == "missing"


def test_no_query_is_sent_without_a_login() -> None:
    with pytest.raises(ConsoleError, match="az is not logged in"):
        rows_of(stack(), subscription(compute="ERROR: Please run 'az login' to setup account."))


def test_versions_are_read_as_the_package_of_aks_has_them() -> None:
    answer = KubernetesVersionListResult(values_property=[KubernetesVersion(version="1.35")]).as_dict()
    assert answer["values"][0]["version"] == "1.35"
