"""The preflight on Google Cloud and Azure, with recorded answers in the shapes of their own descriptions."""

import json
import urllib.request
from subprocess import CompletedProcess
from typing import Any
from urllib.error import URLError

import pytest
from azure.mgmt.containerservice.models import KubernetesVersion, KubernetesVersionListResult
from builders import pool, team
from doctor_builders import AzureSubscription, Data, GoogleProject, row, rows_of

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.clouds.clients import NoAnswerError, send

CREATE: Data = {
    "version": "1.34", "network": "ml", "subnetwork": "ml-us-central1", "podRange": "pods", "serviceRange": "services",
    "nodeLocations": ["us-central1-a"], "system": {"machine": "n2-standard-16", "nodes": {"min": 2, "max": 2}},
}  # fmt: skip


def stack(**cluster: Any) -> Data:
    """Four nodes with eight L4s each on demand, and two of spot A100s."""
    return {
        "cluster": {
            "cloud": "gcp", "name": "ml", "project": "example-ml", "location": "us-central1",
            "provides": ["networkPolicies"], **cluster,
        },
        "pools": {
            "l4": pool("g2-standard-96", {"min": 0, "max": 4}, zones=["us-central1-a"]),
            "a100": pool("a2-highgpu-8g", {"min": 0, "max": 2}, zones=["us-central1-a"], capacity="spot"),
        },
        "teams": {"a": team(gpus={"l4": {"guaranteed": 8}})},
    }  # fmt: skip


def granted(url: str, rights: list[str]) -> Data:  # noqa: ARG001 - of all places
    return {"permissions": rights}


def quotas(**metrics: tuple[int, int]) -> Data:
    """Limit and usage of quotas."""
    listed = [{"metric": name, "limit": float(limit), "usage": float(used)} for name, (limit, used) in metrics.items()]
    return {"name": "us-central1", "quotas": listed}


REGION = {
    "NVIDIA_L4_GPUS": (64, 8),
    "PREEMPTIBLE_NVIDIA_A100_GPUS": (16, 0),
    "N2_CPUS": (32, 0),
    "SSD_TOTAL_GB": (2000, 0),
}
PROJECT = {"GPUS_ALL_REGIONS": (56, 8), "CPUS_ALL_REGIONS": (640, 0)}


def project(**changes: Any) -> GoogleProject:
    methods = {
        "project": "compute.projects.get",
        "repository": "artifactregistry.projects.locations.repositories.testIamPermissions",
        "regions": "compute.regions.get",
        "machines": "compute.machineTypes.aggregatedList",
        "subnetwork": "compute.subnetworks.get",
        "versions": "container.projects.locations.getServerConfig",
        "cluster": "container.projects.locations.clusters.get",
        "rights": "cloudresourcemanager.projects.testIamPermissions",
        "service": "serviceusage.services.get",
        "bucket": "storage.buckets.testIamPermissions",
        "folder": "storage.managedFolders.testIamPermissions",
        "secret": "secretmanager.projects.secrets.testIamPermissions",
    }
    answers: Data = {
        "project": quotas(**PROJECT),
        "regions": quotas(**REGION),
        "machines": {
            "items": {
                "zones/us-central1-a": {"machineTypes": [{"name": "any", "zone": "us-central1-a"}]},
                "zones/us-east1-b": {"machineTypes": [{"name": "any", "zone": "us-east1-b"}]},
                "zones/us-central1-b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
            }
        },
        "subnetwork": {
            "name": "ml-us-central1",
            "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.8.0.0/14"}],
            "utilizationDetails": {
                "ipv4Utilizations": [
                    {"totalAllocatedIp": "6", "totalFreeIp": "246"},
                    {"rangeName": "pods", "totalAllocatedIp": "0", "totalFreeIp": "262144"},
                ]
            },
        },
        "versions": {"validMasterVersions": ["1.34.1-gke.1", "1.33.5-gke.2"]},
        "cluster": {"name": "ml", "status": "RUNNING"},
        "service": {"name": "projects/1/services/x", "state": "ENABLED"},
        **dict.fromkeys(("rights", "bucket", "folder", "secret", "repository"), granted),
    }
    return GoogleProject({methods[name]: answer for name, answer in (answers | changes).items()})


def asked(sections: Data, google: GoogleProject) -> list[Any]:
    return rows_of(sections, google.gcloud, google)


