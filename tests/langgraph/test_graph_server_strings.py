"""Connection strings and connections that LangGraph's savers for servers are given, and the names they have."""

import asyncio
import importlib
import logging
import pkgutil

import langgraph.checkpoint.mysql
import langgraph.checkpoint.postgres
import psycopg
import pytest
from graph_server_openings import PSYCOPG
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from threadline import langgraph as ours
from threadline.errors import Conflict, InvalidRequest, ThreadlineError
from threadline.langgraph import AsyncMySaver, AsyncPostgresSaver, PostgresSaver

CONFIG = {"configurable": {"thread_id": "thread-1", "checkpoint_ns": ""}}
SECRET = "sesame'street"


def strings(url):
    """The same place in other words."""
    return {
        "keywords": make_conninfo(**conninfo_to_dict(url)),
        "SQLAlchemy": url.replace("postgresql://", "postgresql+psycopg://"),
    }


@pytest.mark.parametrize("form", ["keywords", "SQLAlchemy"])
def test_a_postgres_saver_takes_other_strings_too(form, postgres):
    text = strings(postgres.url)[form]
    with PostgresSaver.from_conn_string(text) as saver:
        config = saver.put(CONFIG, empty_checkpoint(), {}, {})

    async def read():
        async with AsyncPostgresSaver.from_conn_string(text) as saver:
            return await saver.aget_tuple(CONFIG)

    assert asyncio.run(read()).config == config


@pytest.mark.parametrize(
    "text",
    [
        f"host=127.0.0.1 port=1 dbname=agents user=ann password='{SECRET}' connect_timeout=2",
        f"host=127.0.0.1 nonsense=1 password={SECRET}",
        f"password={SECRET} 'unfinished",
        f"password={SECRET}\0",
        f"postgresql+psycopg://ann:{SECRET}@127.0.0.1:1/agents?connect_timeout=2",
        f"postgresql+asyncpg://ann:{SECRET}@127.0.0.1:1/agents",
        f"{SECRET}",
        "",
    ],
)
def test_a_wrong_string_is_an_error_that_shows_no_password(text, caplog):
    caplog.set_level(logging.DEBUG)
    with (
        pytest.raises(ThreadlineError) as raised,
        PostgresSaver.from_conn_string(text.replace("sesame'", "sesame\\'"), retry=1) as saver,
    ):
        saver.setup()
    error = raised.value
    while error is not None:
        assert "sesame" not in f"{error}{error!r}"
        error = None if error.__suppress_context__ else error.__context__
    assert "sesame" not in caplog.text


def test_the_name_of_a_saver_from_keywords_has_no_password():
    saver = PostgresSaver._from_url("host=db.example dbname=agents user=ann password=sesame", {})
    assert repr(saver) == "PostgresSaver('postgresql://ann@db.example/agents')"


def test_a_connection_in_pipeline_mode_is_refused_by_name(postgres):
    with psycopg.connect(postgres.url, **PSYCOPG) as connection:
        with connection.pipeline() as pipe:
            saver = PostgresSaver(connection, pipe)
            with pytest.raises(Conflict, match="pipeline mode"):
                saver.put(CONFIG, empty_checkpoint(), {}, {})
        saver.put(CONFIG, empty_checkpoint(), {}, {})
        assert saver.get_tuple(CONFIG) is not None

    async def run():
        async with await psycopg.AsyncConnection.connect(postgres.url, **PSYCOPG) as connection:
            async with connection.pipeline() as pipe:
                saver = AsyncPostgresSaver(connection, pipe)
                with pytest.raises(Conflict, match="pipeline mode"):
                    await saver.aget_tuple(CONFIG)
            return await saver.aget_tuple(CONFIG)

    assert asyncio.run(run()) is not None


def test_a_pipeline_that_is_only_asked_for_changes_nothing(postgres):
    with PostgresSaver.from_conn_string(postgres.url, pipeline=True) as saver:
        saver.put(CONFIG, empty_checkpoint(), {}, {})
        assert saver.get_tuple(CONFIG) is not None


@pytest.mark.parametrize("package", [langgraph.checkpoint.mysql, langgraph.checkpoint.postgres])
def test_every_public_saver_of_a_server_has_its_name_here(package):
    names = set()
    modules = [package.__name__, *(one.name for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))]
    for module in modules:
        if module.endswith("asyncmy"):  # needs a driver that nothing else here does
            names |= {"AsyncMySaver", "ShallowAsyncMySaver"}
            continue
        public = vars(importlib.import_module(module))
        names |= {
            name
            for name, one in public.items()
            if isinstance(one, type) and issubclass(one, BaseCheckpointSaver) and "Base" not in name
        }
    assert len(names) >= 4
    assert names <= set(ours.__all__)


def test_the_names_of_the_redis_savers_are_here():
    assert {"RedisSaver", "AsyncRedisSaver", "ShallowRedisSaver", "AsyncShallowRedisSaver"} <= set(ours.__all__)


@pytest.mark.parametrize("scheme", ["mysql", "mysql+asyncmy"])
def test_the_saver_of_asyncmy_takes_a_url(mysql, scheme):
    async def run():
        url = mysql.url.replace("mysql://", f"{scheme}://")
        async with AsyncMySaver.from_conn_string(url, table_prefix=mysql.table_prefix) as saver:
            await saver.setup()
            await saver.aput(CONFIG, empty_checkpoint(), {}, {})
            return await saver.aget_tuple(CONFIG)

    assert asyncio.run(run()) is not None


def test_a_connection_of_asyncmy_is_refused_by_name():
    connection = type("Connection", (), {"__module__": "asyncmy.connection"})()
    with pytest.raises(InvalidRequest, match="asyncmy"):
        AsyncMySaver(connection)
