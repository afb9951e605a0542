"""Kubeconfigs of people and robots, and their identity for a real API server."""

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from builders import EKS
from cryptography import x509
from people_builders import OTHER, OWN, PEOPLE, SIBLING, Desk

from gpu_tenancy.access.kubeconfigs import helper_config
from gpu_tenancy.access.live import Caller, who_am_i
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at
from gpu_tenancy.clouds.clients import Google
from gpu_tenancy.embedded.certificates import issue_client
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.people import Person

ROBOT = PEOPLE["robot"]


@pytest.fixture(scope="module")
def desk(cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    robot: Json = {"name": "ci-vision", "namespace": "default"}
    account: Manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": robot}
    folder = tmp_path_factory.mktemp("people") / "project"
    with Desk.deployed(cluster, folder, platform.kubeconfig, account) as made:
        yield made


@pytest.fixture
def with_files(platform: Platform, tmp_path: Path) -> Path:
    """The administrator's kubeconfig with paths of keys, not keys."""
    config = yaml.safe_load(platform.kubeconfig.read_text(encoding="utf-8"))
    places = platform.places
    config["users"][0]["user"] = {"client-certificate": places.certificate("admin"), "client-key": places.key("admin")}
    file = tmp_path / "admin"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file


def me(file: Path) -> Caller:
    with Cluster(file) as cluster:
        return who_am_i(cluster)


def may(file: Path, verb: str, team: str) -> bool:
    attributes: Json = {"verb": verb, "group": "batch", "resource": "jobs", "namespace": team}
    asked: Manifest = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    with Cluster(file) as cluster:
        return at(cluster.create(asked), "status", "allowed") is True


def test_robot_gets_a_token_that_expires(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "robot"
    assert desk.lines("access", "kubeconfig", OWN, "--as", ROBOT, "--for", "10m", "--out", file) == []
    assert file.stat().st_mode & 0o777 == 0o600
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert config["contexts"][0]["context"]["namespace"] == OWN
    payload = config["users"][0]["user"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["exp"] - claims["iat"] == 600
    assert claims["exp"] > time.time()
    assert me(file).user == "system:serviceaccount:default:ci-vision"
    assert (may(file, "create", OWN), may(file, "create", SIBLING)) == (True, False)
    assert desk.lines("access", "kubeconfig", OWN, "--as", ROBOT, "--out", file) == []  # a token can be renewed


def test_a_user_is_impersonated_without_a_copy_of_keys(desk: Desk, with_files: Path, tmp_path: Path) -> None:
    file = tmp_path / "lead"
    made = desk.run(
        "access", "kubeconfig", SIBLING, "--as", PEOPLE["lead of the cohort"], "--out", file, kubeconfig=with_files
    )
    assert (made.exit_code, made.stderr) == (0, "")
    assert not any(secret in file.read_text(encoding="utf-8") for secret in ("key-data", "token"))
    assert me(file).groups == ("research-leads", "system:authenticated")
    assert [may(file, "create", team) for team in (SIBLING, OWN, OTHER)] == [True, True, False]


def test_embedded_platform_issues_certificates_that_expire(
    desk: Desk, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpu-tenancy").mkdir()
    (tmp_path / "gpu-tenancy" / "embedded").symlink_to(platform.places.home)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    here, file = Desk(desk.project), tmp_path / "kubeconfig"

    def tried(who: str) -> Caller:
        assert here.lines("access", "kubeconfig", OWN, "--embedded", "--as", who, "--for", "10m", "--out", file) == []
        return me(file)

    assert tried(PEOPLE["researcher"]).user == "ann@example.com"
    assert may(file, "create", OWN)
    assert tried(PEOPLE["viewer of all"]).groups == ("everybody-in-ml", "system:authenticated")
    assert (may(file, "get", OWN), may(file, "create", OWN)) == (True, False)
    assert file.stat().st_mode & 0o777 == 0o600
    login = yaml.safe_load(file.read_text(encoding="utf-8"))["users"][0]["user"]
    issued = x509.load_pem_x509_certificate(base64.b64decode(login["client-certificate-data"]))
    assert issued.not_valid_after_utc - datetime.now(UTC) < timedelta(minutes=10)


def test_a_name_that_a_certificate_has_no_room_for_is_refused(platform: Platform) -> None:
    with pytest.raises(ConsoleError, match=f"{'x' * 65} is longer than the 64 characters"):
        issue_client(platform.places, "x" * 65, None, 600)


def test_keys_in_the_file_are_left_there(desk: Desk) -> None:
    result = desk.run("access", "kubeconfig", OWN)
    assert "credentials of user admin are not copied; list both files in KUBECONFIG" in result.stderr
    assert yaml.safe_load(result.stdout)["users"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((OWN, "--as", "ann"), "user admin has credentials in the file (client-key-data), which are not copied; leave"),
        ((OWN, "--as", "user:eve@example.com"), f"--as: user:eve@example.com has no role in team {OWN}; add it to"),
        ((OWN, "--as", ROBOT, "--for", "5m"), "--for: 300 s is not between 10m and 24h; set a duration such as 1h"),
        ((OWN, "--as", ROBOT, "--for", "1"), "--for 1: is not a duration; set one such as 30m or 2h"),
        ((OWN, "--context", "gone"), "context gone not found; specify --context gpu-tenancy-embedded"),
        ((OWN, "--out", __file__), f"--out: {__file__} exists and was not written by this command; specify another"),
    ],
)
def test_errors_of_kubeconfig(desk: Desk, arguments: tuple[str, ...], message: str) -> None:
    assert message in desk.error("access", "kubeconfig", *arguments)


@pytest.mark.parametrize(
    ("endpoint", "wanted"),
    [
        ("ip", {"server": "https://203.0.113.7", "certificate-authority-data": "Q0E="}),
        ("dns", {"server": "https://gke-0a1b.us-central1.gke.goog"}),
    ],
)
def test_on_gke_the_address_is_the_one_of_the_stack(
    endpoint: str, wanted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: dict[str, object] = {
        "endpoint": "203.0.113.7",
        "masterAuth": {"clusterCaCertificate": "Q0E="},
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-0a1b.us-central1.gke.goog"}},
    }
    asked: list[str] = []

    def get(_: Google, url: str, right: str) -> dict[str, object]:
        asked.append(f"{right} {url.partition('/v1/')[2]}")
        return answer

    monkeypatch.setattr(Google, "get", get)

    section = {"cloud": "gcp", "name": "ml", "project": "ml-platform", "location": "us-central1", "endpoint": endpoint}
    config = helper_config(GcpCluster.model_validate(section))
    assert config
    assert config["clusters"][0]["cluster"] == wanted
    assert asked == ["container.clusters.get projects/ml-platform/locations/us-central1/clusters/ml"]


def test_on_eks_the_aws_cli_gets_the_token_and_assumes_the_role() -> None:
    asked: list[tuple[str, ...]] = []

    def run(arguments: tuple[str, ...]) -> "CompletedProcess[str]":
        asked.append(arguments)
        answer = {"cluster": {"endpoint": "https://example.com", "certificateAuthority": {"data": "Q0E="}}}
        return CompletedProcess(arguments, 0, json.dumps(answer), "")

    role = "arn:aws:iam::123456789012:role/ml"
    config = helper_config(AwsCluster.model_validate(EKS), Person("role", role), run)
    assert config
    assert asked[0][:3] == ("aws", "eks", "describe-cluster")
    assert config["clusters"][0]["cluster"]["server"] == "https://example.com"
    assert config["users"][0]["user"]["exec"]["args"][-2:] == ["--role-arn", role]