def test_a_ready_project_has_all_and_each_question_only_reads() -> None:
    ready = project()
    rows = asked(stack(create=CREATE), ready)
    wrong = [row for row in rows if row.verdict != "OK"]
    assert [(row.check, row.subject, row.verdict) for row in wrong] == [], wrong
    assert {row.check for row in rows} == {"rights", "API", "quota", "zones", "subnets", "Kubernetes"}
    assert "cluster" in {row.check for row in asked(stack(), project())}
    # The fake fails for any request that is neither GET nor testIamPermissions.
    assert set(ready.asked) >= {"compute.regions.get", "cloudresourcemanager.projects.testIamPermissions"}


def test_checks_storage_apis_only_where_claims_use_them() -> None:
    sections = stack(create=CREATE)
    storage = {"fast": {"size": "9000Gi", "mode": "shared", "class": "managed-lustre"}}
    sections["teams"] = {name: {**team, "storage": storage} for name, team in sections["teams"].items()}
    apis = {row.subject for row in asked(sections, project()) if row.check == "API"}
    without = {row.subject for row in asked(stack(create=CREATE), project()) if row.check == "API"}
    assert apis - without == {"lustre.googleapis.com", "servicenetworking.googleapis.com"}


def test_gpus_in_use_are_missing_only_for_new_clusters() -> None:
    few = quotas(NVIDIA_L4_GPUS=(32, 8))
    assert row(asked(stack(), project(regions=few)), "quota", "NVIDIA_L4_GPUS").needed == "32 GPUs"
    for sections, verdict in ((stack(create=CREATE), "missing"), (stack(), "unknown")):
        found = row(asked(sections, project(regions=few)), "quota", "NVIDIA_L4_GPUS")
        assert (found.verdict, found.available) == (verdict, "32 GPUs, 8 in use")
    spot = row(asked(stack(), project(regions=few)), "quota", "PREEMPTIBLE_NVIDIA_A100_GPUS")
    assert (spot.verdict, spot.available) == ("unknown", "not listed by the region")


def with_data() -> Data:
    """A team with a bucket to create, an existing bucket and an existing folder, and a secret of another project."""
    sections = stack(create=CREATE)
    sections["datasets"] = {
        "own": {"bucket": "gs://ml-own/v1", "create": True},
        "corpus": {"bucket": "gs://ml-corpus"},
        "evals": {"bucket": "gs://ml-evals/set/v2"},
    }
    sections["teams"]["a"]["secrets"] = {"hub": {"from": "gcp://other-project/hub"}}
    return sections


NEW = stack(create=CREATE)
FEW_RIGHTS = {"rights": {"permissions": ["container.clusters.create"]}}
OTHER_ZONE = {"machines": {"items": {"zones/us-central1-f": {"machineTypes": [{"name": "any"}]}}}}
OTHER_RANGE: Data = {"subnetwork": {"secondaryIpRanges": [{"rangeName": "gke-pods"}], "utilizationDetails": {}}}
NO_DATA: Data = {"folder": 404, "bucket": {"permissions": []}, "secret": 403}
REPOSITORY = "projects/shared/locations/europe/repositories/base"
FOLDER = "run `gcloud storage managed-folders create gs://ml-evals/set/v2/`"
ENABLE = "run `gcloud services enable container.googleapis.com --project example-ml`"
ROWS: dict[str, tuple[Data, Data, str, dict[str, str]]] = {
    "all rights": (NEW, {}, "rights project example-ml", {"verdict": "OK", "needed": "18 rights"}),
    "a missing right": (NEW, FEW_RIGHTS, "rights iam.serviceAccounts.actAs",
                        {"verdict": "missing", "fix": "grant a role with it in project example-ml"}),
    "no GPUs of a new project": (NEW, {"project": quotas(GPUS_ALL_REGIONS=(0, 0))}, "quota GPUS_ALL_REGIONS",
        {"verdict": "missing", "needed": "48 GPUs", "fix": "request an increase of GPUS_ALL_REGIONS in all regions at"
         " https://console.cloud.google.com/iam-admin/quotas?project=example-ml"}),
    "CPUs of all regions": (NEW, {"project": quotas(CPUS_ALL_REGIONS=(500, 0))}, "quota CPUS_ALL_REGIONS",
                            {"verdict": "missing", "needed": "608 CPUs"}),
    "CPUs of a family": (NEW, {"regions": quotas(N2_CPUS=(24, 0))}, "quota N2_CPUS",
                         {"verdict": "missing", "needed": "32 CPUs"}),
    "boot disks": (NEW, {"regions": quotas(SSD_TOTAL_GB=(500, 0))}, "quota SSD_TOTAL_GB",
                   {"verdict": "missing", "needed": "1,400 GB", "available": "500 GB, 0 in use"}),
    "a disabled API": (NEW, {"service": {"state": "DISABLED"}}, "API container.", {"fix": ENABLE}),
    "another zone": (NEW, OTHER_ZONE, "zones l4", {"fix": "set pools.l4.zones: [us-central1-f]"}),
    "another range": (NEW, OTHER_RANGE, "subnets pods", {"fix": "set cluster.create.podRange to one of gke-pods"}),
    "a subnetwork without counts": (NEW, OTHER_RANGE, "subnets nodes", {"verdict": "unknown"}),
    "an unknown version": (NEW, {"versions": {"validMasterVersions": ["1.36.0-gke.1"]}}, "Kubernetes 1.34",
                           {"fix": "set cluster.create.version to one of 1.36"}),
    "a part of the range for each node": (NEW, {}, "subnets pods",
                                          {"needed": "2,048 addresses", "available": "262,144 free"}),
    "a forbidden query": (stack(), {"regions": 403}, "quota us-central1",
                          {"verdict": "unknown", "fix": "grant compute.regions.get"}),
    "no such cluster": (stack(), {"cluster": 404}, "cluster ml", {"available": "no such cluster"}),
    "no such folder": (with_data(), NO_DATA, "rights gs://ml-evals/set/v2", {"fix": FOLDER, "available": "not found"}),
    "a repository of another project": ({**NEW, "images": {"registries": [REPOSITORY]}}, {"repository": {}},
        "rights artifactregistry.repositories.setIamPolicy", {"verdict": "missing", "fix":
        "grant a role with it on repository base in europe of project shared"}),
    "a missing right on a bucket": (with_data(), NO_DATA, "rights storage.buckets.setIamPolicy on",
                                    {"fix": "grant a role with it on gs://ml-corpus"}),
    "a forbidden secret": (with_data(), NO_DATA, "rights secret hub of project other-project", {"verdict": "unknown"}),
}  # fmt: skip


