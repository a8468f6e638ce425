"""Users of the host application: the function `who=` names the user of each request."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool

from ...ops.sign_in.hashes import redact_text
from .user import User

Who: TypeAlias = Callable[[Any], User | Awaitable[User | None] | None]
LOG = logging.getLogger("redrive.console")
NEXT = "{next}"
"""The place of the requested page in `login_url=`."""


class WhoFailed(Exception):
    """The function of the host application raised an error, or returned no user."""


@dataclass(frozen=True, slots=True)
class HostUsers:
    """How the host application names the user of a request. Event loops may share one."""

    who: Who
    login_url: str | None = None

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError if an option is not valid."""
        if not callable(self.who):
            raise TypeError(
                f"who= must be a function of the ASGI scope, not {type(self.who).__name__}"
            )
        url = self.login_url
        if url is not None and not (
            isinstance(url, str)
            and url.startswith(("/", "https://", "http://"))
            and not url.startswith(("//", "/\\"))
        ):
            raise ValueError(f"login_url=: invalid URL {url!r}; use /login or https://…")

    async def identify(self, scope: MutableMapping[str, Any]) -> User | None:
        """Return the user of a request, or None before a sign-in.

        Raises:
            WhoFailed: The function raised an error, or returned something else. It is logged.
        """
        try:
            if inspect.iscoroutinefunction(self.who) or inspect.iscoroutinefunction(
                type(self.who).__call__
            ):
                user = self.who(scope)
            else:  # it may ask a database
                user = await run_in_threadpool(self.who, scope)
            if inspect.isawaitable(user):
                user = await user
        except Exception as error:
            problem = redact_text(f"{type(error).__name__}: {error}")
            raise _log_failure(f"raised {problem}") from error
        if user is None or isinstance(user, User):
            return user
        raise _log_failure(
            f"returned {type(user).__name__}; return redrive.console.User(...) or None"
        )

    def login_url_of(self, page: str, /) -> str | None:
        """Return the URL where the user signs in, and comes back to the page from."""
        if self.login_url is None:
            return None
        target = quote(page, safe="")
        if NEXT in self.login_url:
            return self.login_url.replace(NEXT, target)
        separator = "&" if "?" in self.login_url else "?"
        return f"{self.login_url}{separator}next={target}"


def _log_failure(problem: str) -> WhoFailed:
    line = " ".join(problem.split())
    LOG.error("console: who= %s; the request was rejected", line)
    return WhoFailed(line)
