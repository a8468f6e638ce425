"""HTTP clients, each as a function that requests a URL and raises the errors of its library."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import aiohttp
import httpx
import httpx2
import requests
import urllib3

from redrive.core.classification.classify import classify
from redrive.core.fault import Fault

Get: TypeAlias = Callable[[str], object]


def catch_fault(work: Callable[[], object]) -> tuple[Exception, Fault]:
    """Return the raised error and its classification, made while the error is handled as in the engine."""
    try:
        work()
    except Exception as error:
        return error, classify(error)
    raise AssertionError("nothing was raised")


class Limit:
    """Timeout of the clients in seconds."""

    seconds = 30.0


@contextmanager
def hasty(really: bool = True) -> Iterator[None]:
    """Use a short timeout, for servers that never respond. Other servers may run on a busy machine."""
    Limit.seconds = 0.3 if really else 30.0
    try:
        yield
    finally:
        Limit.seconds = 30.0


def google_api() -> tuple[Any, Any]:
    """Return the exceptions and retries of google.api_core. It warns at import if grpcio-status is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)
        from google.api_core import exceptions, retry
    return exceptions, retry


def with_httpx(url: str) -> object:
    return httpx.get(url, timeout=Limit.seconds).raise_for_status()


def with_httpx2(url: str) -> object:
    return httpx2.get(url, timeout=Limit.seconds).raise_for_status()


def with_async_httpx(url: str) -> object:
    async def get() -> object:
        async with httpx.AsyncClient(timeout=Limit.seconds) as client:
            return (await client.get(url)).raise_for_status()

    return asyncio.run(get())


def with_requests(url: str) -> object:
    with requests.get(url, timeout=Limit.seconds) as response:
        response.raise_for_status()
        return response.content


def with_aiohttp(url: str) -> object:
    limits = aiohttp.ClientTimeout(sock_connect=Limit.seconds, sock_read=Limit.seconds)

    async def get() -> object:
        async with aiohttp.ClientSession(timeout=limits) as session, session.get(url) as response:
            response.raise_for_status()
            return await response.read()

    return asyncio.run(get())


def with_urllib(url: str) -> object:
    try:
        with urllib.request.urlopen(url, timeout=Limit.seconds) as response:
            return response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def with_urllib3(url: str) -> object:
    """Request a URL. A status raises no error, so this is for connection errors only."""
    with urllib3.PoolManager(retries=False, timeout=Limit.seconds) as pool:
        return pool.request("GET", url)


CLIENTS: list[Get] = [with_httpx, with_httpx2, with_async_httpx, with_requests, with_aiohttp, with_urllib]
"""Clients that also raise for a status."""
EVERY_CLIENT: list[Get] = [*CLIENTS, with_urllib3]
