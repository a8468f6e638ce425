"""Validation errors and SSH, raised by the libraries themselves."""

from __future__ import annotations

import socket
import threading
from typing import Any

import paramiko
import pydantic
import pytest
import requests

from redrive.core.fault import Fault
from redrive.testing.http_server import Answer, FaultServer, refused
from tests.acceptance.classify.clients import catch_fault

pytestmark = pytest.mark.req("C-3")


class Order(pydantic.BaseModel):
    number: int


def test_pydantic_errors_are_permanent() -> None:
    assert catch_fault(lambda: Order.model_validate({"number": "many"}))[1] == Fault("permanent")
    assert catch_fault(lambda: pydantic.TypeAdapter(list[int]).validate_json("{"))[1] == Fault("permanent")


def test_a_response_that_is_not_json_is_permanent() -> None:
    with FaultServer(Answer(body=b"<html>")) as server, requests.get(server.url) as response:
        assert catch_fault(response.json)[1] == Fault("permanent")


def connect(port: int, **settings: Any) -> None:
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect("127.0.0.1", port, "me", "wrong", look_for_keys=False, allow_agent=False, **settings)


@pytest.mark.req("C-10")
def test_an_unreachable_ssh_server_is_transient() -> None:
    with refused() as url:
        assert catch_fault(lambda: connect(int(url.rpartition(":")[2])))[1] == Fault("transient", sent=False)


def test_a_silent_ssh_server_is_transient() -> None:
    with FaultServer("hang") as server:
        assert catch_fault(lambda: connect(server.port, banner_timeout=0.2))[1] == Fault("transient")


class Refusing(paramiko.ServerInterface):
    def check_auth_password(self, username: str, password: str) -> int:
        return paramiko.common.AUTH_FAILED


def test_a_wrong_ssh_password_is_permanent() -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        transport = paramiko.Transport(connection)
        transport.add_server_key(paramiko.ECDSAKey.generate())
        transport.start_server(server=Refusing())
        transport.join()
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        fault = catch_fault(lambda: connect(listener.getsockname()[1]))[1]
        server.join()
    assert fault == Fault("permanent", sent=False)
