"""The programs that type checkers read (tests/typing), run against servers that misbehave."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from types import ModuleType
from typing import Any

import pydantic
import pytest

from redrive.testing import Answer, FaultServer, instant
from tests.acceptance.idempotency.served import Answer as Answered
from tests.acceptance.idempotency.served import serve_app

JSON = {"content-type": "application/json"}


def program(name: str, monkeypatch: pytest.MonkeyPatch, **environment: str) -> ModuleType:
    """Import the program again, with these environment variables."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delitem(sys.modules, f"tests.typing.{name}", raising=False)
    return importlib.import_module(f"tests.typing.{name}")


def ask(asgi: Any) -> Answered:
    with serve_app(asgi, lifespan="on") as client:
        return client.send("/sessions/s-1/configure", headers={"user-id": "ann"})


@pytest.mark.req("H-1", "H-2", "H-6")
def test_a_service_calls_another_service(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script(503, 200, path="/health")
    server.script(503, "reset", Answer(200, JSON, b'{"id": "s-1", "state": "ready"}'), path="/configure")
    service = program("service", monkeypatch, INTERVIEW_URL=server.url, INTERVIEW_KEY="t0ken")

    answer = ask(service.api)
    assert (answer.status, answer.json) == (200, {"id": "s-1", "state": "ready"})
    asked = [seen for seen in server.requests if seen.path == "/configure"]
    assert len(asked) == 3
    assert {seen.headers["idempotency-key"] for seen in asked} == {"interview:ann:s-1:configure:v1"}
    assert {seen.headers["authorization"] for seen in asked} == {"Bearer t0ken"}
    assert {seen.headers["x-user-id"] for seen in asked} == {"ann"}


def test_a_service_returns_503_while_the_other_is_overloaded(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script(200, path="/health")
    server.script(Answer(429, {"retry-after": "3600"}), path="/configure")
    service = program("service", monkeypatch, INTERVIEW_URL=server.url)
    answer = ask(service.api)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


@pytest.mark.req("C-1")
def test_the_script_runs(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script(503, "close", Answer(200, JSON, b'{"EUR": 1.0}'))
    script = program("script", monkeypatch, RATES_URL=server.url)
    with instant() as clock:
        assert script.rates("2026-01-01") == {"EUR": 1.0}
    assert clock.slept == [0.25, 0.5]


@pytest.mark.req("C-5")
def test_the_llm_program_runs(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import openai

    def said(text: str) -> Answer:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return Answer(200, JSON, json.dumps(body).encode())

    llm = program("llm", monkeypatch, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
    server.script(429, 500, said('{"title": "t", "points": []}'))
    with instant():
        assert llm.summarise("x").title == "t"
    assert server.count == 3
    server.script(said("{}"))
    with pytest.raises(pydantic.ValidationError):
        llm.summarise("x")
    assert server.count == 4
    server.script(500)
    with pytest.raises(openai.InternalServerError):
        asyncio.run(_embed(llm))
    assert server.count == 4 + 3, "the SDK's own three, and no twelve"
    llm.client.close()


async def _embed(llm: ModuleType) -> None:
    async with llm.forgetful:
        await llm.embed("x")
