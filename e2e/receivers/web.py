"""Receivers that speak HTTP: a plain one for lines of JSON, Elasticsearch's bulk interface, S3, a door before Loki."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import quote, unquote

from .base import Answer, HttpServer, Record, RefusedError, Request, decompressed, strict_object


class LinesServer(HttpServer):
    """Takes one JSON object a line."""

    def __init__(self, path: str = "/logs", method: str = "POST", headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self.path, self.method, self.headers = path, method, headers or {}

    def answer(self, request: Request) -> Answer:
        """204, unless something is wrong."""
        if (request.method, request.path, request.query) != (self.method, self.path, ""):
            raise RefusedError(f"{request.method} {request.path} {request.query}")
        if request.headers.get("content-type") not in ("application/x-ndjson", "application/json"):
            raise RefusedError(f"Content-Type {request.headers.get('content-type')}")
        for name, value in self.headers.items():
            if request.headers.get(name.lower()) != value:
                raise RefusedError(f"{name}: {request.headers.get(name.lower())}")
        body = decompressed(request.body, request.headers.get("content-encoding"))
        self.records += [strict_object(line) for line in body.removesuffix(b"\n").split(b"\n")]
        return 204, b""


class SearchServer(HttpServer):
    """The bulk interface of Elasticsearch and OpenSearch. ``item`` gives the status of one document; the default is
    that of a server with room. ``indices`` has, for each record, where it was put."""

    def __init__(self, authorization: str | None = None, item: Callable[[Record], int] = lambda _: 201) -> None:
        super().__init__()
        self.authorization, self.item = authorization, item
        self.indices: list[str] = []
        self.ids: set[tuple[str, str]] = set()

    def answer(self, request: Request) -> Answer:
        """What a server of version 8 says."""
        if request.headers.get("authorization") != self.authorization:
            self.problems.append(f"Authorization: {request.headers.get('authorization')}")
            return 401, b'{"error":{"type":"security_exception"},"status":401}'
        if request.method in ("GET", "HEAD"):
            answer = {"version": {"number": "8.17.0"}, "status": "green", "tagline": "You Know, for Search"}
            return 200, json.dumps(answer).encode()
        if not (request.method in ("POST", "PUT") and re.fullmatch(r"(/[^/_][^/]*)?/_bulk", request.path)):
            raise RefusedError(f"{request.method} {request.path}")
        if request.headers.get("content-type", "").split(";")[0] not in ("application/x-ndjson", "application/json"):
            raise RefusedError(f"Content-Type {request.headers.get('content-type')}")
        body = decompressed(request.body, request.headers.get("content-encoding"))
        if not body.endswith(b"\n"):
            raise RefusedError("a bulk request ends with a line feed")
        lines = body[:-1].split(b"\n")
        if len(lines) % 2:
            raise RefusedError("an action without its document")
        beside = request.path.split("/")[1] if request.path.count("/") == 2 else None
        items = [self._item(strict_object(action), strict_object(document), beside)
                 for action, document in zip(lines[::2], lines[1::2], strict=True)]
        errors = any("error" in result for item in items for result in item.values())
        return 200, json.dumps({"took": 1, "errors": errors, "items": items}, separators=(",", ":")).encode()

    def _item(self, action: Record, document: Record, beside: str | None) -> Record:
        ((name, about),) = action.items()
        index = about.get("_index", beside)
        id_ = about.get("_id", "")
        if set(about) - {"_index", "_id"} or not index or not isinstance(id_, str) or len(id_.encode()) > 512:
            raise RefusedError(f"action {action}")
        if name != "create" and (name != "index" or index.startswith("logs-")):
            raise RefusedError(f"a data stream takes `create` only: {action}")
        if "@timestamp" not in document:
            raise RefusedError("a document without @timestamp")
        status = 409 if (index, id_) in self.ids else self.item(document)
        if status == 201:
            self.records.append(document)
            self.indices.append(index)
            self.ids |= {(index, id_)} if id_ else set()
            return {name: {"_index": index, "_id": str(len(self.records)), "status": 201, "result": "created"}}
        kinds = {409: "version_conflict_engine_exception", 429: "es_rejected_execution_exception"}
        kind = kinds.get(status, "document_parsing_exception")
        return {name: {"_index": index, "_id": "x", "status": status, "error": {"type": kind, "reason": "asked to"}}}


class ObjectServer(HttpServer):
    """S3 with one bucket in the path. Checks signatures (version 4) and checksums; keeps objects, and each record with
    the key of the object it came in."""

    def __init__(self, bucket: str, access_key: str, secret_key: str, region: str = "us-east-1") -> None:
        super().__init__()
        self.bucket, self.access_key, self.secret_key, self.region = bucket, access_key, secret_key, region
        self.objects: dict[str, tuple[dict[str, str], bytes]] = {}
        self.keys: list[str] = []

    def answer(self, request: Request) -> Answer:
        """200 to PUT of an object and to HEAD of the bucket."""
        self._check_signature(request)
        bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
        if bucket != self.bucket:
            return 404, b"<Error><Code>NoSuchBucket</Code></Error>"
        if request.method != "PUT":
            return 200, b""
        if not key or len(key.encode()) > 1024 or key in self.objects:
            raise RefusedError(f"key {key!r}")
        body = self._body(request)
        self.objects[key] = (request.headers, body)
        if key.endswith(".gz"):
            body = decompressed(body, "gzip")
        for line in body.removesuffix(b"\n").split(b"\n"):
            self.records.append(strict_object(line))
            self.keys.append(key)
        return 200, b""

    def _body(self, request: Request) -> bytes:
        """The object itself: some clients send it in chunks of their own, with a checksum behind."""
        kind, body = request.headers.get("x-amz-content-sha256", ""), request.body
        if kind.startswith("STREAMING-"):
            plain, rest = b"", body
            while True:
                head, _, rest = rest.partition(b"\r\n")
                size = int(head.split(b";")[0], 16)
                plain, rest = plain + rest[:size], rest[size:].removeprefix(b"\r\n")
                if not size:
                    break
            body = plain
        elif kind not in (hashlib.sha256(body).hexdigest(), "UNSIGNED-PAYLOAD"):
            raise RefusedError("x-amz-content-sha256 is that of something else")
        given = request.headers.get("content-md5")
        if given and given != base64.b64encode(hashlib.md5(body).digest()).decode():
            raise RefusedError("Content-MD5 is that of something else")
        return body

    def _check_signature(self, request: Request) -> None:
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?"
            r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})", request.headers.get("authorization", ""))
        if not found:
            raise RefusedError(f"Authorization: {request.headers.get('authorization')}")
        access_key, day, region, signed, signature = found.groups()
        if (access_key, region) != (self.access_key, self.region) or "host" not in signed.split(";"):
            raise RefusedError(f"Authorization: {request.headers['authorization']}")
        stamp = request.headers["x-amz-date"]
        parameters = sorted(p.partition("=")[::2] for p in request.query.split("&") if p)
        canonical = "\n".join([
            request.method, quote(unquote(request.path), safe="/~"), "&".join(f"{k}={v}" for k, v in parameters),
            *(f"{name}:{' '.join(request.headers[name].split())}" for name in signed.split(";")), "",
            signed, request.headers["x-amz-content-sha256"],
        ])
        key = f"AWS4{self.secret_key}".encode()
        for part in (day, region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{day}/{region}/s3/aws4_request\n" + hashlib.sha256(
            canonical.encode()).hexdigest()
        if hmac.digest(key, to_sign.encode(), "sha256").hex() != signature:
            raise RefusedError(f"the signature is wrong; canonical request:\n{canonical}")


class LokiDoor(HttpServer):
    """Stands before a real Loki: whoever brings just these headers may write there. None is for one that is absent."""

    def __init__(self, loki: str, headers: dict[str, str | None]) -> None:
        super().__init__()
        self.loki, self.headers = loki, headers

    def answer(self, request: Request) -> Answer:
        """401 to strangers, else what Loki says. Whoever asks may know that it is there."""
        if (request.method, request.path) == ("GET", "/ready"):
            return 200, b"ready"
        if (request.method, request.path) != ("POST", "/loki/api/v1/push"):
            raise RefusedError(f"{request.method} {request.path}")
        for name, value in self.headers.items():
            if request.headers.get(name.lower()) != value:
                self.problems.append(f"{name}: {request.headers.get(name.lower())}")
                return 401, b"who are you?"
        kept = ("content-type", "content-encoding", "x-scope-orgid")
        passed = {k: v for k, v in request.headers.items() if k in kept}
        push = urllib.request.Request(self.loki + request.path, request.body, passed, method="POST")
        try:
            with urllib.request.urlopen(push) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            self.problems.append(f"Loki says {error.code}")
            return error.code, error.read()
