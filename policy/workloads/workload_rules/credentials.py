"""Rules for credentials in clear text."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from rule_engine import ADVICE, Severity, rule
from workload_rules.pods import CONTAINERS, Container, Tenants, for_tenants

_TABLE: Final = Path(__file__).with_name("credentials.yaml")


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(_TABLE.read_text(encoding="utf-8"))


def _kind(text: str, variable: str = "") -> str:
    """What kind of credential a text is; empty if it does not look like one."""
    for form in _table()["texts"]:
        if re.search(form["pattern"], text):
            return form["what"]
    named = variable and re.search(_table()["names"], variable) and re.fullmatch(_table()["secretive"], text)
    return f"value of {variable}" if named else ""


@rule(
    "no-clear-credentials",
    rationale=(
        "Environment variables and arguments are readable for everybody who may read pods, who often may not read"
        " Secrets, and they are in logs and manifests."
    ),
    fix="Create a Secret, and refer to it with `valueFrom.secretKeyRef`, `envFrom` or a volume.",
    link="https://kubernetes.io/docs/concepts/configuration/secret/",
    severity=Severity.HIGH,
    level=ADVICE,
    on=CONTAINERS,
)
@for_tenants
def no_clear_credentials(container: Container, _: Tenants) -> Iterator[str]:
    """Containers must not have credentials in clear text."""
    # A message never has the text.
    for variable in container.view.items("env"):
        name = variable.text("name")
        if kind := _kind(variable.text("value"), name):
            yield f"variable {name} looks like a credential ({kind}); use valueFrom.secretKeyRef"
    for field in ("command", "args"):
        for index, text in enumerate(container.view.texts(field)):
            if kind := _kind(text):
                yield f"{field}[{index}] looks like a credential ({kind}); put it in a Secret, and use a variable"