@pytest.mark.parametrize(("sections", "answers", "about", "expected"), ROWS.values(), ids=ROWS)
def test_google_has_a_row_of(sections: Data, answers: Data, about: str, expected: dict[str, str]) -> None:
    check, _, subject = about.partition(" ")
    found = row(asked(sections, project(**answers)), check, subject)
    assert {field: getattr(found, field) for field in expected} == expected


def test_checks_rights_on_buckets_folders_and_secrets() -> None:
    of_project: list[str] = []
    urls: list[str] = []

    def folder(url: str, rights: list[str]) -> Data:
        urls.append(url)
        return {"permissions": rights}

    def rights(_: str, asked: list[str]) -> Data:
        of_project.extend(asked)
        return {"permissions": asked}

    rows = asked(with_data(), project(folder=folder, rights=rights))
    assert [(row.check, row.subject) for row in rows if row.verdict != "OK"] == []
    (url,) = urls  # not of the bucket that the stack creates
    assert "/b/ml-evals/managedFolders/set%2Fv2%2F/iam/testPermissions?permissions=" in url
    assert {"storage.buckets.create", "storage.managedFolders.setIamPolicy"} <= {*of_project}  # of the created bucket
    assert "secretmanager.secrets.setIamPolicy" not in of_project
    places = {row.subject for row in rows if row.check == "rights"}
    assert places == {
        "project example-ml",
        "gs://ml-corpus",
        "gs://ml-evals/set/v2",
        "secret hub of project other-project",
    }


def test_checks_apis_that_resources_use() -> None:
    base = {"compute", "container", "iam"}
    provider = "projects/1/locations/global/workloadIdentityPools/jobs/providers/jobs"
    robots = stack(create=CREATE, identityProvider=provider)
    robots["teams"]["a"]["serviceAccounts"] = {"ci": {"role": "viewer", "subject": "repo:x"}}
    new = base | {"cloudkms", "cloudresourcemanager", "serviceusage"}
    for sections, apis in (
        (stack(), base | {"cloudresourcemanager"}),
        (NEW, new),
        (robots, new | {"sts", "iamcredentials"}),
    ):
        found = {
            row.subject.removesuffix(".googleapis.com") for row in asked(sections, project()) if row.check == "API"
        }
        assert found == apis


def test_no_query_is_sent_without_a_login() -> None:
    def program(arguments: tuple[str, ...]) -> "CompletedProcess[str]":
        return CompletedProcess(
            arguments, 1, "", "ERROR: (gcloud.auth.print-access-token) You do not currently have an active account"
        )

    with pytest.raises(ConsoleError, match=r"gcloud is not logged in.*; run gcloud auth login"):
        rows_of(stack(), program, project())


