"""Type-checked, never run: once, claim and the middleware keep types, and misuse is rejected."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type
from wsgiref.types import WSGIApplication

from fastapi import FastAPI
from flask import Flask
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from redrive import App, Key, classify
from redrive.flask import Idempotency
from redrive.ledger import Ledger

app = App("sqlite:///shop.db", secrets=["iban"])
assert_type(app.ledger, Ledger)


@dataclass
class M:
    x: int


# --- once
@app.once("billing:{order}:{n}:charge:v1")
def charge(order: str, n: int) -> M:
    return M(x=n)


@app.once(lambda order: Key("billing", "u", order, "charge"), wait=5, keep=timedelta(days=7), free_on=(TimeoutError, classify))
async def charge2(order: str) -> M:
    return M(x=1)


@app.once("billing:u:{order}:charge:v1", in_transaction=True, request=lambda order: order)
def charge3(tx: Connection, order: str) -> M:
    return M(x=1)


assert_type(charge("o", 1), M)
assert_type(charge3("o"), M)
charge(1, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge3(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge3("o", "o")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.once("billing:u:{order}:charge:v1", kep=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
app.once(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


@app.once("billing:u:{order}:charge:v1", in_transaction=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def charge4(order: str) -> M:
    return M(x=1)


async def later() -> None:
    assert_type(await charge2("o"), M)
    async with app.claim("billing:u:o:charge:v1") as claim:
        assert_type(claim.fresh, bool)


# --- claim
def block(session: Session) -> None:
    with app.claim(Key("billing", "u", "o", "charge"), request={"a": 1}, tx=session, wait=1) as claim:
        if claim.fresh:
            claim.response = {"done": True}
    with app.claim("billing:u:o:charge:v1", requst=1):  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        pass
    claim.fresh = 1  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


# --- middleware
def user(scope: Any) -> str:
    return str(scope["user"])


api = FastAPI()
api.add_middleware(app.idempotency, required=True, paths="/payments/*", user=user)
api.add_middleware(app.idempotency, user="request.user")
api.add_middleware(app.idempotency, user="request.usr")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
api.add_middleware(app.idempotency, requird=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


shop = Flask("shop")
assert_type(app.wsgi_idempotency(shop.wsgi_app, user=lambda environ: environ["REMOTE_USER"]), WSGIApplication)
Idempotency(app, shop, required=True, user=lambda: 7)
Idempotency(app, user=None).init_app(shop)
Idempotency(app, shop, user="current_usr")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Idempotency(shop, app)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
