"""A way to a server that delivers what a client sends message by message, and every Flush five milliseconds late."""

import contextlib
import socket
import threading
import time

LATE_SECONDS = 0.005
# A start message has no type; SSL and GSS requests are answered by one byte, and another start follows.
_REQUESTS = (80877103, 80877104)


class LateFlush:
    """Listens on a port of 127.0.0.1 and passes every connection on; counts the Flush messages of the clients."""

    def __init__(self, host, port):
        self.flushes = 0
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _forward(self, client, server):
        with _ended_together(client, server):
            messages = client.makefile("rb")
            is_started = False
            while True:
                kind = messages.read(1) if is_started else b""
                length = messages.read(4)
                if len(length) < 4:
                    return
                body = messages.read(int.from_bytes(length, "big") - 4)
                if kind == b"H":
                    self.flushes += 1
                    time.sleep(LATE_SECONDS)
                is_started = is_started or int.from_bytes(body[:4], "big") not in _REQUESTS
                server.sendall(kind + length + body)

    def _answer(self, server, client):
        with _ended_together(client, server):
            while data := server.recv(65536):
                client.sendall(data)


@contextlib.contextmanager
def _ended_together(*ends):
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
