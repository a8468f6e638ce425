"""Other libraries: validation and decoding, SSH, and tenacity."""

from __future__ import annotations

from ...fault import PERMANENT, TRANSIENT, Fault
from .inspect import NEVER_SENT, NEVER_SENT_PERMANENT, Entry, Inspector, as_int, mark_spent, read

# A retry does not make invalid data valid.
VALIDATION: dict[str, Entry] = dict.fromkeys(
    (
        "builtins.UnicodeError",
        "json.JSONDecodeError",
        "tomllib.TOMLDecodeError",
        "xml.ParseError",
        "pickle.PickleError",
        "_pickle.PickleError",
        "yaml.YAMLError",
        "pydantic.ValidationError",
        "pydantic_core.ValidationError",
        "pydantic_core.PydanticSerializationError",
        "msgspec.MsgspecError",
        "jsonschema.ValidationError",
        "jsonschema.SchemaError",
        "marshmallow.ValidationError",
        "cattrs.BaseValidationError",
        "fastjsonschema.JsonSchemaException",
        "voluptuous.Error",
        "pyarrow.ArrowInvalid",
        "pyarrow.ArrowTypeError",
        "orjson.JSONDecodeError",
        "google.DecodeError",
    ),
    PERMANENT,
)
_SSH: dict[str, Entry] = {
    "paramiko.NoValidConnectionsError": NEVER_SENT,
    "paramiko.AuthenticationException": NEVER_SENT_PERMANENT,
    "paramiko.BadHostKeyException": NEVER_SENT_PERMANENT,
    "paramiko.IncompatiblePeer": NEVER_SENT_PERMANENT,
    "paramiko.ConfigParseError": PERMANENT,
    "paramiko.SSHException": TRANSIENT,
    "asyncssh.PermissionDenied": NEVER_SENT_PERMANENT,
    "asyncssh.HostKeyNotVerifiable": NEVER_SENT_PERMANENT,
    "asyncssh.KeyExchangeFailed": NEVER_SENT_PERMANENT,
    "asyncssh.DisconnectError": TRANSIENT,
}


def _tenacity(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the error of the last attempt. With `stop_after_attempt(1)` nothing is spent."""
    last = read(error, "last_attempt")
    has_error = read(last, "failed") is True  # False: tenacity gave up on a result
    fault = inspector.classify(last.exception()) if has_error else TRANSIENT
    attempts = as_int(read(last, "attempt_number")) or 0
    return mark_spent(fault, "tenacity") if attempts > 1 else fault


_TENACITY: dict[str, Entry] = {"tenacity.RetryError": _tenacity, "tenacity.TryAgain": TRANSIENT}
FAMILIES: dict[str, dict[str, Entry]] = {"schema": VALIDATION, "ssh": _SSH, "retrying": _TENACITY}
