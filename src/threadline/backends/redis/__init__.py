"""Plain Redis and Valkey, alone or as a cluster, without modules; as durable as the server's append-only file.

An acknowledged put survives a crash of this process always, and a crash of the server as far as the server was
told to keep it: with `appendonly yes` and `appendfsync always` every one, with `everysec` all but the last second,
without an append-only file nothing since the last snapshot. A failover to a replica loses what had not reached
it. Where chunks may have been lost that this process believes stored (the server restarted, another took over),
everything known under that server is doubted and asked again (`link.py`).

Which file decides what:
    layout.py       keys, and how rows become bytes
    scripts.py      every script that reads; writing.py: every script that changes something
    link.py         how a script or command gets to the server, in both halves; what its errors mean
    directory.py    which pool a thread lives in, how threads begin, and how they move
    reader.py, survey.py, backend.py    the Backend port
    opening.py      the format record, and which settings of a server are warned of or refused
"""