def test_the_token_is_in_no_row() -> None:
    assert "token-of-gcloud" not in json.dumps([str(row) for row in asked(stack(), project())])


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (TimeoutError("timed out"), ConsoleError, "x.googleapis.com does not answer within 10 s; check the network"),
        (URLError(TimeoutError("timed out")), ConsoleError, "x.googleapis.com does not answer within 10 s"),
        (URLError("no route"), NoAnswerError, "x.googleapis.com cannot be reached: .*no route"),
    ],
)
def test_an_api_that_does_not_answer_ends_the_preflight(
    error: OSError, raised: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, timeout: float) -> None:
        assert timeout == 10
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", silent)
    with pytest.raises(raised, match=message):
        send("GET", "https://x.googleapis.com/v1", "token", None)


# The preflight on Azure, with recorded answers that have the fields of Microsoft's models.


HOME = "/subscriptions/5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d"
SUBNET = f"{HOME}/resourceGroups/network/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes"
FAMILY = "StandardNDSH100v5Family"


def azure_stack() -> Data:
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
                "resourceType": "virtualMachines", "name": "Standard_ND96isr_H100_v5", "family": FAMILY,
                "locationInfo": [{"location": "eastus", "zones": ["1", "2"]}], "restrictions": [], **changes,
            },
        ],
    }  # fmt: skip


def usage(limit: int = 400, used: int = 0, cores: int = 2000) -> Data:
    names = {FAMILY.lower(): (limit, used), "cores": (cores, used)}
    return {
        "value": [
            {"unit": "Count", "currentValue": used, "limit": limit, "name": {"value": name, "localizedValue": "vCPUs"}}
            for name, (limit, used) in names.items()
        ]
    }


