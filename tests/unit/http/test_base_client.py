"""The part that the sync and the async client share."""

from __future__ import annotations

import inspect

import pytest

from redrive import http
from redrive.http.base_client import BaseClient


@pytest.mark.parametrize("name", ["request", "get", "post", "wait_until_ready", "using"])
def test_both_clients_have_the_same_parameters(name: str) -> None:
    def parameters(client: type) -> list[tuple[str, object, object]]:
        signature = inspect.signature(getattr(client, name))
        return [(each.name, each.kind, each.default) for each in signature.parameters.values()]

    assert parameters(http.Client) == parameters(http.AsyncClient)


def test_using_returns_the_class_of_the_original() -> None:
    class Crm(http.Client):
        pass

    copy = Crm("http://crm").using(user="ann")
    assert type(copy) is Crm
    assert isinstance(copy, BaseClient)
