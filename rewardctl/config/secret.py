"""Secrets: `${env:NAME}` in options, what must not stand there in plain text, and masked dumps."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rewardctl.config.findings import Finding, Severity
from rewardctl.config.positions import Document, Place, named

if TYPE_CHECKING:
    from rewardctl.config.schema import Config

MASK = "***"
_ENV = re.compile(r"\$\{env:([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|secret|secret_?key|password|passwd|private_?key|(access|auth|hf|bearer)_?token)$",
    re.IGNORECASE,
)
# Shapes of tokens that hubs, model services and clouds hand out.
_SECRET_VALUE = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@)"
)


def check_secrets(
    document: Document, environ: Mapping[str, str], *, unset: Severity
) -> list[Finding]:
    """Findings about secrets: variables not set, misplaced references, secrets in plain text.

    Args:
        unset: How grave a variable is that is not set.
    """
    findings: list[Finding] = []
    for place, text in _texts(document.tree, ()):
        references = _ENV.findall(text)
        if references or "${env" in text:
            findings += _check_reference(document, place, references, environ, unset=unset)
        elif text and (_SECRET_VALUE.search(text) or _is_secret_option(place)):
            message = f"{named(place)} holds a secret in plain text"
            hint = "write ${env:NAME} under options:, and set NAME in the environment"
            findings.append(document.finding("RC503", message, place, hint=hint))
    return findings


def _check_reference(
    document: Document,
    place: Place,
    references: list[str],
    environ: Mapping[str, str],
    *,
    unset: Severity,
) -> Iterator[Finding]:
    if not _is_option(place):
        message = f"${{env:NAME}} at {named(place)}, expected only in texts under options:"
        yield document.finding("RC504", message, place, hint="write the value itself")
    elif not references or not all(_NAME.fullmatch(name) for name in references):
        message = f"{named(place)} holds a reference that cannot be read"
        yield document.finding("RC504", message, place, hint="write ${env:NAME}")
    else:
        for name in references:
            if name not in environ:
                message = f"{named(place)} needs the environment variable {name}, which is not set"
                yield document.finding("RC502", message, place, severity=unset)


def _is_option(place: Place) -> bool:
    steps = [step for step in place if isinstance(step, str)]
    return len(steps) > 2 and steps[0] in ("rewards", "eval_rewards") and steps[1] == "options"


def _is_secret_option(place: Place) -> bool:
    return _is_option(place) and isinstance(place[-1], str) and bool(_SECRET_KEY.search(place[-1]))


def _texts(node: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(node, str):
        yield place, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _texts(value, (*place, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _texts(value, (*place, index))


def resolve_env(value: Any, environ: Mapping[str, str]) -> Any:
    """`value` with each `${env:NAME}` in its texts replaced; what is not set stays as written."""
    return _replace_texts(value, lambda text: _ENV.sub(lambda m: environ.get(m[1], m[0]), text))


def secret_texts(value: Any, environ: Mapping[str, str]) -> set[str]:
    """What the variables named in `value` hold."""
    names = {name for _, text in _texts(value, ()) for name in _ENV.findall(text)}
    return {environ[name] for name in names if environ.get(name)}


def masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """Plain data with every secret in its texts replaced by MASK."""

    def mask(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, MASK)
        return text

    return _replace_texts(value, mask)


def masked_dump(config: "Config") -> dict[str, Any]:
    """The resolved config as plain JSON data, secrets masked."""
    dump: dict[str, Any] = masked(config.model_dump(mode="json"), config.secrets)
    return dump


def _replace_texts(value: Any, replace: Any) -> Any:
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        return {key: _replace_texts(inner, replace) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace_texts(inner, replace) for inner in value]
    return value
