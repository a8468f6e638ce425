"""Google Cloud Storage for tests: our own server that follows the documented XML API.

It has objects with generations and metadata, ranges, conditions, listings, uploads in parts and copies. It accepts one token.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

TOKEN = "good"
META_PREFIX = "x-goog-meta-"
MIN_PART_BYTES = 5 * 1024 * 1024
RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class GcsObject(NamedTuple):
    """One version of an object."""

    data: bytes
    metadata: Mapping[str, str]
    generation: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class Refusal(Exception):
    """A response with an error."""

    def __init__(self, status: int, code: str) -> None:
        self.status = status
        self.code = code


class Upload(NamedTuple):
    """An upload in parts."""

    key: str
    metadata: Mapping[str, str]
    parts: dict[int, bytes]


@dataclass
class GcsServer:
    """Buckets in memory. Threads may share it."""

    url: str = ""
    page: int = 1000
    buckets: dict[str, dict[str, GcsObject]] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    generations: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class Reply(NamedTuple):
    """A response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    gcs: GcsServer

    def handle_request(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        try:
            with self.gcs.lock:
                reply = self.reply(bucket, key)
        except Refusal as refusal:
            reply = Reply(refusal.status, f"<?xml version='1.0'?><Error><Code>{refusal.code}</Code></Error>".encode())
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815  # named by the base

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def reply(self, bucket: str, key: str) -> Reply:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, "AuthenticationRequired")
        if bucket not in self.gcs.buckets:
            raise Refusal(404, "NoSuchBucket")
        objects = self.gcs.buckets[bucket]
        match self.command:
            case "GET" if not key:
                return self.list_objects(objects)
            case "GET" | "HEAD":
                return self.read(self.existing(objects, key))
            case "PUT" if "uploadId" in self.query:
                return self.put_part()
            case "PUT":
                return self.put(objects, key)
            case "POST" if "uploads" in self.query:
                return self.start_upload(key)
            case "POST":
                return self.complete_upload(objects)
            case "DELETE" if "uploadId" in self.query:
                self.gcs.uploads.pop(self.query["uploadId"], None)
                return Reply(204)
            case "DELETE":
                self.existing(objects, key)
                del objects[key]
                return Reply(204)
        raise Refusal(405, "MethodNotAllowed")

    def existing(self, objects: dict[str, GcsObject], key: str) -> GcsObject:
        if key not in objects:
            raise Refusal(404, "NoSuchKey")
        return objects[key]

    def read(self, item: GcsObject) -> Reply:
        headers = {
            "ETag": item.etag,
            "Last-Modified": formatdate(item.generation, usegmt=True),
            "x-goog-generation": str(item.generation),
            **{META_PREFIX + name: value for name, value in item.metadata.items()},
        }
        if self.headers.get("if-match", item.etag) != item.etag:
            raise Refusal(412, "PreconditionFailed")
        asked = RANGE.fullmatch(self.headers.get("range") or "")
        if asked is None:
            return Reply(200, item.data, headers if self.command == "GET" else {**headers, "Content-Length": str(len(item.data))})
        start = int(asked[1])
        if start >= len(item.data):
            raise Refusal(416, "InvalidRange")
        piece = item.data[start : int(asked[2]) + 1 if asked[2] else None]
        headers["Content-Range"] = f"bytes {start}-{start + len(piece) - 1}/{len(item.data)}"
        return Reply(206, piece, headers)

    def put(self, objects: dict[str, GcsObject], key: str) -> Reply:
        if len(key.encode()) > 1024:
            raise Refusal(400, "KeyTooLongError")
        if self.headers.get("x-goog-if-generation-match") == "0" and key in objects:
            raise Refusal(412, "PreconditionFailed")
        source = self.headers.get("x-goog-copy-source")
        if source is None:
            return self.store(objects, key, self.body, self.metadata())
        bucket, _, source_key = unquote(source).partition("/")
        copied = self.existing(self.gcs.buckets[bucket], source_key)
        return self.store(objects, key, copied.data, copied.metadata)

    def store(self, objects: dict[str, GcsObject], key: str, data: bytes, metadata: Mapping[str, str]) -> Reply:
        objects[key] = item = GcsObject(data, metadata, next(self.gcs.generations))
        return Reply(200, b"", {"ETag": item.etag, "x-goog-generation": str(item.generation)})

    def metadata(self) -> dict[str, str]:
        named = ((name.lower(), value) for name, value in self.headers.items())
        return {name.removeprefix(META_PREFIX): value for name, value in named if name.startswith(META_PREFIX)}

    def start_upload(self, key: str) -> Reply:
        number = secrets.token_hex(8)
        self.gcs.uploads[number] = Upload(key, self.metadata(), {})
        body = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
        return Reply(200, body.encode())

    def put_part(self) -> Reply:
        upload = self.gcs.uploads.get(self.query["uploadId"])
        if upload is None:
            raise Refusal(404, "NoSuchUpload")
        upload.parts[int(self.query["partNumber"])] = self.body
        return Reply(200, b"", {"ETag": f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'})

    def complete_upload(self, objects: dict[str, GcsObject]) -> Reply:
        upload = self.gcs.uploads.pop(self.query["uploadId"], None)
        if upload is None:
            raise Refusal(404, "NoSuchUpload")
        numbers = [int(part.text or "") for part in ET.fromstring(self.body).iter("PartNumber")]
        parts = [upload.parts[number] for number in numbers]
        if numbers != sorted(upload.parts) or any(len(part) < MIN_PART_BYTES for part in parts[:-1]):
            raise Refusal(400, "InvalidPart")
        stored = self.store(objects, upload.key, b"".join(parts), upload.metadata)
        body = f"<CompleteMultipartUploadResult><ETag>{escape(stored.headers['ETag'])}</ETag></CompleteMultipartUploadResult>"
        return Reply(200, body.encode(), stored.headers)

    def list_objects(self, objects: dict[str, GcsObject]) -> Reply:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter")
        after = self.query.get("continuation-token") or self.query.get("start-after") or ""
        entries: dict[str, str] = {}
        last = ""
        for key in sorted(key for key in objects if key.startswith(prefix) and key > after):
            below, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            name = prefix + below + slash
            if len(entries) == self.gcs.page and not (slash and name in entries):
                entries["next"] = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(last)}</NextContinuationToken>"
                break
            last = key
            if slash:
                entries[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
                continue
            item = objects[key]
            entries[key] = (
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(item.etag)}</ETag><Size>{len(item.data)}</Size></Contents>"
            )
        return Reply(200, f"<?xml version='1.0'?><ListBucketResult>{''.join(entries.values())}</ListBucketResult>".encode())


@contextmanager
def gcs_server(*buckets: str) -> Iterator[GcsServer]:
    """Start the server, with these buckets."""
    gcs = GcsServer(buckets={name: {} for name in buckets})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("GcsHandler", (Handler,), {"gcs": gcs}))
    server.daemon_threads = True
    gcs.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield gcs
    server.shutdown()
    server.server_close()
    thread.join(10)
