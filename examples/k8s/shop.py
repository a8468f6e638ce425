"""The app in the image. The chart sets its ledger by REDRIVE_LEDGER."""

from __future__ import annotations

from redrive import App

app = App()


@app.command("mail.send", key="mail:{user}:{order}:receipt:v1")
def send(user: str, order: str) -> str:
    return f"to {user}: thank you for order {order}"


@app.command("reports.daily", cron="0 6 * * *", concurrency=1)
def daily() -> None:
    print("the report of today")
