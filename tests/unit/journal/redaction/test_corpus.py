"""A corpus of secrets as programs write them, and of texts that must stay readable."""

from __future__ import annotations

import json
import random
import time

import httpx2
import pydantic
import pytest
import sqlalchemy

from redrive import App
from redrive.console.security.credentials import AccessControl
from redrive.http import AsyncClient, Client
from redrive.journal.redaction import HIDDEN, is_secret, redact, redact_text, secrets
from redrive.journal.redaction.redactor import redact_patterns
from redrive.journal.redaction.secrets import keep_address_secret, keep_options_secret, keep_secret
from redrive.messages import RedisStream
from redrive.storage.registry import BackendConfig

S = "Zq7hunter2Wx8"
NAMES = """password password1 db_password userPassword2 PASSWORD passwordHash passwd tokens token access_token refreshToken2
    secret secretString client_secret SecretAccessKey apiKeyId api_key X-Api-Key api_token cookie session_token credentials
    private_key connectionString auth""".split()
SHAPES = {
    "equals": "{name}={s}",
    "colon": "{name}: {s} was refused",
    "json": '{{"user": "ann", "{name}": "{s}", "n": 1}}',
    "escaped json": '{{\\"{name}\\": \\"{s}\\"}}',
    "repr": "{{'{name}': '{s}'}}",
    "query": "https://h.example/p?a=1&{name}={s}&b=2",
    "flag and word": "tool --verbose --{name} {s} --retries 3",
    "flag with equals": "tool --{name}={s} --retries 3",
    "quoted flag": "tool --{name} '{s} and more {s}'",
    "argv": "['tool', '--{name}', '{s}', '--x']",
    "argv in JSON": '["tool", "--{name}", "{s}"]',
    "name and value": '{{"name": "{name}", "value": "{s}"}}',
    "value and name": '{{"value": "{s}", "name": "{name}"}}',
    "name and value in a repr": "[{{'Name': '{name}', 'Value': '{s}'}}]",
    "escaped name and value": '{{\\"name\\": \\"{name}\\", \\"value\\": \\"{s}\\"}}',
    "key and value": '<add key="{name}" value="{s}"/>',
    "XML": "<user>ann</user><{name}>{s}</{name}><x/>",
    "XML with attributes": '<ns:{name} type="x">{s}</ns:{name}>',
    "CDATA": "<{name}><![CDATA[{s}]]></{name}>",
    "escaped XML": "&lt;{name}&gt;{s}&lt;/{name}&gt;",
    "XML with a name": '<param name="{name}">{s}</param>',
    "Postgres detail": "DETAIL:  Key ({name})=({s}) already exists.",
    "Postgres detail of two": "DETAIL:  Key (id, {name})=(5, {s}) already exists.",
    "MySQL duplicate": "Duplicate entry '{s}' for key 'users.{name}'",
    "form": 'Content-Disposition: form-data; name="{name}"\r\n\r\n{s}\r\n--x',
    "tuple": "[('{name}', '{s}')]",
    "keyword": "Client(user='ann', {name}='{s}')",
    "line": "user: ann\n{name}: {s}\n",
    "environment": "export {name}={s}; run",
}
NAMELESS = [
    f"1 validation error for M\nx\n  Input should be an integer [type=int_parsing, input_value='{S}', input_type=str]",
    f"[type=missing, input_value={{'a': '{S}', 'b': 1}}, input_type=dict]\n    For further information",
    f"(sqlite3.IntegrityError) UNIQUE constraint failed\n[SQL: INSERT (?, ?)]\n[parameters: ('{S}', 1)]\n(Background on",
    f"[SQL: INSERT]\n[parameters: {{'x': '{S}]', 'y': 2}}]\n(Background on this error at: https://sqlalche.me/e/20/gkpj)",
    f"[parameters: [('{S}',), ('b',)  ... displaying 10 of 100 total bound parameter sets ...  ('{S}',)]]",
    f"DETAIL:  Failing row contains (1, ann, {S}, null).",
    f"CONTEXT:  unnamed portal with parameters: $1 = '{S}', $2 = 'it''s {S}'",
    f"mysql -h db -p{S} shop",
    f"sshpass -p {S} ssh host",
    f"['mysqldump', '-p{S}', 'shop']",
    f"redis-cli -h r -a {S} ping",
    f"curl -u ann:{S} https://h",
    f"['curl', '-u', 'ann:{S}']",
    f"curl --user 'ann:{S}' https://h",
    f"PGPASSWORD={S} psql -h db",
    f"postgresql://ann:{S}@db,db2:5432/shop",
    f"https://{S}@h.example/x",
    f"AccountKey={S}==;EndpointSuffix=core",
    f"https://a.blob.core/x?sv=2020&sig={S}%3D&se=1",
    f"Cookie: a=1; session={S}",
    f"Authorization: Basic {S}",
]
VENDORS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "gho_" + "a1B2" * 9,
    "github_pat_" + "11ABCDEFG0" + "a1B2" * 12,
    "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "xoxb-" + "123456789012-abcdefABCDEF",
    "xapp-" + "1-A0123-4567-abcdef",
    "sk_live_" + "a1B2" * 6,
    "rk_live_" + "a1B2" * 6,
    "whsec_" + "a1B2" * 8,
    "AIza" + "SyA1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q",
    "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
    "sk-" + "proj-a1B2c3D4e5F6g7H8",
    "sk-ant-" + "api03-a1B2c3D4e5F6g7H8",
    "npm_" + "a1B2" * 9,
    "SG." + "a1B2c3D4e5F6g7H8i9J0kQ" + "." + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q",
    "pypi-" + "AgEIcHlwaS5vcmcCJDEyMzQ1Njc4",
    "dckr_pat_" + "a1B2c3D4e5F6g7H8",
    "shpat_" + "a1b2c3d4" * 4,
    "hf_" + "a1B2" * 9,
    "hvs." + "a1B2c3D4e5F6g7H8i9J0k1",
    "ya29." + "a0AfH6SMB1234567890",
    "GOCSPX-" + "a1B2c3D4e5F6g7H8",
    "dop_v1_" + "a1b2c3d4" * 8,
    "key-" + "a1b2c3d4" * 4,
    "123456789:AA" + "HdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
]


