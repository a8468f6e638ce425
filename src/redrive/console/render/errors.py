"""Error responses: a page for people, application/problem+json for programs. Never a traceback."""

from __future__ import annotations

import logging
from typing import TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ...errors import LedgerError, MissingRight, NotAllowed
from ...ops.project.target import DATABASES
from ..security.middleware import console_path, is_api
from ..view import view_of

LOG = logging.getLogger("redrive.console")
TITLES = {
    400: "Invalid request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    422: "Invalid request",
    429: "Too many requests",
    503: "Ledger unavailable",
}
STATUS_BY_ERROR: dict[type, int] = {
    MissingRight: 403,
    NotAllowed: 409,
    ValueError: 422,
    LedgerError: 503,
}
"""Status of errors whose message is shown as it is."""

T = TypeVar("T")


def problem(request: Request, status: int, detail: str, /) -> Response:
    """Return the error response of a request."""
    title = TITLES.get(status, "Internal error")
    if is_api(console_path(request.scope)):
        content = {"title": title, "status": status, "detail": detail}
        return JSONResponse(content, status, media_type="application/problem+json")
    return view_of(request).render("problem.html", status=status, title=title, detail=detail)


def require(value: T | None, detail: str, /) -> T:
    """Return the value. Without one, the response is 404."""
    if value is None:
        raise HTTPException(404, detail)
    return value


def add_error_handlers(app: FastAPI, /) -> None:
    """Register a handler for every kind of error."""

    def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem(request, error.status_code, str(error.detail))

    def on_invalid_request(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return problem(request, 422, "; ".join(problems))

    def on_known_error(request: Request, error: Exception) -> Response:
        bases = type(error).__mro__
        status = next(STATUS_BY_ERROR[base] for base in bases if base in STATUS_BY_ERROR)
        return problem(request, status, str(error))

    def on_overflow(request: Request, error: Exception) -> Response:
        return problem(request, 422, f"date or number out of range: {error}")

    def on_unknown_error(request: Request, error: Exception) -> Response:
        path = console_path(request.scope)
        LOG.error("request failed: %s %s", request.method, path, exc_info=error)
        if type(error).__module__.partition(".")[0] in DATABASES:
            return problem(request, 503, "The database failed. See the log of the console.")
        return problem(request, 500, "Unexpected error. See the log of the console.")

    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(OverflowError, on_overflow)
    app.add_exception_handler(Exception, on_unknown_error)
    for kind in STATUS_BY_ERROR:
        app.add_exception_handler(kind, on_known_error)
