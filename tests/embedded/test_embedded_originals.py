import hashlib

import pytest
from originals import original

from gpu_tenancy.embedded.definitions.pins import Pin, read_pins


@pytest.mark.parametrize("pin", read_pins(), ids=lambda pin: pin.file)
def test_a_pinned_definition_is_the_original(pin: Pin) -> None:
    assert hashlib.sha256(original(pin.path).read_bytes()).hexdigest() == pin.sha256
