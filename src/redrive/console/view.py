"""The view of one request: its identity, its operator, its query or form, and its responses.

And the pages of the menu, in the order in which an incident needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote_plus

from fastapi import Depends, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import QueryParams

from ..core.clock import SYSTEM
from ..ops.operator import Operator
from ..ops.plans.plan import is_confirmed
from ..ops.project.target import Operated
from .queries import ListQueryT
from .render.templates import TEMPLATES
from .security.credentials import AccessControl, Identity
from .security.middleware import console_path
from .security.user import POLLING


class MenuEntry(NamedTuple):
    """A page in the menu. Immutable."""

    path: str
    title: str
    shortcut: str
    """The key that opens the page after `g`."""


NAVIGATION: tuple[tuple[str, tuple[MenuEntry, ...]], ...] = (
    (
        "Status",
        (
            MenuEntry("/", "Overview", "o"),
            MenuEntry("/activity", "Activity", "v"),
            MenuEntry("/failures", "Failures", "f"),
            MenuEntry("/journal", "Log records", "t"),
        ),
    ),
    (
        "Actions",
        (
            MenuEntry("/dead", "Dead letters", "d"),
            MenuEntry("/sweeps", "Bulk operations", "s"),
            MenuEntry("/controls", "Pauses and limits", "u"),
            MenuEntry("/keys", "Idempotency records", "k"),
        ),
    ),
    (
        "Work",
        (
            MenuEntry("/jobs", "Jobs", "j"),
            MenuEntry("/events", "Events", "e"),
            MenuEntry("/batches", "Batches", "b"),
            MenuEntry("/partitions", "Partitions", "p"),
            MenuEntry("/schedules", "Schedules", "c"),
            MenuEntry("/workers", "Workers", "w"),
        ),
    ),
    (
        "Records",
        (
            MenuEntry("/audit", "Audit log", "a"),
            MenuEntry("/layers", "Retry layers", "l"),
            MenuEntry("/erase", "Data erasure", "x"),
        ),
    ),
)

THEME_COOKIE = "redrive_theme"
FLASH, FLASH_SIGNATURE = "said", "ok"
"""Query parameters of the message that a page shows after a redirect."""


class View:
    """One request to a page or the API. Belongs to that request."""

    def __init__(self, request: Request, target: Operated, access: AccessControl) -> None:
        self.request = request
        self.target = target
        self.access = access
        self.identity: Identity | None = request.state.identity
        self.form: Mapping[str, str] = request.state.form
        # Postgres cannot store NUL.
        self.query = QueryParams(
            [(name, text.replace("\0", "")) for name, text in request.query_params.multi_items()]
        )
        self.root: str = request.scope.get("root_path", "")
        self.path = console_path(request.scope)
        self.is_polling = POLLING in (request.scope.get("extensions") or {})
        """Whether open pages ask for changes themselves."""
        self.now = SYSTEM.now()
        self.query_error: str | None = None
        """The problem of the query that `read_query` has read."""

    @cached_property
    def operator(self) -> Operator:
        """The operator that acts in the name of this identity."""
        assert self.identity is not None  # the middleware refuses other requests
        identity = self.identity
        return Operator(
            self.target,
            actor=identity.name,
            via=identity.via,
            rights=identity.rights,
            reads=self.request.app.state.reads,
        )

    def may(self, act: str, /, *names: str | None) -> bool:
        """Whether the button of an act is shown. The operator refuses acts without a right.

        Args:
            act: The act, see `redrive.ops.sign_in.rights`.
            names: The job types. None: it belongs to no job type.
        """
        return self.identity is not None and self.identity.may(act, *names)

    # ---- the request ----

    def text(self, name: str, /) -> str | None:
        """Return a parameter of the query, or None if it is missing or blank."""
        return self.query.get(name, "").strip() or None

    def number(self, name: str, default: int, /, *, maximum: int = 1_000_000) -> int:
        """Return a number of the query between 1 and the maximum, or the default."""
        number = read_number(self.query.get(name, ""))
        return default if number is None else min(max(number, 1), maximum)

    def read_query(
        self, query_type: type[ListQueryT], /, *, limit: int = 50, max_limit: int = 500
    ) -> ListQueryT:
        """Read the parameters of a list. The limit is the default length of the page.

        Invalid values are ignored. The page then shows `query_error`.
        """
        fields = {**self.query, "limit": str(self.number("limit", limit, maximum=max_limit))}
        query, self.query_error = query_type.read_valid(fields)
        return query

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """The form of a POST request, otherwise the query. Repeated values are lines."""
        if self.request.method == "POST":
            return self.form
        return {name: "\n".join(self.query.getlist(name)) for name in self.query}

    def field(self, name: str, /) -> str:
        """Return a field of the form or the query without surrounding space."""
        return self.fields.get(name, "").strip()

    def reason(self) -> str:
        """Return the reason that the operator entered. ValueError: it is blank."""
        reason = self.form.get("because", "")
        if not reason.strip():
            raise ValueError("enter a reason for the audit log; nothing was changed")
        return reason

    def check_typed(self, count: int, /) -> None:
        """Raise ValueError unless the operator has typed the number of items to confirm."""
        if not is_confirmed(count, self.field("typed")):
            raise ValueError(f"type {count} to confirm; nothing was changed")

    # ---- the response ----

    def url(self, path: str, /, **query: Any) -> str:
        """Return the URL of a page, wherever the console is mounted.

        Parameters that are None or empty are left out.
        """
        pairs = [
            _encode_pair(name, value)
            for name, value in query.items()
            if value not in (None, "", ())
        ]
        return f"{self.root}{path}?{'&'.join(pairs)}" if pairs else f"{self.root}{path}"

    def url_with(self, **changes: Any) -> str:
        """Return the URL of this page with another query."""
        return self.url(self.path, **{**self._query_without_flash, **changes})

    @cached_property
    def _query_without_flash(self) -> dict[str, str]:
        hidden = (FLASH, FLASH_SIGNATURE)
        return {name: value for name, value in self.query.items() if name not in hidden}

    def render(self, template: str, /, *, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a rendered page."""
        identity = self.identity
        common = {
            "view": self,
            "url": self.url,
            "navigation": NAVIGATION,
            "csrf_token": self.access.csrf_token(identity.session) if identity else "",
            "identity": identity,
            "may": self.may,
            "theme": self.request.cookies.get(THEME_COOKIE),
        }
        return HTMLResponse(TEMPLATES.get_template(template).render(common | context), status)

    def redirect(self, path: str, /, *, flash: str | None = None, **query: Any) -> RedirectResponse:
        """Redirect to a page after an action.

        Args:
            path: The page.
            flash: A message to show there. It is signed, so that a link cannot forge one.
            query: The query of the page.
        """
        if flash is not None and self.identity is not None:
            signature = self.access.csrf_token(self.identity.session, f"said:{flash}")
            query |= {FLASH: flash, FLASH_SIGNATURE: signature}
        return RedirectResponse(self.url(path, **query), 303)

    @property
    def flash(self) -> str | None:
        """The message of the previous page."""
        text, signature = self.query.get(FLASH, ""), self.query.get(FLASH_SIGNATURE, "")
        if not text or self.identity is None:
            return None
        is_ours = self.access.is_csrf_token(self.identity.session, signature, f"said:{text}")
        return text if is_ours else None


def read_number(text: str, /) -> int | None:
    """Return a whole number that may have thousands separators, or None if it is invalid."""
    digits = text.strip().replace(",", "")
    is_number = digits.isdecimal() and digits.isascii() and len(digits) < 19
    return int(digits) if is_number else None


_quote = lru_cache(maxsize=1000)(quote_plus)
"""Cached, because the links of a page share most of their words."""


def _encode_pair(name: str, value: Any) -> str:
    """Encode like `urlencode`, but three times as fast. A page has hundreds of links."""
    if not (name.isascii() and name.isidentifier()):  # `url_with` keeps unknown parameters
        name = quote_plus(name)
    if isinstance(value, (list, tuple)):
        return "&".join(f"{name}={quote_plus(str(item))}" for item in value)
    return f"{name}={_quote(value if isinstance(value, str) else str(value))}"


def view_of(request: Request) -> View:
    """Return the view of a request."""
    state = request.app.state
    return View(request, state.target, state.access)


RowId = Annotated[int, Path(ge=1, le=2**63 - 1, description="Its id.")]
"""The id of a job, a dead letter or a sweep, in a path."""
CurrentView = Annotated[View, Depends(view_of)]
"""The parameter of every page: `def dead(view: CurrentView) -> Response`."""
