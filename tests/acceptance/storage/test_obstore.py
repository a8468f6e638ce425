"""obstore: the requests that it retries and those that Redrive retries, and the differences from the other clients."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from redrive import RetryPolicy, deadline, outcome
from redrive.errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from redrive.storage import Store
from redrive.storage.obstore import AzureObstore, Gcs, S3Obstore
from redrive.storage.obstore import client as obstore_client
from redrive.testing import Answer, FaultServer
from redrive.testing.http_server import Step
from tests.acceptance.wire.fault import busy
from tests.servers.azurite import ACCOUNT, KEY
from tests.servers.buckets import client, options
from tests.servers.gcs import TOKEN, GcsServer, gcs_server

pytestmark = pytest.mark.req("X-6")
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.01, backoff_max=0.02, jitter=0)
MIB = 1024 * 1024
BIG = (bytes(range(251)) * (20 * MIB // 251 + 1))[: 20 * MIB]
S3_KEYS: dict[str, Any] = {"bucket": "b-1", "region": "us-east-1", "key": "k", "secret": "s"}
XML = {"Content-Type": "application/xml"}
HEAD = {"ETag": '"e"', "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}


class Lake(NamedTuple):
    """Our server with Google's protocol behind a proxy, and a store on it."""

    store: Store
    proxy: FaultServer
    server: GcsServer


@pytest.fixture
def lake() -> Iterator[Lake]:
    with gcs_server("lake") as server, FaultServer(upstream=server.url) as proxy:
        backend = Gcs("google", bucket="lake", token=TOKEN, endpoint_url=proxy.url, retry=QUICK)
        yield Lake(Store(backend), proxy, server)
        backend.close()


def passes(count: int) -> list[Step]:
    return ["pass"] * count


# ---- retries ----


@pytest.mark.parametrize("script", [(busy(),), ("reset",), ("hang",), ("reset", busy(), "reset"), (busy(), "reset", busy())])
@pytest.mark.parametrize("act", ["create", "delete", "read"])
def test_requests_that_redrive_retries_do_not_multiply(act: str, script: tuple[Step, ...]) -> None:
    with FaultServer(*script) as server:
        backend = S3Obstore("it", **S3_KEYS, endpoint_url=server.url, timeout=0.3, retry=QUICK)
        store = Store(backend)
        arguments = (b"x",) if act == "create" else ()
        with pytest.raises(Unavailable) as caught:
            getattr(store, act)("a", *arguments)
        backend.close()
        assert server.count == 3
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (3, "attempts")


