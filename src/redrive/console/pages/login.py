"""Login: sign in with a name and a password, and sign out."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from ...ops.sessions import RevokedSessions
from ..security.credentials import DEVICE, SESSION, Busy, name_of
from ..security.login_throttle import Patience, network_of
from ..security.middleware import COOKIE, DEVICE_COOKIE
from ..view import Here, View

router = APIRouter()


@router.get("/login")
def asked(view: Here) -> Response:
    """Show the form."""
    return view.to("/") if view.who is not None else _form(view, view.query.get("next", ""))


@router.post("/login")
def signed_in(view: Here) -> Response:
    """Sign a person in. After several wrong passwords, the address must wait."""
    patience: Patience = view.request.app.state.patience
    client = view.request.client
    device = view.request.cookies.get(DEVICE_COOKIE, "")
    known = bool(device) and view.access.is_device(device)
    # A known browser has a count of its own: strangers cannot lock its owner out.
    address = device if known else network_of(client.host) if client else "here"
    to, name = view.form.get("next", ""), name_of(view.form.get("name", ""))
    wait = patience.wait(address)
    if wait:
        answer = _form(view, to, name, f"Too many wrong passwords. Wait {wait:.0f} s.", 429)
        answer.headers["retry-after"] = f"{wait:.0f}"
        return answer
    try:
        role = view.access.role_of(view.form.get("password", ""), known=known) if name else None
    except Busy:
        patience.well(address)
        answer = _form(view, to, name, "Too many sign-ins at the same time. Retry in a second.", 503)
        answer.headers["retry-after"] = "1"
        return answer
    if role is None:
        said = "Wrong password." if name else "Enter your name. The name redrive is reserved."
        return _form(view, to, name, said, 403)
    patience.well(address)
    inside = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
    answer = RedirectResponse(view.root + inside, 303)
    answer.set_cookie(
        COOKIE, view.access.opened(name, role), max_age=int(SESSION), path=view.root or "/", httponly=True, samesite="strict",
        secure=view.request.url.scheme == "https",
    )  # fmt: skip
    answer.set_cookie(
        DEVICE_COOKIE,
        view.access.device(),
        max_age=int(DEVICE),
        path=view.root or "/",
        httponly=True,
        samesite="strict",
        secure=view.request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
def signed_out(view: Here) -> Response:
    """End the session, in this browser and wherever its cookie was copied to."""
    if view.who is not None and view.who.by == "password":
        revoked: RevokedSessions = view.request.app.state.revoked
        revoked.revoke(view.who.session, keep=SESSION)
    answer = view.to("/login")
    answer.delete_cookie(COOKIE, path=view.root or "/", httponly=True, samesite="strict")
    return answer


def _form(view: View, to: str, name: str = "", said: str = "", status: int = 200) -> Response:
    return view.page("login.html", code=status, to=to, name=name, said=said)
