"""The app of the shop, with its background job. The orders of the shop are in the same database."""

from __future__ import annotations

import os
from pathlib import Path

from redrive import App, current

# An absolute path, because Flask-SQLAlchemy puts a relative one into its instance folder.
DATABASE = os.environ.get("SHOP_DATABASE", f"sqlite:///{Path('flask_shop.db').absolute()}")
app = App(DATABASE)


@app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")
def send_receipt(order_id: int, user: str) -> str:
    """Send the receipt of an order."""
    # Your mail service. With the key, it can drop a duplicate.
    return f"receipt of order {order_id} for {user}, sent under {current().key}"
