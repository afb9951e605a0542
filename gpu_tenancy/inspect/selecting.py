"""Label selectors of Kubernetes."""

from collections.abc import Mapping

from gpu_tenancy.base.json import Json, at, maps_at, text_at


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches an object: no selector matches nothing, an empty one everything."""
    if not isinstance(selector, dict):
        return False
    wanted = at(selector, "matchLabels")
    exact = wanted.items() if isinstance(wanted, dict) else ()
    rules = maps_at(selector, "matchExpressions")
    return all(labels.get(key) == value for key, value in exact) and all(holds(each, labels) for each in rules)


def holds(rule: Mapping[str, Json], labels: Mapping[str, str]) -> bool:
    """Whether one expression of a selector matches."""
    here = labels.get(text_at(rule, "key"))
    listed = at(rule, "values")
    values = [str(each) for each in listed] if isinstance(listed, list) else []
    match text_at(rule, "operator"):
        case "In":
            return here in values
        case "NotIn":
            return here not in values
        case "Exists":
            return here is not None
        case "DoesNotExist":
            return here is None
        case operator:
            return _compares(operator, here, values)


def _compares(operator: str, here: str | None, values: list[str]) -> bool:
    try:
        own, bound = int(here or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return own > bound if operator == "Gt" else operator == "Lt" and own < bound
