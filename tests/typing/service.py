"""A service that configures an interview at another service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import environ
from typing import Annotated

from fastapi import FastAPI, Header, HTTPException
from httpx2 import HTTPStatusError, TransportError
from pydantic import BaseModel

from redrive import Key, correlate, deadline, http, outcome, retry


class Session(BaseModel):
    id: str
    state: str


interview = http.AsyncClient(
    environ.get("INTERVIEW_URL", "http://interview:8080"),
    auth=environ.get("INTERVIEW_KEY"),
    retry=retry(max_attempts=4, timeout=20, budget="interview"),
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with interview:
        await interview.wait_until_ready("/health", within=60)
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/sessions/{session_id}/configure")
async def configure(session_id: str, user_id: Annotated[str, Header()]) -> Session:
    key = Key("interview", user=user_id, entity=session_id, operation="configure")
    with correlate(user_id=user_id), deadline(8):
        try:
            return await interview.using(user=user_id).post(
                "/configure", json={"session": session_id}, idempotency_key=key, into=Session
            )
        except (HTTPStatusError, TransportError) as error:
            tried = outcome(error)
            raise HTTPException(503, headers={"retry-after": "5"} if tried and tried.retry_at else None) from error
