"""What is said when something is wrong: the kind, the place, the fix, and never the password."""

import asyncio
import logging
import random

import psycopg
import pytest
from psycopg import errors

import threadline
from threadline import InvalidRequest, ReadOnly, StorageFull, Unavailable
from threadline.backends.postgres.errors import translate
from threadline.backends.postgres.url import Whereabouts
from threadline.testing.making import place

WHERE = Whereabouts("ann", "db.example:5432/agents")
SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", Unavailable), ("57P01", Unavailable), ("57P02", Unavailable), ("57P03", Unavailable),
        ("53300", Unavailable), ("40001", Unavailable), ("40P01", Unavailable), ("55P03", Unavailable),
        ("57014", Unavailable), ("53100", StorageFull), ("28P01", InvalidRequest), ("28000", InvalidRequest),
        ("3D000", InvalidRequest), ("42501", InvalidRequest), ("42P01", InvalidRequest), ("25006", ReadOnly),
        ("22P05", InvalidRequest), ("54000", InvalidRequest),
    ],
)  # fmt: skip
def test_each_state_has_its_error(state, kind):
    found = translate(errors.lookup(state)("it failed"), WHERE)
    assert type(found) is kind
    assert "db.example" in str(found)


def failures(url, half, **options):
    """What a first use of this URL raises."""
    saver = threadline.connect(url, retry=None, **options)
    with pytest.raises(threadline.ThreadlineError) as raised:
        if half == "sync":
            saver.get_tuple(place("t"))
        else:
            asyncio.run(saver.aget_tuple(place("t")))
    saver.close()
    return raised.value


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_server_that_is_not_there_is_unavailable_at_once(half, caplog):
    with caplog.at_level(logging.DEBUG):
        error = failures(f"postgresql://ann:{SECRET}@127.0.0.1:1/agents", half)
    assert type(error) is Unavailable
    assert "127.0.0.1:1/agents" in str(error)
    assert "running?" in str(error)
    assert SECRET not in str(error) + repr(error.__cause__) + caplog.text


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_host_that_nobody_knows_is_named(half):
    error = failures(f"postgresql://ann:{SECRET}@no-such-host.invalid/agents", half)
    assert type(error) is Unavailable
    assert "no-such-host.invalid" in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_database_that_does_not_exist_is_named(half, postgres_url):
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    url = f"postgresql://{parts.get('user', 'postgres')}@{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
    error = failures(f"{url}/no_such_database", half)
    assert type(error) is InvalidRequest
    assert "CREATE DATABASE" in str(error)
    assert "no_such_database" in str(error)


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_user_who_does_not_exist_is_named(half, postgres_url):
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', 'postgres')}"
    error = failures(f"postgresql://no_such_user:{SECRET}@{where}", half)
    assert type(error) is InvalidRequest
    assert "no_such_user" in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@host:port/db",
        f"postgresql://ann:{SECRET}@host/db?no_such_option=1",
        f"postgresql://ann:{SECRET}@host/db?sslmode",
        f"postgresql://ann:{SECRET}%zz@host/db",
        f"postgresql://ann:{SECRET}@{SECRET}@host/db",
        f"postgresql://ann:{SECRET}@[::1/db",
        f"postgresql://ann:{SECRET}@host/a\0b",
        f"postgresql://ann:{SECRET}@host/\ud800",
    ],
    ids=repr,
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(InvalidRequest) as refused:
        threadline.connect(url)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_the_password_is_nowhere_to_be_seen(caplog):
    saver = threadline.connect(f"postgresql://ann:{SECRET}@db.example:6432/agents?sslmode=require")
    assert saver._engine.url == "postgresql://ann@db.example:6432/agents"
    assert SECRET not in repr(saver) + repr(saver._engine)
    saver.close()


@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": 0}, {"partitions": 0}, {"prepare_threshold": -1}, {"tenant": ""}, {"schema": ""},
        {"timeout": -1}, {"retry": 0}, {"retry": True}, {"setup": True}, {"synchronous": "FULL"}, {"key_prefix": "x"},
    ],
    ids=repr,
)  # fmt: skip
def test_an_option_that_makes_no_sense_is_refused(options):
    with pytest.raises(InvalidRequest):
        threadline.connect("postgresql://host/db", **options)


def test_a_connection_and_a_pool_are_too_much(postgres_url):
    with psycopg.connect(postgres_url) as given, pytest.raises(InvalidRequest, match="not both"):
        threadline.connect(connection=given, pool=given)


def test_a_cursor_is_no_connection(postgres_url):
    with psycopg.connect(postgres_url) as given, pytest.raises(InvalidRequest, match="connection"):
        threadline.connect(connection=given.cursor())


def test_the_health_of_a_server_that_is_not_there_is_told():
    saver = threadline.connect("postgresql://127.0.0.1:1/agents", retry=None)
    health = saver.health()
    assert not health.ok
    saver.close()


def test_an_id_that_no_index_holds_is_refused(connect):
    dice = random.Random(2)
    text = "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(4000))
    with pytest.raises(InvalidRequest, match="too long"):
        connect().put(
            place(text),
            {"v": 4, "id": "1", "ts": "x", "channel_values": {}, "channel_versions": {}, "versions_seen": {}},
            {},
            {},
        )
