"""The programs that authenticate users for the console: host application, proxy and provider."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .credentials import Way
from .host import HostUsers, Who
from .proxy import TrustedProxy
from .user import User

if TYPE_CHECKING:  # its library may be missing
    from .oidc import OIDC

NOT_SIGNED_IN = "You are not signed in. Sign in to the application that this console belongs to."
NO_PROXY = "You are not signed in. Open this console through the proxy that signs you in."


@dataclass(frozen=True, slots=True)
class SignIn:
    """How users are authenticated, beside passwords and tokens. Event loops may share one."""

    host: HostUsers | None = None
    proxy: TrustedProxy | None = None
    oidc: OIDC | None = None

    @property
    def has_users(self) -> bool:
        """Whether another program authenticates users."""
        return any(way is not None for way in (self.host, self.proxy, self.oidc))

    @property
    def explanation(self) -> str:
        """Where a visitor can sign in."""
        return NO_PROXY if self.host is None and self.proxy is not None else NOT_SIGNED_IN

    async def identify(self, scope: MutableMapping[str, Any], /) -> tuple[User | None, Way]:
        """Return the user that the proxy or the host application names, and which of them did.

        Raises:
            ProxyHeaderInvalid: The proxy sent an invalid header.
            WhoFailed: The function of the host application failed.
        """
        if self.proxy is not None and (user := self.proxy.identify(scope)) is not None:
            return user, "proxy"
        return (None if self.host is None else await self.host.identify(scope)), "host"

    def login_url_of(self, root: str, page: str, /, *, has_form: bool) -> str | None:
        """Return the URL where a visitor signs in, and comes back to the page from.

        Args:
            root: Where the console is mounted.
            page: The requested page within the console.
            has_form: Whether the console has a form for passwords.
        """
        if self.host is not None and (url := self.host.login_url_of(root + page)) is not None:
            return url
        next_page = "" if page == "/" else f"?next={quote(page, safe='')}"
        if has_form:
            return f"{root}/login{next_page}"
        return None if self.oidc is None else f"{root}/login/oidc{next_page}"


def make_sign_in(
    *,
    who: Who | None = None,
    login_url: str | None = None,
    proxy: TrustedProxy | None = None,
    oidc: OIDC | None = None,
) -> SignIn:
    """Check the options of `asgi`. Raises TypeError or ValueError if one is not valid."""
    if who is None and login_url is not None:
        raise ValueError("login_url=: it needs who=; pass the function that names the user")
    if proxy is not None and not isinstance(proxy, TrustedProxy):
        raise TypeError(f"proxy= must be TrustedProxy(...), not {type(proxy).__name__}")
    if oidc is not None and type(oidc).__name__ != "OIDC":
        raise TypeError(f"oidc= must be OIDC(...), not {type(oidc).__name__}")
    return SignIn(None if who is None else HostUsers(who, login_url), proxy, oidc)
