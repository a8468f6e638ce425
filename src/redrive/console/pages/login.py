"""Login: sign in with a name and a password, and sign out."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from ...ops.sign_in.sessions import RevokedSessions
from ..security.credentials import DEVICE_SECONDS, SESSION_SECONDS, TooManyLogins, name_of
from ..security.login_throttle import LoginThrottle, network_of
from ..security.middleware import DEVICE_COOKIE, SESSION_COOKIE
from ..view import CurrentView

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
    target = view.form.get("next", "")
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\"))
    response = RedirectResponse(view.root + (target if is_ours else "/"), 303)
    cookies = (
        (SESSION_COOKIE, view.access.create_session(name, role), SESSION_SECONDS),
        (DEVICE_COOKIE, view.access.create_device_cookie(), DEVICE_SECONDS),
    )
    for cookie, value, seconds in cookies:
        response.set_cookie(
            cookie,
            value,
            max_age=int(seconds),
            path=view.root or "/",
            httponly=True,
            samesite="strict",
            secure=view.request.url.scheme == "https",
        )
    return response


@router.post("/logout")
def log_out(view: CurrentView) -> Response:
    """End the session, in this browser and wherever its cookie was copied to."""
    if view.identity is not None and view.identity.by == "password":
        revoked: RevokedSessions = view.request.app.state.revoked
        revoked.revoke(view.identity.session, keep=SESSION_SECONDS)
    response = view.redirect("/login")
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
    response = view.render("login.html", status=status, target=target, name=name, error=error)
    if retry_after is not None:
        response.headers["retry-after"] = f"{retry_after:.0f}"
    return response
