"""Names and signatures in messages have no values."""

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pytest

from redrive.core.callables import function_name, qualified_name, signature_text
from redrive.core.codec.codec import Arguments
from redrive.core.key import Template
from redrive.idempotency.fingerprint import ArgumentFingerprint

SECRET = "s3cret-value"


def send(
    order_id: str,
    user: Annotated[str, SECRET],
    token: str | None = SECRET,
    *,
    limit: "int" = 314159,
) -> None: ...


@dataclass
class Sender:
    token: str

    def __call__(self, order_id: str) -> None: ...


def test_signature_text_hides_defaults_and_metadata() -> None:
    assert signature_text(send) == ("(order_id: str, user: str, token: str | None = …, *, limit: int = …) -> None")


def test_signature_text_omits_the_connection() -> None:
    assert signature_text(send, skip=2) == "(token: str | None = …, *, limit: int = …) -> None"


@pytest.mark.parametrize("fn", [partial(send, token=SECRET), Sender(SECRET)])
def test_names_and_signatures_hide_bound_values(fn: object) -> None:
    texts = [function_name(fn), qualified_name(fn), signature_text(fn)]  # type: ignore[arg-type]
    assert SECRET not in "".join(texts)
    assert function_name(fn) in ("send", "Sender")


def test_a_call_that_does_not_fit_shows_no_default() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'order_id'") as caught:
        Arguments(send).bind((), {})
    assert "token: str | None = …" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_partial_is_rejected_without_its_arguments() -> None:
    with pytest.raises(TypeError) as caught:
        Arguments(partial(send, token=SECRET))
    assert SECRET not in str(caught.value)


def test_a_key_template_does_not_quote_an_argument() -> None:
    def charge(order: str) -> None: ...

    template = Template.over("shop:{order.user}:e:o:v1", charge)
    with pytest.raises(TypeError, match="cannot be read from str") as caught:
        template.key((SECRET,), {})
    assert SECRET not in str(caught.value)


def test_a_fingerprint_does_not_quote_an_argument() -> None:
    def charge(amount: int) -> None: ...

    fingerprint = ArgumentFingerprint(inspect.signature(charge))
    fingerprint.prepare("charge", {"amount": int})
    with pytest.raises(TypeError, match="argument 'amount'") as caught:
        fingerprint.digest({"amount": SECRET})
    assert SECRET not in str(caught.value)
