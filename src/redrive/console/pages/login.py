"""Login: sign in with a name and a password, and sign out.

The throttle limits wrong passwords by address, or by known browser.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ...core.clock import SYSTEM, Clock
from ...ops.sign_in.sessions import AccessStore
from ..security.credentials import DEVICE_SECONDS, SESSION_SECONDS, TooManyLogins, name_of
from ..security.middleware import DEVICE_COOKIE, PROVIDER_PREFIX, SESSION_COOKIE
from ..security.user import SignInRefused
from ..view import CurrentView, View

if TYPE_CHECKING:  # its library may be missing
    from ..security.oidc import OIDC

PENDING_COOKIE = "redrive_oidc"
PENDING_SECONDS = 600
"""Time for a person to sign in at the provider."""
MAX_WRONG = 5
"""Wrong passwords within WINDOW_SECONDS."""
WINDOW_SECONDS = 60.0
MAX_ADDRESSES = 10_000
"""Addresses that are tracked. The oldest are forgotten first."""


class LoginThrottle:
    """Counts failed logins by address, in a window of one minute. Threads may share one.

    All addresses together have no limit, because strangers could use it to lock out every
    operator. The cost of checking a password limits them (see `AccessControl.check_password`).
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def start_attempt(self, address: str, /) -> float:
        """Count an attempt as failed, until `forgive` is called.

        The attempt counts before its password is checked. Checking is slow, so simultaneous
        requests would otherwise exceed the limit.

        Returns:
            Seconds until this address may log in. 0: now.
        """
        now = self._clock.monotonic()
        with self._lock:
            times = self._failures.get(address, [])
            recent = [time for time in times if time > now - WINDOW_SECONDS]
            if len(recent) >= MAX_WRONG:
                return recent[-MAX_WRONG] + WINDOW_SECONDS - now
            self._failures.pop(address, None)
            self._failures[address] = [*recent, now]
            while len(self._failures) > MAX_ADDRESSES:
                self._failures.popitem(last=False)
            return 0.0

    def forgive(self, address: str, /) -> None:
        """Remove the last attempt: its password was right, or was not checked."""
        with self._lock:
            times = self._failures.get(address)
            if times:
                times.pop()


