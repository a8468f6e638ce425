"""The web application: users, orders, and requests that run once."""

from __future__ import annotations

from typing import Any

from flask import Flask, abort, request
from flask_login import LoginManager, UserMixin, current_user, login_required, login_user
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from redrive import current
from redrive.flask import Idempotency

from .jobs import DATABASE, app, send_receipt

shop = Flask(__name__)
shop.secret_key = "only for this example"
shop.config["SQLALCHEMY_DATABASE_URI"] = DATABASE


class Base(DeclarativeBase):
    """The tables of the shop."""


db = SQLAlchemy(shop, model_class=Base)
login_manager = LoginManager(shop)
Idempotency(app, shop, required=True, paths="/orders")  # by the current_user of Flask-Login


class Order(Base):
    """An order. A request that runs again finds its order by the idempotency key."""

    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    request_key: Mapped[str] = mapped_column(unique=True)
    user: Mapped[str]
    item: Mapped[str]


class User(UserMixin):
    """A user. A real shop has a table of them, with passwords."""

    def __init__(self, name: str) -> None:
        self.id = name


@login_manager.user_loader
def load_user(name: str) -> User:
    """Return the user of a session."""
    return User(name)


@shop.post("/login/<name>")
def sign_in(name: str) -> str:
    """Sign a user in. A real shop asks for a password."""
    login_user(User(name))
    return f"hello {name}\n"


@shop.post("/orders")
@login_required
def place_order() -> tuple[dict[str, Any], int]:
    """Place an order, and submit the job for its receipt in the same transaction."""
    item = request.get_json().get("item") or abort(400, "item is missing")
    key = str(current().key)
    order = db.session.scalar(select(Order).where(Order.request_key == key))
    if order is None:
        order = Order(request_key=key, user=current_user.id, item=item)
        db.session.add(order)
        db.session.flush()  # assigns the id
    job = send_receipt.using(tx=db.session).submit(order.id, user=current_user.id)
    placed = {"order": order.id, "item": order.item, "job": job.id}
    db.session.commit()  # the order and the job, or neither
    return placed, 201


@shop.get("/orders")
@login_required
def list_orders() -> list[str]:
    """Return the orders of the user."""
    return list(db.session.scalars(select(Order.item).where(Order.user == current_user.id).order_by(Order.id)))


def create_tables() -> None:
    """Create the tables of the shop and of the ledger. In production, use migrations for both."""
    with shop.app_context():
        db.create_all()
    app.migrate()
