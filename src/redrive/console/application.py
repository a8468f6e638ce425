"""The console as one ASGI application: middleware, pages, REST API and static files."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from ..ops.operator import Operator
from ..ops.project.target import Operated
from ..ops.sign_in.sessions import RevokedSessions
from .api import ROUTERS as API_ROUTERS
from .live import LiveUpdates
from .pages import ROUTERS as PAGE_ROUTERS
from .render.errors import add_error_handlers
from .render.templates import CONSOLE_FOLDER
from .security.credentials import AccessControl
from .security.login_throttle import LoginThrottle
from .security.middleware import SecurityMiddleware
from .view import CurrentView


def create_application(target: Operated, access: AccessControl, /) -> SecurityMiddleware:
    """Return the console of an app or a ledger."""
    application = FastAPI(
        title="Redrive", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None
    )
    application.state.target, application.state.access = target, access
    application.state.login_throttle = LoginThrottle()
    application.state.revoked = revoked = RevokedSessions(target)
    live = LiveUpdates(Operator(target, actor="console").overview.change_token)
    add_error_handlers(application)
    for router in PAGE_ROUTERS:
        application.include_router(router, include_in_schema=False)
    for router in API_ROUTERS:
        application.include_router(router)
    application.mount("/static", StaticFiles(directory=CONSOLE_FOLDER / "static"))

    @application.get("/live", include_in_schema=False)
    async def stream_changes(_view: CurrentView) -> Response:
        if live.is_full:
            return PlainTextResponse("Too many open pages.\n", 503, {"retry-after": "30"})
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(live.stream(), media_type="text/event-stream", headers=headers)

    return SecurityMiddleware(application, access, revoked)
