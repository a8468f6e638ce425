"""Error responses: a page for people, application/problem+json for programs. Never a traceback."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ...errors import LedgerError, NotAllowed
from ...ops.target import DATABASES
from ..security.middleware import api, path_of
from ..view import view

LOG = logging.getLogger("redrive.console")
TITLES = {
    400: "Invalid request", 403: "Not allowed", 404: "Not found", 405: "Method not allowed", 409: "Conflict",
    422: "Invalid request", 429: "Too many requests", 503: "Ledger unavailable",
}  # fmt: skip


def problem(request: Request, status: int, said: str, /) -> Response:
    """Make the response."""
    title = TITLES.get(status, "Internal error")
    if api(path_of(request.scope)):
        return JSONResponse({"title": title, "status": status, "detail": said}, status, media_type="application/problem+json")
    return view(request).page("problem.html", code=status, title=title, said=said)


def missing(what: str, /) -> HTTPException:
    """Make a 404 response."""
    return HTTPException(404, what)


def told(app: FastAPI, /) -> None:
    """Register the error handlers."""

    def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem(request, error.status_code, str(error.detail))

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        return problem(request, 422, said)

    def refused(request: Request, error: Exception) -> Response:
        return problem(request, 409, str(error))

    def wrong(request: Request, error: Exception) -> Response:
        return problem(request, 422, str(error))

    def out_of_range(request: Request, error: Exception) -> Response:
        return problem(request, 422, f"date or number out of range: {error}")

    def unreachable(request: Request, error: Exception) -> Response:
        return problem(request, 503, str(error))

    def unexpected(request: Request, error: Exception) -> Response:
        LOG.error("request failed: %s %s", request.method, path_of(request.scope), exc_info=error)
        if type(error).__module__.partition(".")[0] in DATABASES:
            return problem(request, 503, "The database failed. See the log of the console.")
        return problem(request, 500, "Unexpected error. See the log of the console.")

    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(NotAllowed, refused)
    app.add_exception_handler(ValueError, wrong)
    app.add_exception_handler(OverflowError, out_of_range)
    app.add_exception_handler(LedgerError, unreachable)
    app.add_exception_handler(Exception, unexpected)
