"""The program that Pulumi runs for each stack."""

from pathlib import Path

from components.platform import deploy

deploy(Path(__file__).parent)