CORPUS = {shape: [form.format(name=name, s=S) for name in NAMES] for shape, form in SHAPES.items()} | {"nameless": NAMELESS}


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_values", {})
    monkeypatch.setattr(secrets, "_longest_first", ())


@pytest.mark.req("J-4")
def test_the_corpus_is_large() -> None:
    assert sum(map(len, CORPUS.values())) + len(VENDORS) > 600


@pytest.mark.req("J-4")
@pytest.mark.parametrize("shape", CORPUS)
def test_no_secret_of_the_corpus_leaks(shape: str) -> None:
    for text in CORPUS[shape]:
        hidden = redact_text(f"the call failed: {text}")
        assert "Zq7" not in hidden, text
        assert "Wx8" not in hidden, text
        assert redact_text(hidden) == hidden, text
        assert "Zq7" not in json.dumps(redact({"error": text, "items": [text]})), text


@pytest.mark.req("J-4")
@pytest.mark.parametrize("token", VENDORS, ids=lambda token: token[:8])
def test_known_token_formats_are_redacted(token: str) -> None:
    for text in (token, f"with {token}, 403", f"x={token}", f'"{token}"', f"https://h/{token}/y", f"https://h/?x%3D{token}"):
        assert token[-8:] not in redact_text(text), text
    assert redact(["run", token]) == ["run", HIDDEN]


