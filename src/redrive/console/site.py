"""Site: the console put together: the gate, the pages, the API, what is served as it is."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from starlette.staticfiles import StaticFiles

from ..ops.operator import Operator
from ..ops.source import Operated
from .access import Access
from .gate import ASGI, Gate
from .live import Live
from .pages import PAGES
from .patience import Patience
from .problem import told
from .shown import HERE
from .view import Here


def site(app: Operated, access: Access, /, *, metrics: Callable[[], tuple[bytes, str]] | None = None) -> ASGI:
    """The console of an app. metrics: what /metrics answers, and its content type; without it there is no such page."""
    made = FastAPI(title="Redrive", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None)
    ops = Operator(app, actor="console")
    made.state.operated, made.state.access = app, access
    made.state.patience = Patience()
    made.state.live = live = Live(ops.pulse)
    told(made)
    for page in PAGES:
        made.include_router(page, include_in_schema=False)
    made.mount("/static", StaticFiles(directory=HERE / "static"))

    @made.get("/live", include_in_schema=False)
    async def listen(_view: Here) -> StreamingResponse:
        """Changes, as they come."""
        return StreamingResponse(live.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    if metrics is not None:
        scrape = metrics

        @made.get("/metrics", include_in_schema=False)
        def measured(_view: Here) -> Response:
            """For Prometheus."""
            body, kind = scrape()
            return Response(body, media_type=kind)

    return Gate(made, access)
