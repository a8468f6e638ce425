"""View: what a page gets: who asks, the operator that does it in their name, the form they sent; and how it answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Annotated, Any
from urllib.parse import quote_plus

from fastapi import Depends, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import QueryParams

from ..core.clock import SYSTEM
from ..ops.operator import Operator
from ..ops.render import moment
from ..ops.target import Operated
from .render.navigation import NAV
from .render.templates import TEMPLATES
from .security.credentials import Access, Who
from .security.middleware import path_of

THEME = "redrive_theme"


class View:
    """One request to a page. Belongs to that request."""

    def __init__(self, request: Request, app: Operated, access: Access) -> None:
        self.request = request
        self.app = app
        self.access = access
        self.who: Who | None = request.state.who
        self.form: Mapping[str, str] = request.state.form
        # Postgres has no NUL in its texts.
        self.query = QueryParams([(name, value.replace("\0", "")) for name, value in request.query_params.multi_items()])
        self.root: str = request.scope.get("root_path", "")
        self.path = path_of(request.scope)
        self.now = SYSTEM.now()

    @cached_property
    def ops(self) -> Operator:
        """Acts in the name of whoever asks."""
        assert self.who is not None  # the gate lets nobody else in
        return Operator(self.app, actor=self.who.name)

    @property
    def may_act(self) -> bool:
        """Whether buttons are shown; that they are pressed is for the gate to refuse."""
        return self.who is not None and self.who.may_act

    # ---- what was asked ----

    def text(self, name: str, /) -> str | None:
        """A word of the query; None where it is missing or empty."""
        return self.query.get(name, "").strip() or None

    def number(self, name: str, default: int, /, *, least: int = 1, most: int = 1_000_000) -> int:
        """A number of the query, within its bounds; the default where it is none."""
        text = self.query.get(name, "").strip().replace(",", "")
        return min(max(int(text), least), most) if text.isdecimal() and text.isascii() else default

    def since(self, name: str = "since", /) -> datetime | None:
        """A moment of the query, written as on the command line: 30min, 12h, 7d, 2026-01-31T12:30. ValueError says how."""
        text = self.text(name)
        return None if text is None else moment(text)

    @staticmethod
    def moment(text: str, /) -> datetime:
        """What somebody wrote as a moment. ValueError says how to write one."""
        return moment(text)

    # ---- what is answered ----

    def url(self, path: str, /, **query: Any) -> str:
        """The address of a page of ours, wherever the console is mounted; what is None or empty is left out."""
        said = [_said(name, value) for name, value in query.items() if value not in (None, "", ())]
        return f"{self.root}{path}?{'&'.join(said)}" if said else f"{self.root}{path}"

    def with_(self, **changed: Any) -> str:
        """The address of this page with some of its query changed."""
        return self.url(self.path, **{**self._kept, **changed})

    @cached_property
    def _kept(self) -> dict[str, str]:
        return {name: value for name, value in self.query.items() if name not in ("said", "ok")}

    def page(self, template: str, /, *, code: int = 200, **facts: Any) -> HTMLResponse:
        """The page, rendered."""
        known = {
            "view": self, "url": self.url, "nav": NAV, "csrf": self.access.csrf(self.who.session) if self.who else "",
            "who": self.who,
            "may_act": self.may_act, "theme": self.request.cookies.get(THEME),
        }  # fmt: skip
        return HTMLResponse(TEMPLATES.get_template(template).render(known | facts), code)

    def to(self, path: str, /, **query: Any) -> RedirectResponse:
        """Go there next, after something was done. said: what to say there; signed, so that no link can put words here."""
        if "said" in query and self.who is not None:
            query["ok"] = self.access.csrf(self.who.session, f"said:{query['said']}")
        return RedirectResponse(self.url(path, **query), 303)

    @property
    def said(self) -> str | None:
        """What the page before has to say."""
        text = self.query.get("said", "")
        known = text and self.who and self.access.is_csrf(self.who.session, self.query.get("ok", ""), f"said:{text}")
        return text if known else None


_quoted = lru_cache(maxsize=1000)(quote_plus)
"""The links of a page have nearly all of their words in common."""


def _said(name: str, value: Any) -> str:
    """As `urlencode` has it, which takes three times as long; a page has hundreds of them."""
    if not (name.isascii() and name.isidentifier()):  # somebody's own: `with_` keeps what it was asked with
        name = quote_plus(name)
    if isinstance(value, (list, tuple)):
        return "&".join(f"{name}={quote_plus(str(each))}" for each in value)
    return f"{name}={_quoted(value if isinstance(value, str) else str(value))}"


def view(request: Request) -> View:
    """The view of a request, for `Here`."""
    state = request.app.state
    return View(request, state.operated, state.access)


Id = Annotated[int, Path(ge=1, le=2**63 - 1)]
"""The number of a job, a dead letter, a sweep, in a path."""
Here = Annotated[View, Depends(view)]
"""What a page declares as its parameter: `def dead(view: Here) -> Response`."""
