"""SendsOnce: aiobotocore's HTTP session without the second sending that aiohttp does in secret."""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession


class SendsOnce(AIOHTTPSession):  # type: ignore[misc]  # published without types
    """After a reset, aiohttp sends GET, HEAD, PUT and DELETE once more by itself: twice as many requests as anybody asked for.

    It has no public switch for that; a test counts requests on the wire, and says if this one is gone.
    """

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session
