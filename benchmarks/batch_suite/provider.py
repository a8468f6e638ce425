"""A provider in its own process. It rejects items whose number ends in 00."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        items = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps([item for item in items if item.endswith("00")]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def provider() -> Iterator[int]:
    """Start the provider and yield its port."""
    with subprocess.Popen([sys.executable, "-m", "benchmarks.batch_suite.provider"], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.kill()


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