def subscription(**changes: Any) -> AzureSubscription:
    answers: Data = {
        "compute": {"registrationState": "Registered"},
        "feature": {"properties": {"state": "Registered"}, "name": "Microsoft.Compute/EncryptionAtHost"},
        "infiniband": {
            "properties": {"state": "Registered"},
            "name": "Microsoft.ContainerService/AKSInfinibandSupport",
        },
        "skus": sku(),
        "usages": usage(),
        "addresses": {"value": [{"currentValue": 5.0, "id": SUBNET, "limit": 251.0, "unit": "Count"}]},
        "rights": {"value": [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Delete"]}]},
        "cluster": {"properties": {"provisioningState": "Succeeded"}},
    } | changes
    ends = {
        "compute": "/providers/Microsoft.Compute", "feature": "/features/EncryptionAtHost",
        "skus": "/Microsoft.Compute/skus", "usages": "/locations/eastus/usages",
        "addresses": "/virtualNetworks/ml/usages", "rights": "/Microsoft.Authorization/permissions",
        "cluster": "/managedClusters/ml", "versions": "/kubernetesVersions",
    }  # fmt: skip
    others = ("Authorization", "ContainerService", "Insights", "KeyVault", "ManagedIdentity", "Network", "Storage")
    registered = {f"/providers/Microsoft.{name}": answers["compute"] for name in others}
    registered["/features/AKSInfinibandSupport"] = answers["infiniband"]
    return AzureSubscription(registered | {end: answers[name] for name, end in ends.items() if name in answers})


def test_ready_subscription_is_only_read() -> None:
    ready = subscription()
    rows = rows_of(azure_stack(), ready)
    assert [(row.check, row.subject) for row in rows if row.verdict != "OK"] == []
    assert {row.check for row in rows} == {"provider", "feature", "zones", "quota", "subnets", "rights", "cluster"}
    assert len(ready.asked) == 10  # The fake fails for any program or method but `az rest --method get`.


NO_LOCATION = {"type": "Location", "values": ["eastus"], "reasonCode": "NotAvailableForSubscription"}
NO_ZONE = {"type": "Zone", "values": ["eastus"], "restrictionInfo": {"zones": ["1"]}}
NOT_ALLOWED = (
    "ERROR: Forbidden({'code':'AuthorizationFailed','message':\"no authorization to perform action"
    " 'Microsoft.Network/virtualNetworks/usages/read' over scope\"})"
)
SMALL = {"value": [{"currentValue": 0.0, "id": SUBNET, "limit": 3.0}]}
OF_SERVICE = {"rights": {"value": [{"actions": ["Microsoft.ContainerService/*"], "notActions": []}]}}
FEATURE = "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`"
AZURE_ROWS: dict[str, tuple[Data, str, dict[str, str]]] = {
    "a small quota": ({"usages": usage(192)}, f"quota {FAMILY}",
                      {"verdict": "missing", "needed": "384 vCPUs", "available": "192 vCPUs, 0 in use"}),
    "a quota in use": ({"usages": usage(400, 200)}, f"quota {FAMILY}", {"verdict": "unknown"}),
    "a machine type that the location lacks": ({"skus": sku(restrictions=[NO_LOCATION])}, "zones h100",
                                               {"verdict": "missing", "available": "not available in eastus"}),
    "a machine type that the zone lacks": ({"skus": sku(restrictions=[NO_ZONE])}, "zones h100",
                                           {"verdict": "missing", "available": "zones 2"}),
    "vCPUs of the location": ({"usages": usage(cores=192)}, "quota cores",
                              {"verdict": "missing", "needed": "384 vCPUs", "available": "192 vCPUs, 0 in use"}),
    "all rights": ({}, "rights resource group ml", {"verdict": "OK", "needed": "4 rights"}),
    "a missing right of the subnet": (OF_SERVICE, "rights subnets/join",
                                      {"verdict": "missing", "fix": "assign a role with it in subnets/nodes"}),
    "a subnet that does not exist": ({"rights": "ERROR: Not Found({'code':'ResourceNotFound'})"},
        "rights subnets/nodes", {"verdict": "missing", "fix": f"create it, or correct its ID: {SUBNET}"}),
    "a feature that is not registered": ({"feature": {"properties": {"state": "NotRegistered"}}},
                                         "feature Encryption", {"fix": FEATURE}),
    "a forbidden query": ({"addresses": NOT_ALLOWED}, "subnets nodes",
                          {"verdict": "unknown", "fix": "grant Microsoft.Network/virtualNetworks/usages/read"}),
    "a small subnet": ({"addresses": SMALL}, "subnets nodes", {"verdict": "missing"}),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "about", "expected"), AZURE_ROWS.values(), ids=AZURE_ROWS)
def test_azure_has_a_row_of(answers: Data, about: str, expected: dict[str, str]) -> None:
    check, _, subject = about.partition(" ")
    found = row(rows_of(azure_stack(), subscription(**answers)), check, subject)
    assert {field: getattr(found, field) for field in expected} == expected


ACCOUNT = f"{HOME}/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/mldata"
VAULT = f"{HOME}/resourceGroups/keys/providers/Microsoft.KeyVault/vaults/ml-vault"


def azure_with_data(**dataset: Any) -> Data:
    sections = azure_stack()
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


def test_checks_rights_on_storage_accounts_and_vaults() -> None:
    ready = for_a_new_cluster()
    rows = rows_of(azure_with_data(account=ACCOUNT), ready)
    assert [(row.check, row.subject) for row in rows if row.verdict != "OK"] == []
    permissions = {
        path.partition("/providers/Microsoft.Authorization")[0] for path in ready.asked if "permissions" in path
    }
    workspace = f"{HOME}/resourceGroups/logs/providers/Microsoft.OperationalInsights/workspaces/ml"
    assert permissions == {f"{HOME}/resourceGroups/ml", ACCOUNT, SUBNET, VAULT, workspace}
    contributor = {"value": [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}]}
    lacking = rows_of(azure_with_data(account=ACCOUNT), for_a_new_cluster(rights=contributor))
    missing = {row.fix for row in lacking if row.verdict == "missing"}
    assert {f"assign a role with it in {name}" for name in ("storageAccounts/mldata", "vaults/ml-vault")} <= missing


def test_new_storage_account_needs_provider_and_rights() -> None:
    ready = for_a_new_cluster()
    rows = rows_of(azure_with_data(create=True), ready)
    assert row(rows, "provider", "Microsoft.Storage").verdict == "OK"
    lacking = for_a_new_cluster(**OF_SERVICE)
    subject = "Microsoft.Storage/storageAccounts/write on resource group ml"
    assert row(rows_of(azure_with_data(create=True), lacking), "rights", subject).verdict == "missing"
    assert not [path for path in ready.asked if "mldata" in path]


def test_azure_is_not_asked_without_a_login() -> None:
    with pytest.raises(ConsoleError, match="az is not logged in"):
        rows_of(azure_stack(), subscription(compute="ERROR: Please run 'az login' to setup account."))


def test_versions_are_read_as_the_package_of_aks_has_them() -> None:
    answer = KubernetesVersionListResult(values_property=[KubernetesVersion(version="1.35")]).as_dict()
    assert answer["values"][0]["version"] == "1.35"
