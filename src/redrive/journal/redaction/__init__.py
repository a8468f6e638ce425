"""Redaction: keep secrets out of journal records, stored errors and output.

Values are redacted by the name of their field, by known token formats and patterns, and by value
for secrets that were passed to Redrive. In doubt, a value is redacted: a record that says too
little is a nuisance, a record that says too much is an incident.
"""

from __future__ import annotations

from .redactor import HIDDEN, redact, redact_text
from .secrets import hide, is_secret

__all__ = ["HIDDEN", "hide", "is_secret", "redact", "redact_text"]
