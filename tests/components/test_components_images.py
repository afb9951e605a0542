"""Every image that this program names has a digest, or is listed here with the reason why it has none."""

import re
from collections.abc import Iterator
from typing import Final

import pytest
from repository import ROOT

from components.clouds.azure.pools import IMAGE
from components.clouds.gcp.daemons import PAUSE
from components.pods import KUBECTL_AND_SHELL
from gpu_tenancy.model.catalogue.fabrics import fabrics
from gpu_tenancy.model.names import KUBECTL

UNKNOWN: Final = {
    "cos-nvidia-installer:fixed": "it is part of the node image and never pulled",
    "nvcr.io/nvidia/mellanox/doca-driver:doca3.4.1-26.04-1.1.0.0-1": (
        "the Network Operator appends the operating system and architecture of each node to the tag"
    ),
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12": "in no public file",
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9": "in no public file",
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.1": "in no public file",
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-arm64:v1.1.0": "in no public file",
}
"""Images without a digest, and why."""

_IMAGE: Final = re.compile(r"(?<![\w./@-])[a-z0-9][\w.-]*(?:/[\w.-]+)*:(?:v?\d[\w.-]*|fixed)(?:@sha256:[0-9a-f]{64})?")
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")


def of_fabrics() -> Iterator[str]:
    for row in fabrics().values():
        # pyrefly: ignore[invalid-yield]
        yield from (image for image in (row.injector, row.daemon and row.daemon.image) if image)
        if row.installer:
            yield from (
                image for image in (row.installer.image, row.installer.node_image, row.installer.arm64) if image
            )
        for image in (row.driver, row.plugin):
            if image:
                mark = "@" if image.version.startswith("sha256:") else ":"
                yield f"{image.repository}/{image.image}{mark}{image.version}"


NAMED: Final = {KUBECTL, KUBECTL_AND_SHELL, IMAGE, str(PAUSE.get("image")), "cos-nvidia-installer:fixed", *of_fabrics()}


@pytest.mark.parametrize("image", sorted(NAMED))
def test_an_image_has_a_digest_or_a_reason(image: str) -> None:
    assert bool(_DIGEST.search(image)) != (image in UNKNOWN)


def test_no_image_is_listed_that_is_not_used() -> None:
    assert set(UNKNOWN) <= NAMED


def test_components_name_no_other_image() -> None:
    """Literals in the source that look like an image: a registry or `fixed`, and a tag."""
    found = {
        image
        for file in (*(ROOT / "components").rglob("*.py"), ROOT / "gpu_tenancy" / "model" / "names.py")
        for image in _IMAGE.findall(re.sub(r'"\s*\n\s*"', "", file.read_text(encoding="utf-8")))
        if ("." in image.partition("/")[0] and "/" in image) or image.endswith(":fixed")
    }
    assert found == {KUBECTL, KUBECTL_AND_SHELL, IMAGE, str(PAUSE.get("image")), "cos-nvidia-installer:fixed"}
