"""azure-core, and the clients on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NO_CONNECTION, TIMEOUT, Entry, Judge, Look, beneath, frames, read, spent, wrapping
from .status import answered

LAYER = "azure-core"
BUSY = frozenset(("ServerBusy", "TooManyRequests", "OperationTimedOut"))
_INNER = ("inner_exception", "exc_value", "__cause__")


def _response(error: Exception, look: Look) -> Fault:
    fault = answered(read(error, "response"), look) or answered(error, look)
    if fault is None:
        return wrapping(UNKNOWN, *_INNER)(error, look)
    code = read(error, "error_code")
    if fault.status == 503 and (read(code, "value") or code) in BUSY:
        return replace(fault, kind="throttled")
    return fault


def _counted(entry: Entry) -> Judge:
    def judge(error: Exception, look: Look) -> Fault:
        fault = entry if isinstance(entry, Fault) else entry(error, look)
        return spent(fault, LAYER) if any(len(history) > 1 for history in _histories(error)) else fault

    return judge


def _histories(error: Exception) -> Iterator[list[object]]:
    """The failures that a retry policy wrote down on the way. The error does not lead to them; the frames it left do.

    Not seen where the caller raises by himself, long after (`response.raise_for_status()`).
    """
    for raised in (error, beneath(error, "__context__")):
        for frame in frames(raised):
            if "/azure/" not in frame.f_code.co_filename.replace("\\", "/"):
                continue
            settings = frame.f_locals.get("retry_settings")
            context = read(frame.f_locals.get("pipeline_response"), "context")
            for notes in (settings, context):
                history = notes.get("history") if isinstance(notes, dict) else None
                if isinstance(history, list):
                    yield history


KNOWN: dict[str, Entry] = {
    "azure.HttpResponseError": _counted(_response),
    "azure.ClientAuthenticationError": PERMANENT,
    "azure.DecodeError": PERMANENT,
    "azure.IncompleteReadError": _counted(TRANSIENT),
    # "No request was sent", they say, but wrap errors of every kind so: believed where the error inside says it too.
    "azure.ServiceRequestTimeoutError": _counted(wrapping(NO_CONNECTION, *_INNER)),
    "azure.ServiceRequestError": _counted(wrapping(TRANSIENT, *_INNER)),
    "azure.ServiceResponseTimeoutError": _counted(TIMEOUT),
    "azure.ServiceResponseError": _counted(TRANSIENT),
    "azure.DeserializationError": PERMANENT,
    "azure.SerializationError": PERMANENT,
    "azure.AzureError": wrapping(UNKNOWN, *_INNER),
}
