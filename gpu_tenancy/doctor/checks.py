"""All rows of a preflight: tools on this machine, and the cloud of a stack."""

import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.installing import install_command
from gpu_tenancy.clouds.clients import PROGRAMS, Google, Run, Send, run, send
from gpu_tenancy.doctor import aws, azure, gcp
from gpu_tenancy.doctor.needs import types_of
from gpu_tenancy.doctor.results import Question, Row, answers, judged
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

if TYPE_CHECKING:
    from gpu_tenancy.engine.recording import Registration


def tools(stack: Stack) -> Iterator[Row]:
    """Checks for production, and for programs and packages that `pulumi up` needs on this machine."""

    def program(name: str, page: str) -> Row:
        path = shutil.which(name)
        fix = f"install it: {page}"
        return judged("program", name, "on the PATH", path or "not found", fits=path is not None, fix=fix)

    yield Row("environment", stack.environment, "", stack.standing, "OK", "")
    cloud = stack.cluster.cloud
    yield program("pulumi", "https://www.pulumi.com/docs/install/")
    if package := clouds()[cloud].package:
        there = find_spec(package.replace("-", "_")) is not None
        available = "installed" if there else "not installed"
        yield judged("package", package, "installed", available, fits=there, fix=f"run {install_command(package)}")
    if cloud in PROGRAMS:
        name, page, _ = PROGRAMS[cloud]
        yield program(name, page)


def cloud_rows(
    stack: Stack, resources: Sequence["Registration"], program: Run = run, send: Send = send
) -> Iterator[Row]:
    """Checks the cloud of a stack and its resources by read-only requests.

    Raises ConsoleError without a cloud, program or login.
    """
    yield from answers(_questions(stack, resources, program, send))
    facts = preflight()
    known = {*facts.aws.types, *facts.azure.types, *facts.gcp.types}
    fix = "compare the rights that it needs with the documentation of its provider"
    for name in types_of(resources):  # A program of a project can have further resources.
        if name not in known and not name.startswith(("gpu-tenancy:", "kubernetes:", "pulumi:")):
            yield Row("rights", name, "of its type", "not in the catalogue", "unknown", fix)


def _questions(stack: Stack, resources: Sequence["Registration"], program: Run, send: Send) -> Iterator[Question]:
    match stack.cluster:
        case AwsCluster() as section:
            return aws.questions(stack, section, types_of(resources), program)
        case GcpCluster() as section:
            return gcp.questions(stack, section, resources, Google(program, send))
        case AzureCluster() as section:
            return azure.questions(stack, section, resources, program)
        case section:
            fix = "run it without --cloud, or on a stack of a cloud"
            raise ConsoleError(f"cluster.cloud: {section.cloud} has no cloud to ask", fix)
