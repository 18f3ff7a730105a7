"""A hub on loopback: the part of the Hugging Face hub's HTTP interface that downloads use.

As on the public hub, a repository that is private or missing answers 401 without a token and 404
with one; a gated one tells its file names and answers 401 or 403 for their content; large files are
redirected to a storage at another address, which must never see a token.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.hub.repositories import LARGE, Access, Kind, Repository, digest_of, etag_of

TOKEN = "hf_aTokenThatMustShowUpNowhereElse"
"""The one token that this hub knows; it may read everything but what it is kept from."""


@dataclass(frozen=True)
class Request:
    """One request: to the hub or to its storage; what came with it, and the answer's status."""

    to_storage: bool
    method: str
    path: str
    token: str | None
    range: str | None
    status: int


@dataclass
class Hub:
    """The hub and its storage, each at an address of its own.

    Attributes:
        kept_out: names of private and gated repositories that ``TOKEN`` may not read either.
        requests: in the order of their answers.
    """

    kept_out: set[str] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    _repositories: dict[tuple[Kind, str], Repository] = field(default_factory=dict)
    _servers: list[ThreadingHTTPServer] = field(default_factory=list)
    _ports: tuple[int, int] = (0, 0)

    def publish(
        self, kind: Kind, name: str, folder: Path, branch: str = "main", access: Access = "public"
    ) -> str:
        """Make the folder's content the newest commit of a repository's branch; returns
        the commit.
        """
        repository = self._repositories.setdefault((kind, name), Repository(kind, name))
        repository.access = access
        return repository.publish(folder, branch)

    def repository(self, kind: Kind, name: str) -> Repository | None:
        return self._repositories.get((kind, name))

    def fetched(self, name: str) -> set[str]:
        """The files of a repository whose content was sent, by commit."""
        found = set()
        for request in self.requests:
            below = "/" if request.to_storage else "/resolve/"
            _, here, place = request.path.partition(f"/{name}{below}")
            if here and request.method == "GET" and request.status < 300:
                found.add(place.partition("/")[2])
        return found

    def read(self) -> set[str]:
        """The files of all commits whose content was sent, wherever they lie."""
        sent = (one for one in self.requests if one.method == "GET" and one.status in (200, 206))
        paths = [re.split(r"/[0-9a-f]{40}/", one.path, maxsplit=1) for one in sent]
        return {path[1] for path in paths if len(path) == 2}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def storage(self) -> str:
        return f"http://127.0.0.1:{self._ports[1]}"

    def start(self) -> None:
        """Listen, at the same addresses as before if it was stopped."""
        for port, to_storage in zip(self._ports, (False, True), strict=True):
            server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, self, to_storage))
            threading.Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
            self._servers.append(server)
        self._ports = (self._servers[0].server_port, self._servers[1].server_port)

    def stop(self) -> None:
        """Stop listening: the hub is gone."""
        while self._servers:
            server = self._servers.pop()
            server.shutdown()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def __init__(self, hub: Hub, to_storage: bool, *arguments: Any) -> None:
        self.hub = hub
        self.to_storage = to_storage
        super().__init__(*arguments)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        if self.to_storage:
            return self._file(self._stored(parts))
        if parts[0] == "api" and parts[1:2] in (["models"], ["datasets"]):
            return self._about("models" if parts[1] == "models" else "datasets", parts[2:])
        kind: Kind = "datasets" if parts[0] == "datasets" else "models"
        names = parts[1:] if kind == "datasets" else parts
        if "resolve" in names:
            return self._resolve(kind, names)
        return self._error(404, "", "Not found")

    do_HEAD = do_GET  # noqa: N815

    def _about(self, kind: Kind, parts: list[str]) -> None:
        words = ("revision", "tree")
        at = next(
            (place for place, part in enumerate(parts) if place and part in words), len(parts)
        )
        repository = self._readable(kind, "/".join(parts[:at]))
        if repository is None:
            return None
        what, *rest = parts[at:] or ["revision", "main"]
        commit, _ = repository.split("/".join(rest))
        if commit is None:
            return self._error(404, "RevisionNotFound", f"Invalid rev id: {'/'.join(rest)}")
        answer = repository.info(commit) if what == "revision" else repository.tree(commit)
        return self._json(answer)

    def _resolve(self, kind: Kind, parts: list[str]) -> None:
        at = parts.index("resolve")
        repository = self._readable(kind, "/".join(parts[:at]), content=True)
        if repository is None:
            return None
        commit, name = repository.split("/".join(parts[at + 1 :]))
        if commit is None:
            return self._error(
                404, "RevisionNotFound", f"Invalid rev id: {'/'.join(parts[at + 1 :])}"
            )
        path = repository.commits[commit] / name
        if not path.is_file():
            return self._error(404, "EntryNotFound", "Entry not found", commit)
        if not name.endswith(LARGE):
            return self._file(path, commit)
        place = f"{self.hub.storage}/{kind}/{repository.name}/{commit}/{name}"
        size, digest = path.stat().st_size, digest_of(path)
        return self._answer(
            302,
            {
                "Location": place,
                "X-Repo-Commit": commit,
                "X-Linked-Size": size,
                "X-Linked-Etag": f'"{digest}"',
            },
        )

    def _readable(self, kind: Kind, name: str, content: bool = False) -> Repository | None:
        """The repository; None once a refusal was sent."""
        repository = self.hub.repository(kind, name)
        token = self._token()
        if token not in (None, TOKEN):
            return self._error(401, "", "Invalid credentials in Authorization header")
        reader = token == TOKEN and name not in self.hub.kept_out
        if repository is None or (repository.access == "private" and not reader):
            if token is None:
                # The public hub sends no code here; its client knows the case by an https address,
                # which this is not.
                return self._error(401, "RepoNotFound", "Invalid username or password.")
            return self._error(404, "RepoNotFound", "Repository not found")
        if content and repository.access == "gated" and not reader:
            return self._error(
                401 if token is None else 403,
                "GatedRepo",
                f"Access to {kind} {name} is restricted.",
            )
        return repository

    def _stored(self, parts: list[str]) -> Path:
        kind, owner, name, commit, *rest = parts
        repository = self.hub.repository(
            "models" if kind == "models" else "datasets", f"{owner}/{name}"
        )
        assert repository is not None
        return repository.commits[commit] / "/".join(rest)

    def _file(self, path: Path, commit: str = "") -> None:
        content, wanted = path.read_bytes(), self.headers.get("Range")
        headers = {"ETag": f'"{etag_of(path)}"', "Accept-Ranges": "bytes"}
        if commit:
            headers["X-Repo-Commit"] = commit
        if wanted is None:
            return self._answer(200, headers, content)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        end = min(int(last) + 1 if last else len(content), len(content))
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
        return self._answer(206, headers, content[int(first) : end])

    def _json(self, content: Any) -> None:
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _error(self, status: int, code: str, message: str, commit: str = "") -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self._answer(
            status,
            headers | ({"X-Repo-Commit": commit} if commit else {}),
            json.dumps({"error": message}).encode(),
        )

    def _answer(self, status: int, headers: dict[str, Any], content: bytes = b"") -> None:
        path, wanted = unquote(self.path), self.headers.get("Range")
        self.hub.requests.append(
            Request(self.to_storage, self.command, path, self._token(), wanted, status)
        )
        self.send_response(status)
        for name, value in (headers | {"Content-Length": len(content)}).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.close_connection = True

    def _token(self) -> str | None:
        given = self.headers.get("Authorization")
        return given.removeprefix("Bearer ") if given else None

    def log_message(self, *_: Any) -> None:
        """Say nothing: requests are recorded."""
