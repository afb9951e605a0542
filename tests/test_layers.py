"""A test without marks belongs to `make unit`: it starts nothing."""

import socket
import subprocess

import pytest


def test_a_test_without_a_mark_can_neither_start_a_program_nor_listen() -> None:
    with pytest.raises(pytest.fail.Exception, match="has no mark `process`"):
        subprocess.run(["true"], check=False)
    with socket.socket() as listener, pytest.raises(pytest.fail.Exception, match="has no mark `process`"):
        listener.bind(("127.0.0.1", 0))