def network_of(host: str, /) -> str:
    """Return the part of an address that a client cannot choose: for IPv6 the first 64 bits."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


router = APIRouter()


@router.get("/login")
def form(view: CurrentView) -> Response:
    """Show the form."""
    return view.redirect("/") if view.identity is not None else _render_form(view)


@router.post("/login")
def log_in(view: CurrentView) -> Response:
    """Sign a person in. After several wrong passwords, the address must wait."""
    throttle: LoginThrottle = view.request.app.state.login_throttle
    client = view.request.client
    device = view.request.cookies.get(DEVICE_COOKIE, "")
    is_known = bool(device) and view.access.is_known_device(device)
    # A known browser has its own count, so that strangers cannot lock out its owner.
    address = device if is_known else network_of(client.host) if client else "here"
    name = name_of(view.form.get("name", ""))
    wait = throttle.start_attempt(address)
    if wait:
        error = f"Too many wrong passwords. Wait {wait:.0f} s."
        return _render_form(view, name, error, 429, retry_after=wait)
    try:
        password = view.form.get("password", "")
        role = view.access.check_password(password, known=is_known) if name else None
    except TooManyLogins:
        throttle.forgive(address)
        error = "Too many sign-ins at the same time. Retry in a second."
        return _render_form(view, name, error, 503, retry_after=1)
    if role is None:
        error = "Wrong password." if name else "Enter your name. The name redrive is reserved."
        return _render_form(view, name, error, 403)
    throttle.forgive(address)
    response = RedirectResponse(view.root + _own_page(view.form.get("next", "")), 303)
    session = view.access.create_session(name, role)
    store: AccessStore = view.request.app.state.access_store
    store.start(session, name=name, role=role, via="password", seconds=SESSION_SECONDS)
    cookies = (
        (SESSION_COOKIE, session, SESSION_SECONDS),
        (DEVICE_COOKIE, view.access.create_device_cookie(), DEVICE_SECONDS),
    )
    for cookie, value, seconds in cookies:
        _set_cookie(view, response, cookie, value, seconds)
    return response


@router.get("/login/oidc")
async def start_provider_sign_in(view: CurrentView) -> Response:
    """Send a person to the identity provider."""
    oidc = _provider_of(view)
    target = _own_page(view.query.get("next", ""))
    try:
        url, pending = await oidc.start(_callback_url(view, oidc), target)
    except SignInRefused as error:
        return _render_refusal(view, error)
    response = RedirectResponse(url, 303)
    response.set_cookie(
        PENDING_COOKIE,
        pending.to_cookie(),
        max_age=PENDING_SECONDS,
        path=f"{view.root}/login",
        httponly=True,
        samesite="lax",  # the provider's redirect comes from another site
        secure=view.request.url.scheme == "https",
    )
    return response


@router.get("/login/oidc/callback")
async def finish_provider_sign_in(view: CurrentView) -> Response:
    """Sign in a person whom the identity provider has authenticated.

    The page, not a redirect, opens the requested page: a browser does not send a strict cookie with
    a redirect that began at another site.
    """
    oidc = _provider_of(view)
    pending = oidc.read_pending(view.request.cookies.get(PENDING_COOKIE, ""))
    try:
        user, subject = await oidc.finish(pending, view.query, _callback_url(view, oidc))
    except SignInRefused as error:
        response = _render_refusal(view, error)
    else:
        cookie = PROVIDER_PREFIX + secrets.token_urlsafe(32)
        store: AccessStore = view.request.app.state.access_store

        def start() -> None:
            store.start(
                cookie,
                name=user.name,
                role=user.role,
                via=f"oidc {subject}",
                seconds=SESSION_SECONDS,
                rights=user.rights,
            )

        await run_in_threadpool(start)
        # The browser had the target in a cookie, which another host of the domain may have set.
        target = view.root + _own_page(pending.target if pending else "/")
        response = view.render("signed_in.html", target=target)
        _set_cookie(view, response, SESSION_COOKIE, cookie, SESSION_SECONDS)
    response.delete_cookie(PENDING_COOKIE, path=f"{view.root}/login", httponly=True, samesite="lax")
    return response


def _provider_of(view: View) -> OIDC:
    oidc: OIDC | None = view.request.app.state.oidc
    if oidc is None:
        raise HTTPException(404, "this console has no identity provider")
    return oidc


def _callback_url(view: View, oidc: OIDC) -> str:
    if oidc.redirect_url is not None:
        return oidc.redirect_url
    url = view.request.url
    return f"{url.scheme}://{url.netloc}{view.root}/login/oidc/callback"


def _own_page(target: str) -> str:
    """Return a page of this console. Another site cannot be the target of a sign-in.

    Browsers ignore tabs and line breaks in a URL, so that another site could begin after them.
    """
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_ours and target.isprintable() else "/"


def _set_cookie(view: View, response: Response, name: str, value: str, seconds: float) -> None:
    response.set_cookie(
        name,
        value,
        max_age=int(seconds),
        path=view.root or "/",
        httponly=True,
        samesite="strict",
        secure=view.request.url.scheme == "https",
    )


def _render_refusal(view: View, error: SignInRefused) -> Response:
    title = "Identity provider unavailable" if error.status == 503 else "Sign-in failed"
    return view.render("sign_in_failed.html", status=error.status, title=title, detail=str(error))


@router.post("/logout")
def log_out(view: CurrentView) -> Response:
    """End the session, in this browser and wherever its cookie was copied to.

    With the field `everywhere`, all sessions of this person end.
    """
    if view.identity is not None and view.identity.by in ("password", "oidc"):
        store: AccessStore = view.request.app.state.access_store
        store.end(view.identity.session, everywhere=view.field("everywhere") == "1")
    response = view.redirect("/login", signed_out="1")
    response.delete_cookie(SESSION_COOKIE, path=view.root or "/", httponly=True, samesite="strict")
    return response


def _render_form(
    view: CurrentView,
    name: str = "",
    error: str = "",
    status: int = 200,
    retry_after: float | None = None,
) -> Response:
    target = view.fields.get("next", "")
    oidc: OIDC | None = view.request.app.state.oidc
    response = view.render(
        "login.html",
        status=status,
        target=target,
        name=name,
        error=error,
        has_passwords=view.access.has_passwords,
        has_provider=oidc is not None,
        provider_logout=None if oidc is None else oidc.logout_url(),
        is_signed_out=view.text("signed_out") is not None,
    )
    if retry_after is not None:
        response.headers["retry-after"] = f"{retry_after:.0f}"
    return response