@pytest.mark.req("J-4")
@pytest.mark.parametrize("name", NAMES)
def test_structures_hide_names_flags_and_pairs(name: str) -> None:
    assert S not in repr(redact({name: S}))
    assert S not in repr(redact({"name": name, "value": S}))
    assert S not in repr(redact({"Key": name, "Value": S, "Type": "String"}))
    assert S not in repr(redact(["tool", f"--{name}", S, "--other", "x"]))
    assert redact(["tool", f"--{name}", S, "--other", "x"])[-1] == "x"
    assert S not in repr(redact([(name, S)]))


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "name",
    """token_count tokenCount max_tokens maxTokens prompt_tokens completion_tokens total_tokens cache_read_input_tokens
    max_completion_tokens tokens_used token_type token_limit tokenizer tokenized author authors authored keyboard keyboardLayout
    monkey turkey key keys key_id order_key partition_key idempotency_key primary_key foreign_key secretary secretariat
    passwordless password_changed_at token_expires_at password_policy bypass compass passenger pass_rate signal design
    InvalidTokenError jwt.InvalidSignatureError NoCredentialsError authority auth_method oauth_version sas_type accessed access
    password_file session_id customer shared account keyword tokens_per_minute""".split(),
)
def test_a_name_that_holds_no_secret_stays_readable(name: str) -> None:
    assert not is_secret(name)
    assert redact_text(f"{name}: order o-1 is late") == f"{name}: order o-1 is late"


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "text",
    [
        "InvalidTokenError: the request was refused",
        "token expired: sign in again",
        "the secret of success: patience",
        "usage: prompt_tokens=7 completion_tokens=9 total_tokens=16",
        "DETAIL:  Key (order_id)=(o-1) already exists.",
        "Duplicate entry 'o-1' for key 'orders.order_id'",
        "git commit -p and mkdir -p /srv/shop",
        "ssh -p 2222 host",
        "docker run --name shop --publish 80:80",
        '{"name": "Ann", "value": "7"}',
        '<add key="colour" value="red"/>',
        "<user>ann</user><order>o-1</order>",
        "the SDK asked for SKU SK-1 and SG.1",
        "sk-1 and pk_2 are short",
        "connection to postgresql://shop@db/ledger refused",
        "$1 is a parameter",
        "tool --retries 3 --verbose file",
        "AKIA is a prefix",
    ],
)
def test_an_innocent_text_stays_readable(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.req("J-4")
def test_errors_of_pydantic_and_sqlalchemy_lose_their_values() -> None:
    class Account(pydantic.BaseModel):
        number: int

    with pytest.raises(pydantic.ValidationError) as refused:
        Account.model_validate({"number": S})
    assert S not in redact(refused.value)
    assert "Input should be a valid integer" in redact(refused.value)
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(sqlalchemy.exc.OperationalError) as failed:
        connection.execute(sqlalchemy.text("INSERT INTO missing VALUES (:one, :two)"), {"one": S, "two": 2})
    assert S not in redact(failed.value)
    assert "no such table: missing" in redact(failed.value)
    engine.dispose()


@pytest.mark.req("J-4")
def test_a_registered_value_is_redacted_in_any_context() -> None:
    keep_secret("p@ss/w rd1")
    for text in ("p@ss/w rd1", "got (p@ss/w rd1)", "p%40ss%2Fw%20rd1", "p%40ss%2Fw+rd1", "xp@ss/w rd1x"):
        assert "w" not in redact_text(text).replace(HIDDEN, ""), text
    keep_address_secret("postgresql://ann:s3cr3tpw@db/shop")
    keep_options_secret({"account_key": "Ek5tOptionValue", "root": "raw-files", "inner": {"token": "inner-value-1"}})
    assert redact_text("s3cr3tpw Ek5tOptionValue inner-value-1 raw-files") == f"{HIDDEN} {HIDDEN} {HIDDEN} raw-files"


@pytest.mark.req("J-4")
def test_a_registered_word_is_redacted_as_a_whole_word_only() -> None:
    keep_secret("postgres", "abc", "")
    assert redact_text("postgresql://db abc said postgres") == f"postgresql://db abc said {HIDDEN}"


@pytest.mark.req("J-4")
def test_secrets_passed_to_redrive_are_redacted_by_value() -> None:
    App("postgresql://ann:Ledger-pw-1@db.example/shop")
    RedisStream("redis://:Redis-pw-2@r.example", "shop.events", group="shop")
    Client("https://crm.example", auth="Bearer-value-3")
    Client("https://crm.example", auth=httpx2.BasicAuth("ann", "Basic-pw-4"), headers={"x-api-key": "Header-value-5"})
    AsyncClient("https://crm.example", auth="Async-value-6")
    BackendConfig.from_dict({"type": "azure", "options": {"account_key": "Storage-key-7", "container": "raw"}})
    AccessControl(password="Console-pw-8", token="Console-token-9-0123456789", viewer_password="Viewer-pw-10")
    for number, given in enumerate(
        """Ledger-pw-1 Redis-pw-2 Bearer-value-3 Basic-pw-4 Header-value-5 Async-value-6 Storage-key-7 Console-pw-8
        Console-token-9-0123456789 Viewer-pw-10""".split()
    ):
        assert given not in redact_text(f"refused {given} for x{given}y"), number
    assert "YW5uOkJhc2ljLXB3LTQ=" not in redact_text("sent YW5uOkJhc2ljLXB3LTQ= there")


def test_registered_values_are_limited() -> None:
    for number in range(3 * secrets.MAX_SECRETS):
        keep_secret(f"value-number-{number}")
    assert len(secrets._values) <= secrets.MAX_SECRETS
    assert redact_text(f"value-number-{3 * secrets.MAX_SECRETS - 1}") == HIDDEN


@pytest.mark.parametrize(
    "piece",
    [
        "--password ", "<password>", "<a ", "&lt;token&gt;", '"name": "', "name=a value=", 'value: "x", ', "[parameters: ",
        "input_value=", "Key (token)=(", "Key (", "Duplicate entry '", "$1 = '", "mysql -p", "mysql ", "-u a:", "-u ", "AKIA",
        "xox", "gh", "glaat", "form-data; name=", "form-data; name=x\n", "\\", "\\'", "'", "=", "-", "- ", "sk-", "SG.",
        "1234567", "name:", "value:'", "key ", "<![CDATA[",
    ],
)  # fmt: skip
def test_repeated_text_is_redacted_in_linear_time(piece: str) -> None:
    """Quadratic work on 50,000 characters would take minutes, not seconds."""
    text = piece * (50_000 // len(piece))
    began = time.process_time()
    redact_patterns(text[:8_000])
    redact_text("@" + text)
    assert time.process_time() - began < 2


def test_random_text_is_redacted_in_linear_time() -> None:
    draw = random.Random(7)
    pieces = [
        "--token ",
        "<pw>",
        "name",
        "value",
        "=",
        ":",
        '"',
        "'",
        "\\",
        " ",
        "password",
        "-u",
        "a:b",
        "[parameters: ",
        "\n",
        "Key (",
    ]
    began = time.process_time()
    for _ in range(30):
        redact_text("".join(draw.choice(pieces) for _ in range(2_000)))
    assert time.process_time() - began < 10
