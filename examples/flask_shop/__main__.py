"""Run the example with `python -m examples.flask_shop`.

Optional arguments are `serve 8000` and `work`.
"""

from __future__ import annotations

import sys

from .jobs import app, send_receipt
from .shop import create_tables, db, shop


def show() -> None:
    """Send one request twice, and let a worker run its job."""
    client = shop.test_client()
    client.post("/login/ann")
    for _ in range(2):
        response = client.post("/orders", json={"item": "tea"}, headers={"Idempotency-Key": '"first order"'})
        print(response.status_code, response.get_json(), "replayed" if "Idempotency-Replayed" in response.headers else "new")
    print("orders:", client.get("/orders").get_json())
    with app.worker():
        print(send_receipt.job(response.get_json()["job"]).result(60))
    app.close()
    with shop.app_context():
        db.engine.dispose()


def main(arguments: list[str]) -> None:
    """Serve the shop, or run a worker until SIGTERM. Without arguments, show both."""
    create_tables()
    match arguments:
        case []:
            show()
        case ["serve", port] if port.isdecimal():
            shop.run(port=int(port), threaded=True)  # in production: gunicorn examples.flask_shop.shop:shop
        case ["work"]:
            app.work()
        case _:
            sys.exit("use: no arguments | serve PORT | work")


if __name__ == "__main__":
    main(sys.argv[1:])
