"""Plain Redis and Valkey, alone or as a cluster, without modules; as durable as the server's append-only file.

An acknowledged put survives a crash of this process always, and a crash of the server as far as the server was
told to keep it: with `appendonly yes` and `appendfsync always` every one, with `everysec` all but the last second,
without an append-only file nothing since the last snapshot. A failover to a replica loses what had not reached
it. Where the server was restarted, or another one took over, chunks may have been lost that this process knows to be
stored: a new generation begins, and everything known of the former one is read again (`wire.py`).
"""
