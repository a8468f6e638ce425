"""A server process that can be killed: `python -m tests.acceptance.grpc.receiver <port> <file>`.

Writes each message as a line to the file before it responds.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc


class Methods(grpc.GenericRpcHandler):
    def __init__(self, path: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: PTH123, SIM115  # as long as the process lives

    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.take)

    def take(self, message: bytes, context: Any) -> bytes:
        self._file.write(message + b"\n")
        return b"true"


def main(port: str, path: str) -> None:
    server = grpc.server(ThreadPoolExecutor(8), handlers=[Methods(path)], options=[("grpc.so_reuseport", 0)])
    print(server.add_insecure_port(f"127.0.0.1:{port}"), flush=True)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
