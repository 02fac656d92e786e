"""A schema registry for tests that enforces modes, which the real one of the sandbox (Apicurio) does not have.

Ours, written from the public specification of the Confluent Schema Registry API; not a product that anybody runs.
Kept here: ids by content, versions that start at 1, soft deletion, references that must exist, compatibility levels by
subject (stored; only a schema that says ``"incompatible": true`` is refused while the level is not NONE), schemas normalised
where a request asks for it (JSON without spaces, keys in order: stored so, and compared so), and

    READONLY   nothing may be registered or deleted (42205)
    IMPORT     a registration must bring its id, and keeps id and version; an id of another schema is refused (42207);
               without ``force`` the mode is refused for a subject that has versions (42205)
    READWRITE  a registration that brings an id is refused (42205)

A subject's own mode wins over the registry's. It also misbehaves on request: ``failing`` answers 503 so many times, and
``dies_after`` so many POST requests for ever; a request that ``holds`` names is carried out, ``held`` is set, and its answer
never comes. ``fixed_modes`` shows the mode and lets nobody set it, as Karapace does; ``null_for_none`` says ``null`` for a list
of no subjects.
"""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Refusal(Exception):
    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.status, self.code = status, code


class StrictRegistry:
    """``with StrictRegistry() as registry``: answers at ``registry.url`` until the block is left."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.authorization: str | None = None
        self.versions: dict[str, dict[int, dict[str, Any]]] = {}
        self.deleted: set[tuple[str, int]] = set()
        self.levels: dict[str, str] = {}
        self.modes: dict[str, str] = {"": "READWRITE"}
        self.fixed_modes = self.null_for_none = False
        self.failing = 0
        self.dies_after: int | None = None
        self.holds: str | None = None
        self.held = threading.Event()
        self.asked: list[str] = []
        self._lock = threading.Lock()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                given = self.headers.get("Authorization")
                with registry._lock:
                    status, answer = registry.answer(self.command, self.path, body, given)
                if f"{self.command} {self.path}" == registry.holds:
                    registry.held.set()
                    self.rfile.read(1)  # until who asked is gone
                    return
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> StrictRegistry:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, verb: str, target: str, body: dict[str, Any], authorization: str | None) -> tuple[int, Any]:
        self.asked.append(f"{verb} {target}")
        if self.dies_after is not None and verb == "POST":
            self.dies_after -= 1
            if self.dies_after < 0:
                self.failing, self.dies_after = 10**9, None
        if self.failing > 0:
            self.failing -= 1
            return 503, {"error_code": 50003, "message": "forwarding to the leader failed"}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(target)
        words = tuple(unquote(word) for word in parts.path.strip("/").split("/"))
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        try:
            return 200, self.route(verb, words, query, body)
        except Refusal as refusal:
            return refusal.status, {"error_code": refusal.code, "message": str(refusal)}

    def route(self, verb: str, words: tuple[str, ...], query: dict[str, str], body: dict[str, Any]) -> Any:
        deleted = query.get("deleted") == "true"
        normalise = query.get("normalize") == "true"
        if normalise:
            body = self.normalised(body)
        match (verb, *words):
            case ("GET", "subjects"):
                found = sorted(subject for subject in self.versions if self.live(subject, deleted))
                return None if self.null_for_none and not found else found
            case ("GET", "subjects", subject, "versions"):
                return self.live(subject, deleted) or self.missing(40401, f"Subject '{subject}' not found.")
            case ("GET", "subjects", subject, "versions", version):
                numbers = self.live(subject, deleted)
                number = max(numbers, default=0) if version == "latest" else int(version)
                if number not in numbers:
                    self.missing(40402, f"Version {version} not found.")
                return {"subject": subject, "version": number, **self.versions[subject][number]}
            case ("POST", "subjects", subject):
                for number in self.live(subject, deleted):
                    one = self.versions[subject][number]
                    if self.content(self.normalised(one) if normalise else one) == self.content(body):
                        return {"subject": subject, "version": number, **self.versions[subject][number]}
                return self.missing(40403, "Schema not found")
            case ("POST", "compatibility", "subjects", subject, "versions"):
                return {"is_compatible": not self.refused(subject, body)}
            case ("POST", "subjects", subject, "versions"):
                return self.register(subject, body, normalise)
            case ("DELETE", "subjects", subject, "versions", version):
                self.writable(subject)
                self.deleted.add((subject, int(version)))
                return int(version)
            case ("GET", "schemas", "ids", id_):
                found = [one for numbers in self.versions.values() for one in numbers.values() if one["id"] == int(id_)]
                return found[0] if found else self.missing(40403, f"Schema {id_} not found")
            case ("GET", "schemas", "ids", id_, "versions"):
                return [
                    {"subject": subject, "version": number}
                    for subject, numbers in self.versions.items()
                    for number, one in numbers.items()
                    if one["id"] == int(id_)
                ] or self.missing(40403, f"Schema {id_} not found")
            case ("GET", "config"):
                return {"compatibilityLevel": self.levels.get("", "BACKWARD")}
            case ("GET", "config", subject):
                level = self.levels.get(subject)
                return {"compatibilityLevel": level} if level else self.missing(40408, f"no level for '{subject}'")
            case ("PUT", "config", subject):
                self.levels[subject] = body["compatibility"]
                return body
            case ("DELETE", "config", subject):
                return {"compatibilityLevel": self.levels.pop(subject, None)}
            case ("GET", "mode"):
                return {"mode": self.modes[""]}
            case ("GET", "mode", subject):
                mode = self.modes.get(subject)
                return {"mode": mode} if mode else self.missing(40409, f"no mode for '{subject}'")
            case ("PUT" | "DELETE", "mode", *_) if self.fixed_modes:
                raise Refusal(405, 405, "Method Not Allowed")
            case ("PUT", "mode", *subject):
                name = subject[0] if subject else ""
                if body["mode"] == "IMPORT" and self.live(name, True) and query.get("force") != "true":
                    raise Refusal(422, 42205, "Cannot import since found existing subjects")
                self.modes[name] = body["mode"]
                return body
            case ("DELETE", "mode", subject):
                return {"mode": self.modes.pop(subject, None) or self.missing(40409, f"no mode for '{subject}'")}
        return self.missing(404, "HTTP 404 Not Found")

    def missing(self, code: int, words: str) -> Any:
        raise Refusal(404, code, words)

    def live(self, subject: str, deleted: bool = False) -> list[int]:
        return [n for n in sorted(self.versions.get(subject, ())) if deleted or (subject, n) not in self.deleted]

    @staticmethod
    def content(one: dict[str, Any]) -> str:
        keys = ("schema", "schemaType", "references", "metadata", "ruleSet")
        return json.dumps({key: one[key] for key in keys if one.get(key)}, sort_keys=True)

    @staticmethod
    def normalised(one: dict[str, Any]) -> dict[str, Any]:
        if one.get("schemaType", "AVRO") == "PROTOBUF":
            return one
        return {**one, "schema": json.dumps(json.loads(one["schema"]), sort_keys=True, separators=(",", ":"))}

    def mode(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes[""]

    def writable(self, subject: str) -> None:
        if self.mode(subject) == "READONLY":
            raise Refusal(422, 42205, f"Subject {subject} is in read-only mode")

    def refused(self, subject: str, body: dict[str, Any]) -> bool:
        level = self.levels.get(subject, "BACKWARD")
        return '"incompatible"' in body["schema"] and bool(self.live(subject)) and level != "NONE"

    def register(self, subject: str, body: dict[str, Any], normalise: bool = False) -> dict[str, Any]:
        self.writable(subject)
        importing = self.mode(subject) == "IMPORT"
        for reference in body.get("references", ()):
            if reference["version"] not in self.live(reference["subject"]):
                raise Refusal(422, 42201, f"No schema reference found for {reference}")
        everything = {one["id"]: one for numbers in self.versions.values() for one in numbers.values()}
        content = self.content(body)
        kept = {key: value for key, value in body.items() if key not in ("id", "version")}
        if importing:
            if "id" not in body:
                raise Refusal(422, 42205, f"Subject {subject} is in import mode")
            if body["id"] in everything and self.content(everything[body["id"]]) != content:
                raise Refusal(422, 42207, f"Overwrite new schema with id {body['id']} is not permitted.")
            number = body.get("version") or max(self.live(subject, True), default=0) + 1
            self.versions.setdefault(subject, {})[number] = {**kept, "id": body["id"]}
            return {"id": body["id"]}
        if "id" in body:
            raise Refusal(422, 42205, f"Subject {subject} is not in import mode")
        for number in self.live(subject):
            one = self.versions[subject][number]
            if self.content(self.normalised(one) if normalise else one) == content:
                return {"id": one["id"]}
        if self.refused(subject, body):
            raise Refusal(409, 409, "Schema being registered is incompatible with an earlier schema")
        same = [id_ for id_, one in everything.items() if self.content(one) == content]
        id_ = same[0] if same else max(everything, default=0) + 1
        number = max(self.live(subject, True), default=0) + 1
        self.versions.setdefault(subject, {})[number] = {**kept, "id": id_}
        return {"id": id_}
