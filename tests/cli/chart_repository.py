"""A Helm repository on the loopback, with charts that a test writes."""

import gzip
import io
import tarfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import yaml
from loopback import serving_content


@dataclass(frozen=True, slots=True)
class StandIn:
    """A chart in place of an operator's own.

    Attributes:
        name: under which a release asks for it.
        version: the one that is asked for.
        files: text by path within the chart, such as `templates/deployment.yaml`; `Chart.yaml` is written here.
    """

    name: str
    version: str
    files: Mapping[str, str]

    @property
    def archive(self) -> str:
        """Name of its file in the repository."""
        return f"{self.name}-{self.version}.tgz"

    def packed(self) -> bytes:
        """Its archive, as `helm package` would write it, with the same bytes each time."""
        about = {"apiVersion": "v2", "name": self.name, "version": self.version, "type": "application"}
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path, text in {"Chart.yaml": yaml.safe_dump(about), **self.files}.items():
                entry = tarfile.TarInfo(f"{self.name}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return gzip.compress(content.getvalue(), mtime=0)


def index(charts: Sequence[StandIn], address: str) -> str:
    """What a repository says of its charts: https://helm.sh/docs/topics/chart_repository/"""
    entries = {
        chart.name: [
            {
                "apiVersion": "v2",
                "name": chart.name,
                "version": chart.version,
                "urls": [f"{address}/{chart.archive}"],
            }
        ]
        for chart in charts
    }
    return yaml.safe_dump({"apiVersion": "v1", "entries": entries})


@contextmanager
def repository(charts: Sequence[StandIn]) -> Generator[str]:
    """Serves charts as long as it is open, at the address that it gives."""
    served: dict[str, bytes] = {}

    with serving_content(served.get) as address:
        served |= {f"/{chart.archive}": chart.packed() for chart in charts}
        served["/index.yaml"] = index(charts, address).encode()
        yield address
