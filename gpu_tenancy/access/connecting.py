"""How a cluster is reached: its API server, and the login that its cloud or a kubeconfig has for it."""

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.doctor.aws import AwsCli
from gpu_tenancy.doctor.gcp import CONTAINER, Google
from gpu_tenancy.doctor.programs import Run, run
from gpu_tenancy.doctor.results import DeniedError, NoAnswerError
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.embedded import CONTEXT
from gpu_tenancy.inspect.kubeconfig import connect, kubeconfig
from gpu_tenancy.model.kubeconfig import Server, aks_helper, eks_helper, gke_helper, of_helper
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.people import Person

SECRETS: Final = ("client-key-data", "token", "password", "auth-provider")
"""Keys of a user entry with credentials in the file itself."""


def helper_config(cluster: Cluster, who: Person | None = None, run: Run = run) -> dict[str, Any] | None:
    """A kubeconfig with the helper of a cluster's cloud; None for a cluster that a kubeconfig describes.

    `who` matters if it is an IAM role, which the helper assumes.

    Raises:
        ConsoleError: the cloud does not answer, or the caller may not ask.
    """
    if isinstance(cluster, ExistingCluster):
        return None
    try:
        match cluster:
            case AwsCluster():
                role = who.name if who and who.kind == "role" else None
                return of_helper(_eks(cluster, run), eks_helper(cluster.name, cluster.region, role))
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


def _eks(cluster: AwsCluster, run: Run) -> Server:
    answer = AwsCli(run, cluster.region).ask("eks", "describe-cluster", name=cluster.name)["cluster"]
    return Server(cluster.name, answer["endpoint"], answer["certificateAuthority"]["data"])


def _gke(cluster: GcpCluster, run: Run) -> Server:
    url = f"{CONTAINER}/projects/{cluster.project}/locations/{cluster.location}/clusters/{cluster.name}"
    answer = Google(run).get(url, "container.clusters.get")
    return Server(cluster.name, f"https://{answer['endpoint']}", answer["masterAuth"]["clusterCaCertificate"])


def _aks(cluster: AzureCluster, run: Run) -> Server:
    """AKS tells the CA only in a kubeconfig; its user entry, which may have a key, is dropped."""
    place = ("--subscription", cluster.subscription, "--resource-group", cluster.resource_group)
    done = run(("az", "aks", "get-credentials", *place, "--name", cluster.name, "--file", "-", "--only-show-errors"))
    if done.code:
        raise NoAnswerError(" ".join(done.stderr.split()))
    (entry,) = yaml.safe_load(done.stdout)["clusters"]
    return Server(cluster.name, entry["cluster"]["server"], entry["cluster"]["certificate-authority-data"])


def with_authority(cluster: dict[str, Any]) -> dict[str, Any]:
    """A cluster entry with its CA in the entry, so that the file works without others.

    Raises:
        OSError: the CA cannot be read.
    """
    rest = {key: value for key, value in cluster.items() if key != "certificate-authority"}
    if "certificate-authority" in cluster and "certificate-authority-data" not in cluster:
        content = Path(cluster["certificate-authority"]).read_bytes()
        rest["certificate-authority-data"] = base64.b64encode(content).decode()
    return rest


def source(cluster: Cluster, given: Path | None, context: str | None, *, embedded: bool) -> tuple[Path, str | None]:
    """The kubeconfig and context that a user names, else those of the stack, else kubectl's.

    Raises:
        ConsoleError: the kubeconfig does not exist.
    """
    if embedded:
        with connect(given, context, embedded=True):
            return Platform().kubeconfig, CONTEXT
    section = cluster if isinstance(cluster, ExistingCluster) else None
    named = Path(section.kubeconfig).expanduser() if section and section.kubeconfig else None
    return kubeconfig(given or named), context or (section.context if section and not given else None)
