"""Data that does not fit: validation, schema and decoding errors. The same bytes will not fit the next time either."""

from __future__ import annotations

from ..fault import PERMANENT
from .look import Entry

KNOWN: dict[str, Entry] = dict.fromkeys(
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
