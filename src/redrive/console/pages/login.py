"""Login: a name for the audit, and the password."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from ...ops.sessions import RevokedSessions
from ..access import DEVICE, SESSION, Busy, name_of
from ..gate import COOKIE, DEVICE_COOKIE
from ..patience import Patience, network_of
from ..view import Here, View

router = APIRouter()


@router.get("/login")
def asked(view: Here) -> Response:
    """The form."""
    return view.to("/") if view.who is not None else _form(view, view.query.get("next", ""))


@router.post("/login")
def signed_in(view: Here) -> Response:
    """Let them in, or say no; after a few wrong ones, not before a while."""
    patience: Patience = view.request.app.state.patience
    client = view.request.client
    device = view.request.cookies.get(DEVICE_COOKIE, "")
    known = bool(device) and view.access.is_device(device)
    # A known browser has a count of its own: strangers cannot lock its owner out.
    address = device if known else network_of(client.host) if client else "here"
    to, name = view.form.get("next", ""), name_of(view.form.get("name", ""))
    wait = patience.wait(address)
    if wait:
        answer = _form(view, to, name, f"Too many wrong passwords: wait {wait:.0f} s.", 429)
        answer.headers["retry-after"] = f"{wait:.0f}"
        return answer
    try:
        role = view.access.role_of(view.form.get("password", ""), known=known) if name else None
    except Busy:
        patience.well(address)
        answer = _form(view, to, name, "Too many people are signing in: try again in a second.", 503)
        answer.headers["retry-after"] = "1"
        return answer
    if role is None:
        said = "That password is not right." if name else "Say your name, and none of ours: the audit will have it."
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
