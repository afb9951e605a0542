"""A bill of materials of an installation, in CycloneDX JSON: `python -m dependencies.sbom FILE`.

The same lock gives the same bytes: the serial number is derived from the content, and there is no time.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, cast
from uuid import NAMESPACE_URL, uuid5

from cyclonedx import model
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReferenceType, HashAlgorithm, bom, component
from cyclonedx.model.component import ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from dependencies.licenses import DEVELOPMENT, PAGE, PROJECT, Package, direct, listed, locked

# The decorators of its classes hide the types of their constructors.
_MODEL, _COMPONENT, _BOM = cast("Any", model), cast("Any", component), cast("Any", bom)
USE: Final = f"{PROJECT}:use"  # the property with the use of a package: `run`, or the name of an extra


def bill_of_materials(packages: tuple[Package, ...], licenses: Mapping[str, str], project_version: str) -> Any:
    """The bill of materials of what users install; packages for development are left out."""
    shipped = {one.name: one for one in packages if one.use != DEVELOPMENT}
    components = {name: _component(one, licenses[name]) for name, one in shipped.items()}
    project = _COMPONENT.Component(
        name=PROJECT, version=project_version, type=ComponentType.APPLICATION, bom_ref=PROJECT
    )
    content = json.dumps([asdict(one) for one in shipped.values()])
    name = f"{PROJECT}/{project_version}/{sha256(content.encode()).hexdigest()}"
    made = _BOM.Bom(components=components.values(), serial_number=uuid5(NAMESPACE_URL, name))
    made.metadata.component = project
    made.metadata.timestamp = None
    made.register_dependency(project, [components[name] for name in sorted(direct() & components.keys())])
    for name, one in shipped.items():
        made.register_dependency(components[name], [components[need] for need in one.needs if need in components])
    return made


def _component(package: Package, expression: str) -> Any:
    return _COMPONENT.Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}",
        purl=PackageURL("pypi", None, package.name, package.version),
        licenses=[LicenseFactory().make_from_string(expression)],
        properties=[_MODEL.Property(name=USE, value=package.use)],
        external_references=[
            _MODEL.ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=_MODEL.XsUri(file),
                hashes=[_MODEL.HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            )
            for file, digest in package.files
        ],
    )


def main() -> None:
    """Writes the file that the command line names."""
    parser = argparse.ArgumentParser(description="Write a bill of materials (CycloneDX JSON).")
    parser.add_argument("file", type=Path, help="the file to write")
    file: Path = parser.parse_args().file
    licenses = {name: expression for name, (_, expression) in listed(PAGE.read_text(encoding="utf-8")).items()}
    made = bill_of_materials(locked(), licenses, version(PROJECT))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(JsonV1Dot6(made).output_as_string(indent=2) + "\n", encoding="utf-8")
    print(f"{len(made.components)} packages in {file}")


if __name__ == "__main__":
    main()
