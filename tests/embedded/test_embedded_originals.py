"""The pinned definitions, compared with copies of the same version."""

import hashlib
import json

import pytest
from originals import original

from gpu_tenancy.embedded.definitions.pins import Pin, read_pins


@pytest.mark.parametrize("pin", read_pins(), ids=lambda pin: pin.file)
def test_a_pinned_definition_is_the_original(pin: Pin) -> None:
    copy = original(pin.path)
    versions = {entry["path"]: entry["version"] for entry in json.loads(original("index.json").read_bytes())}
    if versions[pin.path] != pin.version:
        pytest.skip(f"not compared with the original: the copy is {versions[pin.path]}, and {pin.version} is pinned")
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == pin.sha256
