"""LLM calls. The SDK has its own retries, so enable exactly one layer."""

from os import environ

import openai
from pydantic import BaseModel, ValidationError

from redrive import RetryPolicy, current, retry


class Summary(BaseModel):
    title: str
    points: list[str]


policy = RetryPolicy(max_attempts=4, backoff_base=1, backoff_max=30, timeout=90)
KEY = environ.get("OPENAI_API_KEY", "none")
client = openai.OpenAI(api_key=KEY, max_retries=0)


@retry(policy, budget="openai", attempt_timeout=40)
def summarise(text: str) -> Summary:
    reply = client.chat.completions.create(
        model="gpt-x", messages=[{"role": "user", "content": text}], timeout=current().remaining
    )
    return Summary.model_validate_json(reply.choices[0].message.content or "")  # a wrong schema is not retried


again = retry(policy, on=ValidationError, operation="summary.shape")  # unless you declare it retryable
forgetful = openai.AsyncOpenAI(api_key=KEY)  # 3 requests of its own: Redrive detects the spent retries and does not make 12


@retry(policy)
async def embed(text: str) -> list[float]:
    return (await forgetful.embeddings.create(model="e", input=text)).data[0].embedding
