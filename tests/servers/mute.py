"""A way to a server that can fall silent."""

import contextlib
import socket
import threading

__all__ = ["LONG_SECONDS", "Mute"]

# Whoever waits for so long, though its saver's timeout is half a second, would have waited for ever.
LONG_SECONDS = 10


class Mute:
    """Passes connections on until it is told to say nothing any more; after long, it ends them."""

    def __init__(self, host, port):
        self.is_mute = threading.Event()
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends = []
        self._is_closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def mute(self):
        self.is_mute.set()
        self._end = threading.Timer(LONG_SECONDS, self.close)
        self._end.start()

    def unmute(self):
        """Pass on again; whether it was not too late for that."""
        self._end.cancel()
        self.is_mute.clear()
        return not self._is_closed

    def close(self):
        self._is_closed = True
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._ends += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.is_mute.is_set():
                    sink.sendall(data)
