"""A server of S3 that heeds neither ranges nor conditions nor keys, and counts what it is asked."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Heedless:
    """Objects in memory, as few as some old object stores know to do. With `has_ranges` it gives parts of objects."""

    def __init__(self, *, has_ranges: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # no connection outlives the server

            def do_PUT(self) -> None:
                owner.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(200)

            def do_GET(self) -> None:
                content = owner.objects.get(self.path)
                asked = self.headers.get("Range")
                if content is not None and asked and has_ranges:
                    first, last = (int(one) for one in asked.removeprefix("bytes=").split("-"))
                    part = content[first : last + 1]
                    self._answer(206, part, f"bytes {first}-{first + len(part) - 1}/{len(content)}")
                else:
                    self._answer(200 if content is not None else 404, content or b"")

            do_HEAD = do_GET

            def do_DELETE(self) -> None:
                owner.objects.pop(self.path, None)
                self._answer(204)

            def do_POST(self) -> None:
                # The only one that obstore sends: delete many.
                named = re.findall(r"<Key>([^<]+)</Key>", self.rfile.read(int(self.headers["Content-Length"])).decode())
                bucket = self.path.partition("?")[0].rstrip("/")
                for key in named:
                    owner.objects.pop(f"{bucket}/{key}", None)
                deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in named)
                self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

            def _answer(self, status: int, content: bytes = b"", span: str = "") -> None:
                owner.requests.append((self.command, self.path))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Last-Modified", "Tue, 06 Jan 2026 00:00:00 GMT")
                self.send_header("ETag", '"the-same-for-all"')
                if span:
                    self.send_header("Content-Range", span)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        host, port = self._server.server_address[:2]
        keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": f"http://{host!s}:{port}", **keys}

    def __enter__(self) -> Heedless:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
