"""A hub on loopback: the part of the Hugging Face hub's HTTP interface that downloads use.

As on the public hub, a repository that is private or missing answers 401 without a token and 404
with one; a gated one tells its file names and answers 401 or 403 for their content; large files are
redirected to a storage at another address, which must never see a token.
"""

import hashlib
import json
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

TOKEN = "hf_aTokenThatMustShowUpNowhereElse"
"""The one token that this hub knows; it may read everything but what it is kept from."""
LARGE = (".bin", ".safetensors", ".parquet", ".h5", ".msgpack", ".ot", ".onnx", ".model")
"""Files that the hub keeps in a storage of its own and answers with a redirect to it."""


class Request(NamedTuple):
    """One request to the hub or to its storage, with the token that came, and the answer."""

    to_storage: bool
    path: str
    token: str | None
    sent: bool


class Refused(Exception):
    """An answer's status, and the code and message of its headers."""


def files_in(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): digest_of(path) for path in files}


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[
        : None if path.name.endswith(LARGE) else 40
    ]


@dataclass
class Repository:
    """Commits are folders; "private" ones need the token, and so do files of "gated" ones."""

    commits: dict[str, Path] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    access: str = "public"

    def split(self, path: str) -> tuple[str, str]:
        for revision in sorted([*self.branches, *self.commits], key=len, reverse=True):
            if f"{path}/".startswith(f"{revision}/"):
                return self.branches.get(revision, revision), path[len(revision) + 1 :]
        raise Refused(404, "RevisionNotFound", f"Invalid rev id: {path}")

    def tree(self, commit: str) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = []
        folder = self.commits[commit]
        for path, digest in files_in(folder).items():
            size = (folder / path).stat().st_size
            large_file_entry = {"lfs": {"oid": digest, "size": size, "pointerSize": 134}}
            entry = {"type": "file", "oid": digest[:40], "size": size, "path": path}
            entries.append(entry | (large_file_entry if path.endswith(LARGE) else {}))
        return entries


@dataclass
class Hub:
    """The hub and its storage; ``TOKEN`` reads all but ``kept_out``; requests are recorded."""

    kept_out: set[str] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)
    repositories: dict[str, Repository] = field(default_factory=lambda: defaultdict(Repository))
    _servers: list[ThreadingHTTPServer] = field(default_factory=list)
    ports: tuple[int, ...] = (0, 0)

    def publish(
        self, kind: str, name: str, folder: Path, branch: str = "main", access: str = "public"
    ) -> str:
        """Make a folder the newest commit of a branch of a repository; return the commit."""
        repository = self.repositories[f"{kind}/{name}"]
        commit = hashlib.sha1(f"{name}{files_in(folder)}".encode()).hexdigest()
        repository.access = access
        repository.commits[commit] = folder
        repository.branches[branch] = commit
        return commit

    def fetched(self, name: str = "") -> set[str]:
        """The files, of one repository or of all, whose content was sent, by whatever commit."""
        paths = [request.path for request in self.requests if request.sent]
        sent = [path for path in paths if f"/{name}" in path]
        matches = (re.search(r"/[0-9a-f]{40}/(.*)", path) for path in sent)
        return {match[1] for match in matches if match}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        for port, to_storage in zip(self.ports, (False, True), strict=True):
            server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, self, to_storage))
            threading.Thread(target=partial(server.serve_forever, 0.05), daemon=True).start()
            self._servers.append(server)
        self.ports = tuple(server.server_port for server in self._servers)

    def stop(self) -> None:
        while self._servers:
            server = self._servers.pop()
            server.shutdown()
            server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    def __init__(self, hub: Hub, to_storage: bool, *arguments: object) -> None:
        self.hub = hub
        self.to_storage = to_storage
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        try:
            about = re.fullmatch(r"api/(\w+/.+?)(?:/(revision|tree)/(.+))?", path)
            if self.to_storage:
                name, commit, file = re.split(r"/([0-9a-f]{40})/", path)
                self._file(self.hub.repositories[name].commits[commit] / file, {})
            elif about is not None:
                repository = self._readable(about[1])
                commit, _ = repository.split(about[3] or "main")
                files = repository.tree(commit)
                siblings = [{"rfilename": entry["path"]} for entry in files]
                info = {"id": about[1].partition("/")[2], "sha": commit, "siblings": siblings}
                access = {"private": repository.access == "private", "tags": []}
                gated = "manual" if repository.access == "gated" else False
                answer = files if about[2] == "tree" else info | access | {"gated": gated}
                self._answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
            else:
                name, _, rest = path.partition("/resolve/")
                name = name if name.startswith("datasets/") else f"models/{name}"
                repository = self._readable(name, content=True)
                commit, file = repository.split(rest)
                self._resolved(name, commit, file, repository.commits[commit] / file)
        except Refused as refused:
            status, code, message = refused.args
            headers = {"X-Error-Message": message, "X-Error-Code": code}
            self._answer(status, headers, json.dumps({"error": message}).encode())

    do_HEAD = do_GET  # noqa: N815

    def _readable(self, name: str, content: bool = False) -> Repository:
        repository = self.hub.repositories.get(name)
        token = self.token
        reader = token == TOKEN and name.partition("/")[2] not in self.hub.kept_out
        if token not in (None, TOKEN):
            raise Refused(401, "", "Invalid credentials in Authorization header")
        if repository is None or (repository.access == "private" and not reader):
            # The public hub sends no code with 401; its client knows the case by an https address,
            # which this is not.
            raise Refused(404 if token else 401, "RepoNotFound", "Repository not found")
        if content and repository.access == "gated" and not reader:
            raise Refused(403 if token else 401, "GatedRepo", f"Access to {name} is restricted.")
        return repository

    def _resolved(self, name: str, commit: str, file: str, path: Path) -> None:
        headers: dict[str, object] = {"X-Repo-Commit": commit}
        if not path.is_file():
            missing = {"X-Error-Message": "Entry not found", "X-Error-Code": "EntryNotFound"}
            self._answer(404, headers | missing)
        elif not file.endswith(LARGE):
            self._file(path, headers)
        else:
            headers["Location"] = f"http://127.0.0.1:{self.hub.ports[1]}/{name}/{commit}/{file}"
            headers["X-Linked-Size"] = path.stat().st_size
            headers["X-Linked-Etag"] = f'"{digest_of(path)}"'
            self._answer(302, headers)

    def _file(self, path: Path, headers: dict[str, object]) -> None:
        self._answer(200, {"ETag": f'"{digest_of(path)}"', **headers}, path.read_bytes())

    def _answer(self, status: int, headers: dict[str, object], content: bytes = b"") -> None:
        sent = self.command == "GET" and status == 200
        self.hub.requests.append(Request(self.to_storage, unquote(self.path), self.token, sent))
        self.send_response(status)
        for name, value in (headers | {"Content-Length": len(content)}).items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing: requests are recorded."""
