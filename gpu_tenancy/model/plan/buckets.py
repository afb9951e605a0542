"""Buckets and folders that datasets name."""

from dataclasses import dataclass

from gpu_tenancy.model.spec.data import Dataset, Scheme


@dataclass(frozen=True, slots=True, order=True)
class Folder:
    """A folder of a bucket, or a whole bucket.

    Attributes:
        scheme: of its URL: the service.
        bucket: the bucket; on Azure, the container.
        prefix: the folder, without slashes around it; empty for the whole bucket.
        account: on Azure, the storage account; else empty.
    """

    scheme: Scheme
    bucket: str
    prefix: str
    account: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(part for part in (self.account, self.bucket, self.prefix) if part)}"

    @property
    def whole(self) -> str:
        """URL of the whole bucket."""
        return f"{self.scheme}://{'/'.join(part for part in (self.account, self.bucket) if part)}"


def access_mode(*, writable: bool) -> str:
    """Access mode of the claims of a dataset, which pods on any number of nodes mount."""
    return "ReadWriteMany" if writable else "ReadOnlyMany"


def folder(dataset: Dataset) -> Folder:
    """The folder of a dataset."""
    first, _, rest = dataset.bucket.partition("://")[2].partition("/")
    if dataset.scheme != "az":
        return Folder(dataset.scheme, first, rest.strip("/"))
    container, _, prefix = rest.partition("/")
    return Folder(dataset.scheme, container, prefix.strip("/"), first)
