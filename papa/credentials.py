"""Users, passwords and keys in addresses: refused where given, repeated in no message."""

import re
from collections.abc import Iterator, Mapping

# Every repetition has an end: texts may be long, and hostile.
_SCHEME = r"(?<![\w+.-])[A-Za-z][\w+.-]{1,30}:/{1,3}"
# A secret key may hold slashes, so a colon that no port follows opens a password, which reaches to
# the last '@'.
_LOGIN = re.compile(
    rf"({_SCHEME})(?:[^/\s'\"@]{{1,300}}@(?!\S{{0,300}}@)|"
    rf"[^/\s:@'\"]{{1,300}}:(?!\d+(?:[/?#\s]|$))[^\s'\"]{{0,300}}@)"
)
_IN_QUERY = re.compile(
    r"([?&][\w.-]{0,40}(?:token|key|secret|password|passwd|pwd|signature|credential|sig)"
    r"[\w.-]{0,40}=)[^&#\s'\"]+",
    re.IGNORECASE,
)
_KNOWN = re.compile(r"\bhf_[A-Za-z0-9]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")
"""What tokens of the hub and key ids of S3 look like."""
WHERE_INSTEAD = (
    "leave it out, and log in with 'hf auth login' or HF_TOKEN for the hub, AWS_PROFILE or "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for S3"
)


def without_credentials(text: str) -> str:
    """Return the text without what may be users, passwords, keys and tokens of addresses."""
    text = _LOGIN.sub(
        lambda match: match[0] if match[0].endswith(":***@") else f"{match[1]}***@", text
    )
    return _KNOWN.sub("***", _IN_QUERY.sub(r"\1***", text))


def holds_credentials(text: str) -> bool:
    """Return whether an address in the text names a user, password, key or token."""
    return without_credentials(text) != text


def texts_in(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text and key of a document with the path to it, such as ``tasks.0.source``."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, (Mapping, list, tuple)):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield path, str(key)
            yield from texts_in(inner, f"{path}.{key}".removeprefix("."))
