"""GKE: the driver installer, numbers of nodes, kubeconfigs, and what the program imports."""

import json
import sys
from subprocess import run

import pytest
from cloud_stacks import gke_stack
from components_builders import cluster, texts
from pulumi_gcp.container import outputs

from components.clouds.gcp.access import authority, dns_name, kubeconfig
from components.clouds.gcp.pools import first_nodes
from gpu_tenancy.model.catalogue.clouds import clouds


def test_the_driver_installer_runs_only_on_nodes_without_a_driver() -> None:
    sections = gke_stack() | {"operators": {"driver": "operator"}}
    sections["pools"]["l4"]["driver"] = "operator"
    spec = cluster(sections).spec("DaemonSet")["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {expression["key"]: expression["operator"] for expression in term["matchExpressions"]} == {
        "cloud.google.com/gke-accelerator": "Exists",
        "cloud.google.com/gke-gpu-driver-version": "DoesNotExist",
        "gke-no-default-nvidia-gpu-device-plugin": "In",
    }
    (installer,) = spec["initContainers"]
    assert (installer["image"], installer["imagePullPolicy"]) == ("cos-nvidia-installer:fixed", "Never")
    assert "@sha256:" in spec["containers"][0]["image"]
    assert {mount["name"] for mount in installer["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_queued_pools_have_the_taint_of_gke() -> None:
    assert clouds()["gcp"].capacity["queued"].taints == ("cloud.google.com/gke-queued=true:NoSchedule",)


@pytest.mark.parametrize(
    ("least", "most", "zones", "first"),
    [(0, 4, 3, 0), (2, 3, 3, 1), (2, 2, 3, 0), (4, 9, 3, 2), (4, 4, 1, 4), (3, 4, 2, 2)],
)
def test_nodes_of_each_zone_begin_with_the_minimum(least: int, most: int, zones: int, first: int) -> None:
    assert first_nodes(least, most, zones) == first
    assert first * zones <= most


def test_the_kubeconfig_of_a_dns_name_trusts_public_authorities() -> None:
    dns = outputs.ClusterControlPlaneEndpointsConfigDnsEndpointConfig(endpoint="gke-0a1b.us-central1.gke.goog")
    name = dns_name(outputs.ClusterControlPlaneEndpointsConfig(dns_endpoint_config=dns))
    assert dns_name(outputs.ClusterControlPlaneEndpointsConfig()) == ""
    config = json.loads(kubeconfig({"name": "ml", "endpoint": name, "authority": None}))
    assert config["clusters"][0]["cluster"] == {"server": "https://gke-0a1b.us-central1.gke.goog"}


def test_the_kubeconfig_uses_googles_plugin_without_a_credential() -> None:
    config = json.loads(kubeconfig({"name": "ml", "endpoint": "203.0.113.7", "authority": "Q0E="}))
    server = {"server": "https://203.0.113.7", "certificate-authority-data": "Q0E="}
    assert config["clusters"][0]["cluster"] == server
    (user,) = config["users"]
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert config["current-context"] == config["contexts"][0]["name"]
    assert not [text for _, text in texts(config) if "token" in text or "client-key" in text]


def test_the_certificate_authority_is_the_clusters_or_unknown() -> None:
    assert authority(outputs.ClusterMasterAuth(client_certificate_config={}, cluster_ca_certificate="Q0E=")) == "Q0E="  # pyright: ignore[reportArgumentType]
    assert authority(outputs.ClusterMasterAuth(client_certificate_config={})) == ""  # pyright: ignore[reportArgumentType]


@pytest.mark.process
@pytest.mark.slow
def test_no_other_clouds_package_is_imported() -> None:
    code = "import components.clouds.gcp, sys; print(*sys.modules)"
    imported = set(run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "pulumi_gcp" in imported
    assert not imported & {"pulumi_aws", "pulumi_azure_native"}
