"""TlsDoor: TLS before a server without TLS support, like stunnel."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path


class TlsDoor:
    """A port with TLS that forwards to the server at another port. asks: request a client certificate."""

    def __init__(self, target: int, certificate: Path, *, asks: bool = False) -> None:
        self.certificate = certificate
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2"])  # for gRPC; other clients name no protocol
        if asks:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(came,), daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            came,
            socket.create_connection(("127.0.0.1", self._target)) as server,
            self._context.wrap_socket(came, server_side=True) as client,
        ):
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join(10)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
