"""Sessions: aiobotocore's, without the second sending that aiohttp does in secret, and with times read quickly."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.utils import parse_timestamp


class SendsOnce(AIOHTTPSession):  # type: ignore[misc]  # published without types
    """After a reset, aiohttp sends GET, HEAD, PUT and DELETE once more by itself: twice as many requests as anybody asked for.

    It has no public switch for that; a test counts requests on the wire, and says if this one is gone.
    """

    async def _get_session(self, proxy_url: Any) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


def session() -> AioSession:
    """A session of botocore's: it finds credentials as every other does."""
    made = AioSession()
    made.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=moment)
    return made


def moment(value: Any, /) -> datetime:
    """A time in an answer. The form that S3 lists files with is read by Python itself; botocore's way takes most of a listing."""
    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    found: datetime = parse_timestamp(value)
    return found
