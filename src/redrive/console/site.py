"""Site: the console put together: the gate, the pages, the API, what is served as it is."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from ..ops.operator import Operator
from ..ops.sessions import RevokedSessions
from ..ops.target import Operated
from .api import API
from .live import Live
from .pages import PAGES
from .render.problem import told
from .render.templates import CONSOLE
from .security.credentials import Access
from .security.login_throttle import Patience
from .security.middleware import ASGI, Gate
from .view import Here


def site(app: Operated, access: Access, /) -> ASGI:
    """The console of an app."""
    made = FastAPI(title="Redrive", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    ops = Operator(app, actor="console")
    made.state.operated, made.state.access = app, access
    made.state.patience = Patience()
    made.state.revoked = revoked = RevokedSessions(app)
    made.state.live = live = Live(ops.overview.change_token)
    told(made)
    for page in PAGES:
        made.include_router(page, include_in_schema=False)
    for noun in API:
        made.include_router(noun)
    made.mount("/static", StaticFiles(directory=CONSOLE / "static"))

    @made.get("/live", include_in_schema=False)
    async def listen(_view: Here) -> Response:
        """Changes, as they come."""
        if live.full:
            return PlainTextResponse("Too many open pages.\n", 503, {"retry-after": "30"})
        return StreamingResponse(live.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    return Gate(made, access, revoked)