def test_without_a_policy_obstore_retries_by_its_own_defaults() -> None:
    with FaultServer(
        503, "reset", Answer(200, {"ETag": '"e"', "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}, b"x")
    ) as server:
        backend = S3Obstore("it", **S3_KEYS, endpoint_url=server.url)
        assert Store(backend).read_bytes("a") == b"x"
        backend.close()
        assert server.count == 3


def test_create_and_delete_survive_lost_responses(lake: Lake) -> None:
    lake.proxy.script("lost", "pass")
    lake.store.create("a", b"mine")
    assert lake.store.read_bytes("a") == b"mine"
    lake.proxy.script("lost", "pass")
    lake.store.delete("a")
    assert not lake.store.exists("a")


def test_a_large_create_survives_a_lost_copy(lake: Lake) -> None:
    # Is it absent, start, four parts, complete, then the copy.
    lake.proxy.script(*passes(7), "lost", "pass")
    lake.store.create("big", BIG)
    lake.proxy.script("pass")
    assert lake.store.read_bytes("big") == BIG
    assert list(lake.server.buckets["lake"]) == ["big"]  # No temporary object remains.
    with pytest.raises(AlreadyExists):
        lake.store.create("big", BIG[::-1])
    assert lake.store.read_bytes("big") == BIG


@pytest.mark.parametrize("how", ["write", "create"])
def test_an_object_whose_parts_are_larger_than_8_mib_is_complete(lake: Lake, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of an object above 78 GiB: the service accepts 10,000 parts."""
    monkeypatch.setattr(Gcs, "max_parts", 2)
    getattr(lake.store, how)("big", BIG)
    assert lake.server.buckets["lake"]["big"].data == BIG


def test_a_large_create_on_s3_is_exclusive(s3_url: str, s3_bucket: str) -> None:
    backend = S3Obstore("it", bucket=s3_bucket, **options(s3_url), retry=QUICK)
    store = Store(backend)
    store.create("big", iter([BIG]))
    with pytest.raises(AlreadyExists):
        store.create("big", BIG[::-1])

    def racing() -> Iterator[bytes]:
        yield BIG
        store.write("other", b"first")

    with pytest.raises(AlreadyExists):
        store.create("other", racing())
    assert store.read_bytes("other") == b"first"
    assert store.read_bytes("big") == BIG
    bare = client(s3_url)
    assert sorted(item["Key"] for item in bare.list_objects_v2(Bucket=s3_bucket)["Contents"]) == ["big", "other"]
    bare.close()
    backend.close()


@pytest.mark.parametrize("is_size_known", [True, False])
def test_a_create_above_the_limit_of_a_copy_is_rejected(
    s3_url: str, s3_bucket: str, is_size_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Obstore, "max_copy_bytes", 16 * MIB)
    backend = S3Obstore("it", bucket=s3_bucket, **options(s3_url), retry=QUICK)
    with pytest.raises(StorageError, match="it: 'big' is too large: create takes up to 16 MiB here; use write_atomic or type s3"):
        Store(backend).create("big", BIG if is_size_known else iter([BIG]))
    bare = client(s3_url)
    assert "Contents" not in bare.list_objects_v2(Bucket=s3_bucket)
    bare.close()
    backend.close()


@pytest.fixture
def azure(azure_connection: str, azure_container: str) -> Iterator[AzureObstore]:
    backend = AzureObstore("it", container=azure_container, connection_string=azure_connection, retry=QUICK)
    yield backend
    backend.close()


def test_azure_copies_and_moves_do_not_depend_on_copies_in_the_background(
    azure: AzureObstore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure may answer that a copy is pending. If the source is then deleted, the copy fails."""
    store = Store(azure)
    store.write("a", BIG)
    calls = []
    send = azure._client.call

    def call(name: str, *args: Any, **options: Any) -> Any:
        calls.append(name)
        return send(name, *args, **options)

    monkeypatch.setattr(azure._client, "call", call)
    store.copy("a", "b")
    store.move("b", "c")
    store.create("d", BIG)
    assert "copy" not in calls
    assert not store.exists("b")
    assert store.read_bytes("a") == store.read_bytes("c") == store.read_bytes("d") == BIG
    with pytest.raises(AlreadyExists):
        store.create("d", BIG[::-1])
    assert not store.capabilities.native_copy


@pytest.mark.parametrize("is_size_known", [True, False])
def test_a_create_above_one_request_of_azure_is_rejected(
    azure: AzureObstore, is_size_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AzureObstore, "max_put_bytes", 8 * MIB)
    store = Store(azure)
    with pytest.raises(StorageError, match="too large: create takes under 8 MiB here; use write_atomic or type azure"):
        store.create("big", BIG if is_size_known else iter([BIG]))
    assert list(store.files()) == []


def test_a_large_create_on_s3_reports_a_lost_copy_as_unknown(s3_url: str, s3_bucket: str) -> None:
    """A copy on S3 drops the metadata, so the writer cannot be identified."""
    with FaultServer(upstream=f"http://127.0.0.1:{options(s3_url)['endpoint_url'].rpartition(':')[2]}") as proxy:
        backend = S3Obstore("it", bucket=s3_bucket, **options(s3_url, proxy.port), retry=QUICK)
        # Is it absent, start, four parts, complete. Then the copy: start, part, complete.
        proxy.script(*passes(9), "lost", "pass")
        with pytest.raises(Unavailable, match="'big': the outcome is unknown"):
            Store(backend).create("big", BIG)
        proxy.script("pass")
        assert Store(backend).read_bytes("big") == BIG
        backend.close()


# ---- uploads ----


def test_a_failed_upload_is_aborted(lake: Lake) -> None:
    def source() -> Iterator[bytes]:
        yield BIG
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lake.store.write("big", source())
    lake.proxy.script("pass", "pass", Answer(400), "pass")
    with pytest.raises(StorageError):
        lake.store.write("big", BIG)
    assert lake.server.uploads == {}
    assert lake.server.buckets["lake"] == {}


def test_a_deadline_in_an_upload_leaves_no_task(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(obstore_client, "LATE_ABORT_SECONDS", 0.01)
    lake.proxy.script("pass", "hang")
    with deadline(0.3), pytest.raises(Unavailable, match="the deadline has passed"):
        lake.store.write("big", BIG)
    gc.collect()
    lake.store.backend.close()
    gc.collect()
    assert "Task was destroyed" not in caplog.text


def test_an_interrupt_does_not_wait_for_a_server_that_hangs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> Iterator[bytes]:
        yield BIG
        raise KeyboardInterrupt

    monkeypatch.setattr(obstore_client, "ABORT_SECONDS", 0.1)
    lake.proxy.script("pass", "hang")
    with pytest.raises(KeyboardInterrupt):  # Not after the minute of the timeout.
        lake.store.write("big", interrupt())


def test_an_object_too_large_for_one_copy_is_copied_through_the_client(
    s3_url: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(S3Obstore, "max_copy_bytes", MIB)
    backend = S3Obstore("it", bucket=s3_bucket, **options(s3_url), retry=QUICK)
    Store(backend).write("big", BIG)
    Store(backend).copy("big", "other")
    assert Store(backend).read_bytes("other") == BIG
    backend.close()


# ---- listings ----


def test_markers_of_folders_are_not_files(lake: Lake) -> None:
    lake.store.write("folder/file", b"x")
    lake.store.write("empty", b"")
    for key in ("folder/", "other/"):
        lake.server.buckets["lake"][key] = lake.server.buckets["lake"]["empty"]
    assert sorted(lake.store.files()) == ["empty", "folder/file"]
    assert sorted(info.path for info in lake.store.list(recursive=False)) == ["empty"]
    assert sorted(lake.store.folders()) == ["folder", "other"]


@pytest.mark.parametrize("key", ["a//b", "../../evil", "new\nline"])
def test_a_listing_reports_an_invalid_key(lake: Lake, key: str) -> None:
    lake.store.write("file", b"x")
    lake.server.buckets["lake"][key] = lake.server.buckets["lake"]["file"]
    with pytest.raises(StorageError, match="google: '': obstore cannot list this folder: Encountered object with invalid path"):
        list(lake.store.files())
    assert lake.store.read_bytes("file") == b"x"


def test_a_listing_drops_names_that_only_redrive_rejects(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.store.write("file", b"x")
    lake.server.buckets["lake"]["back\\slash"] = lake.server.buckets["lake"]["file"]
    with caplog.at_level(logging.WARNING, "redrive.storage"):
        assert list(lake.store.files()) == ["file"]
    assert "google: skipped 'back\\\\slash' in a listing" in caplog.text


# ---- containers and processes ----


@pytest.mark.parametrize("path", ["a", "lake", "absent"])
def test_a_delete_in_a_missing_container_is_an_error(lake: Lake, path: str) -> None:
    backend = Gcs("google", bucket="absent-lake", token=TOKEN, endpoint_url=lake.server.url, retry=QUICK)
    with pytest.raises(NotFound, match="google: the bucket 'absent-lake' is missing"):
        Store(backend).delete(path)
    backend.close()


def test_a_file_that_the_parent_opened_is_an_error_in_a_forked_child(lake: Lake) -> None:
    lake.store.write("big", BIG)
    with lake.store.read("big") as file:
        assert file.read(10) == BIG[:10]
        child = os.fork()
        if not child:
            signal.alarm(20)  # It would wait forever.
            ended = 1
            try:
                file.read()
            except StorageError as error:
                ended = 0 if "forked child" in str(error) else 2
            finally:
                os._exit(ended)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert file.read() == BIG[10:]


# ---- settings and credentials ----


@pytest.mark.parametrize(
    ("status", "code", "error", "message"),
    [
        (404, "NoSuchBucket", NotFound, "it: the bucket 'b-1' is missing"),
        (403, "RequestTimeTooSkewed", Denied, "is not allowed: RequestTimeTooSkewed: In Amazon's words"),
        (403, "ExpiredToken", Denied, "is not allowed: ExpiredToken: In Amazon's words"),
        (400, "InvalidRequest", StorageError, "InvalidRequest: In Amazon's words"),
    ],
)
def test_error_codes_of_amazon_are_recognised(status: int, code: str, error: type[StorageError], message: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>In Amazon's words.</Message></Error>"
    with FaultServer(Answer(status, XML, body.encode())) as server:
        backend = S3Obstore("it", **S3_KEYS, endpoint_url=server.url, retry=QUICK)
        store = Store(backend)
        acts = (store.check, lambda: store.write("a", b"x"), lambda: store.create("a", b"x"), lambda: store.write("a", BIG))
        for act in acts:
            with pytest.raises(error, match=message):
                act()
        assert server.count == len(acts)  # None was retried.
        backend.close()


def test_missing_credentials_are_named() -> None:
    with FaultServer(Answer(403, {}, b"no")) as server:
        extra = {"metadata_endpoint": server.url, "client_options": {"allow_http": True}}
        backend = S3Obstore("it", bucket="b-1", region="us-east-1", store_kwargs=extra, retry=QUICK)
        with pytest.raises(Denied, match="no credentials found: 403 Forbidden; set them in the options of the backend"):
            Store(backend).read("a")
        backend.close()


class Credential:
    """A token credential, as azure-identity has them."""

    class AccessToken(NamedTuple):
        token: str
        expires_on: int

    def get_token(self, *scopes: str) -> AccessToken:
        assert scopes == ("https://storage.azure.com/.default",)
        return self.AccessToken("t-1", 4_000_000_000)


@pytest.mark.parametrize(
    ("access", "header", "query"),
    [
        ({"credential": Credential()}, "Bearer t-1", ""),
        ({"credential": KEY}, f"SharedKey {ACCOUNT}:", ""),
        ({"credential": "?sv=1&sig=abc"}, "", "sv=1&sig=abc"),
        ({"suffix": "?sv=1&sig=abc"}, "", "sv=1&sig=abc"),
    ],
)
def test_azure_takes_a_token_a_key_or_a_sas(access: dict[str, Any], header: str, query: str) -> None:
    with FaultServer(Answer(200, HEAD)) as server:
        url = f"{server.url}/{ACCOUNT}{access.get('suffix', '')}"
        backend = AzureObstore("it", container="box", account_url=url, credential=access.get("credential"), retry=QUICK)
        assert Store(backend).exists("a")
        backend.close()
        (request,) = server.requests
        assert request.path == f"/{ACCOUNT}/box/a" + (f"?{query}" if query else "")
        assert request.headers.get("authorization", "").startswith(header)


def test_azure_reads_a_connection_string_without_an_endpoint() -> None:
    string = "AccountName=acme;AccountKey=S0VZ;EndpointSuffix=example.invalid"
    backend = AzureObstore("it", container="box", connection_string=string, retry=RetryPolicy.disabled())
    with pytest.raises(Unavailable, match="it: 'a' cannot be reached: ") as caught:
        backend.info("a")
    assert "https://acme.blob.example.invalid/box/a" in str(caught.value.__cause__)
    backend.close()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: AzureObstore("it", container="c"), TypeError, "either connection_string or account_url"),
        (
            lambda: AzureObstore("it", container="c", connection_string="AccountKey=x"),
            ValueError,
            "no AccountName or BlobEndpoint; it has AccountKey$",
        ),
        (
            lambda: AzureObstore("it", container="c", account_url="https://a.example", credential=7),
            TypeError,
            "credential is a key, a SAS, or an object with get_token, not int",
        ),
        (lambda: AzureObstore("it", container="c", account_url="acme"), ValueError, "^invalid address of the service; use https"),
        (lambda: S3Obstore("it", bucket="b", endpoint_url="host:9000"), ValueError, "^invalid address of the service"),
        (lambda: S3Obstore("it", bucket="b", endpoint_url="http://me:hush@host"), ValueError, "address of the service(?!.*hush)"),
        (lambda: S3Obstore("it", bucket="a lake"), ValueError, "invalid name of a bucket or container: 'a lake'"),
        (lambda: S3Obstore("it", bucket=""), ValueError, "invalid name of a bucket or container: ''"),
        (lambda: Gcs("it", bucket="b", token="hush\n"), ValueError, "^token has a line break(?!.*hush)"),
        (lambda: S3Obstore("it", bucket="b", token="hush\N{BULLET}"), ValueError, "^token has .* invalid character(?!.*hush)"),
        (lambda: S3Obstore("it", bucket="b", key="k", secret="hush\n"), ValueError, "^secret has a line break(?!.*hush)"),
        (lambda: S3Obstore("it", bucket="b", timeout=0), ValueError, "timeout must be above 0"),
        (
            lambda: S3Obstore("it", bucket="b", store_kwargs={"retry_config": {}}),
            TypeError,
            "store_kwargs cannot hold 'retry_config'; use retry and the root_path of a store",
        ),
    ],
)
def test_invalid_settings_are_rejected_when_a_backend_is_created(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_an_old_version_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    monkeypatch.setattr(obstore, "__version__", "0.11.1")
    with pytest.raises(ImportError) as caught:
        S3Obstore("it", **S3_KEYS).info("a")
    assert str(caught.value) == 'obstore 0.11.1 is too old: pip install --upgrade "redrive[obstore]"'
