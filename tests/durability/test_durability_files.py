"""A database whose file is moved, deleted or replaced under an open saver: nothing is acknowledged and then lost."""

import asyncio
import os
import shutil
import sqlite3
import threading
import time

import aiosqlite
import lives
import pytest

import threadline
from threadline.langgraph import AsyncSqliteSaver, SqliteSaver


def put(half, saver, step, thread_id="t"):
    return half.call(saver, "put", *lives.put_arguments(thread_id, step))


def newest(half, saver, thread_id="t"):
    found = half.call(saver, "get_tuple", lives.config(thread_id))
    return None if found is None else lives.check(found, thread_id)


def move(database):
    os.rename(database, database.with_name("moved.db"))


def delete(database):
    os.unlink(database)


def delete_all(database):
    for name in database.parent.iterdir():
        name.unlink()


def replace(database):
    other = database.with_name("other.db")
    with threadline.connect(other) as saver:
        saver.put(*lives.put_arguments("other", 0))
    os.replace(other, database)


def move_the_folder(database):
    os.rename(database.parent, database.parent.with_name("elsewhere"))


LOSSES = [move, delete, delete_all, replace, move_the_folder]


@pytest.fixture
def database(tmp_path):
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "threads.db"


@pytest.fixture(params=["path", "url", "uri", "link", "given"])
def opened(request, connect, database):
    """A saver on the file, by one of its names."""
    if request.param == "link":
        link = database.parent.parent / "link.db"
        link.symlink_to(database)
        return connect(link)
    if request.param == "given":
        connection = sqlite3.connect(database, check_same_thread=False)
        return SqliteSaver(connection)
    return connect({"path": database, "url": f"sqlite:///{database}", "uri": f"file:{database}"}[request.param])


@pytest.mark.parametrize("lose", LOSSES)
def test_a_put_into_a_file_that_lost_its_name_is_never_acknowledged(opened, database, half, lose):
    put(half, opened, 0)
    lose(database)
    for step in (1, 1):
        with pytest.raises(threadline.Unavailable, match=r"\.db was moved, deleted or replaced .* new saver"):
            put(half, opened, step)
    assert not half.call(opened, "health").ok


@pytest.mark.parametrize("lose", LOSSES)
def test_a_read_of_a_file_that_lost_its_name_is_refused(opened, database, half, lose):
    put(half, opened, 0)
    assert newest(half, opened) == 0
    lose(database)
    with pytest.raises(threadline.Unavailable, match="moved, deleted or replaced"):
        newest(half, opened)
    with pytest.raises(threadline.Unavailable, match="moved, deleted or replaced"):
        half.listed(opened, None)


@pytest.mark.parametrize("lose", [move, delete, delete_all, replace])
def test_a_new_saver_opens_after_the_file_was_lost_and_the_old_one_disturbs_nothing(connect, database, half, lose):
    old = connect(database)
    put(half, old, 0)
    lose(database)
    with pytest.raises(threadline.Unavailable):
        put(half, old, 1)
    if lose is replace:
        # What belonged to the other file must go before this one is opened: so does every restored backup.
        for end in ("-wal", "-shm"):
            database.with_name(database.name + end).unlink(missing_ok=True)
    new = connect(database)
    put(half, new, 0, "new")
    with pytest.raises(threadline.Unavailable):
        put(half, old, 1)
    half.call(old, "close")
    put(half, new, 1, "new")
    half.call(new, "close")
    assert newest(half, connect(database), "new") == 1
    assert newest(half, connect(database)) is None


def test_a_file_that_was_put_back_has_everything_and_the_saver_that_lost_it_stays_refused(connect, database, half):
    old = connect(database)
    for step in range(5):
        put(half, old, step)
    away = database.with_name("away.db")
    os.rename(database, away)
    with pytest.raises(threadline.Unavailable):
        put(half, old, 5)
    os.rename(away, database)
    with pytest.raises(threadline.Unavailable):
        put(half, old, 5)
    assert newest(half, connect(database)) == 4


def test_a_loss_between_the_work_and_the_commit_is_still_noticed(connect, database, half, monkeypatch):
    from threadline.backends.sqlite import commit as group

    saver = connect(database)
    put(half, saver, 0)

    def losing(put):
        def put_and_lose(*args):
            made = put(*args)
            move(database)
            return made

        return put_and_lose

    for way in ("put_one", "put_together"):
        monkeypatch.setattr(group, way, losing(getattr(group, way)))
    with pytest.raises(threadline.Unavailable, match="moved"):
        put(half, saver, 1)
    os.rename(database.with_name("moved.db"), database)
    assert newest(half, connect(database)) == 0


def test_of_many_puts_at_once_none_is_acknowledged_after_the_loss(connect, database):
    saver = connect(database)
    for number in range(8):
        saver.put(*lives.put_arguments(f"t{number}", 0))
    move(database)

    async def all_at_once():
        puts = [saver.aput(*lives.put_arguments(f"t{number}", 1)) for number in range(8)]
        return await asyncio.gather(*puts, return_exceptions=True)

    assert {type(result) for result in asyncio.run(all_at_once())} == {threadline.Unavailable}
    refused = []

    def one(number):
        try:
            saver.put(*lives.put_arguments(f"t{number}", 1))
        except threadline.Unavailable as error:
            refused.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 8


def test_a_removed_wal_is_noticed_and_what_was_acknowledged_is_saved(connect, database, half):
    saver = connect(database)
    for step in range(5):
        put(half, saver, step)
    assert newest(half, saver) == 4
    database.with_name(database.name + "-wal").unlink()
    with pytest.raises(threadline.Unavailable, match=r"threads\.db-wal was removed .* new saver"):
        put(half, saver, 5)
    with pytest.raises(threadline.Unavailable, match="removed"):
        newest(half, saver)
    again = connect(database)
    assert newest(half, again) == 4
    put(half, again, 5)
    half.call(again, "close")
    assert newest(half, connect(database)) == 5


def test_a_read_notices_a_removed_wal_and_saves_what_was_acknowledged(connect, database, half):
    saver = connect(database)
    for step in range(3):
        put(half, saver, step)
    database.with_name(database.name + "-wal").unlink()
    with pytest.raises(threadline.Unavailable, match="removed"):
        newest(half, saver)
    assert newest(half, connect(database)) == 2


def test_several_savers_on_one_file_all_notice_a_removed_wal(connect, database, half):
    first, second = connect(database), connect(database)
    put(half, first, 0)
    put(half, second, 1)
    database.with_name(database.name + "-wal").unlink()
    for saver in (first, second):
        with pytest.raises(threadline.Unavailable, match="removed"):
            put(half, saver, 2)
    assert newest(half, connect(database)) == 1


def test_a_wal_that_was_lost_with_its_process_leaves_a_file_that_opens(connect, database, half, tmp_path):
    saver = connect(database)
    put(half, saver, 0)
    half.call(saver, "compact")  # everything is in the file itself
    put(half, saver, 1)
    copy = tmp_path / "copy.db"
    shutil.copy(database, copy)
    assert newest(half, connect(copy)) == 0


def test_a_relative_path_names_the_same_file_after_a_change_of_the_working_directory(
    connect, database, half, monkeypatch, tmp_path
):
    monkeypatch.chdir(database.parent)
    for name in ("threads.db", "file:uri.db"):
        monkeypatch.chdir(database.parent)
        saver = connect(name)
        put(half, saver, 0)
        monkeypatch.chdir(tmp_path)
        put(half, saver, 1)
        assert newest(half, saver) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    move(database)
    assert newest(half, saver) == 1, "the other file is where it was"


@pytest.mark.parametrize("where", [":memory:", "sqlite://", "file:of-this-test?mode=memory&cache=shared"])
def test_a_database_in_memory_has_no_file_to_lose(connect, half, where, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    saver = connect(where)
    put(half, saver, 0)
    put(half, saver, 1)
    assert newest(half, saver) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_owner_of_a_given_connection_may_choose_another_journal(database, half):
    connection = sqlite3.connect(database, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    saver = SqliteSaver(connection)
    put(half, saver, 0)
    connection.execute("PRAGMA journal_mode = DELETE")
    put(half, saver, 1)
    assert newest(half, saver) == 1
    connection.close()


@pytest.mark.parametrize("lose", LOSSES)
def test_a_given_aiosqlite_connection_notices_the_loss(database, lose):
    async def scenario():
        async with aiosqlite.connect(database) as connection:
            saver = AsyncSqliteSaver(connection)
            await saver.aput(*lives.put_arguments("t", 0))
            lose(database)
            with pytest.raises(threadline.Unavailable, match="moved, deleted or replaced"):
                await saver.aput(*lives.put_arguments("t", 1))
            with pytest.raises(threadline.Unavailable, match="moved, deleted or replaced"):
                await saver.aget_tuple(lives.config("t"))

    asyncio.run(scenario())


def test_a_saver_that_only_reads_notices_a_replaced_file(connect, database, half):
    writer = connect(database)
    put(half, writer, 0)
    half.call(writer, "close")
    reader = connect(database, read_only=True)
    assert newest(half, reader) == 0
    replace(database)
    with pytest.raises(threadline.Unavailable, match="replaced"):
        newest(half, reader)


def test_a_file_that_was_never_a_store_may_be_exchanged_and_tried_again(connect, database, half):
    database.write_text("not a database, by far" * 100)
    saver = connect(database)
    with pytest.raises(threadline.InvalidRequest):
        put(half, saver, 0)
    os.unlink(database)
    put(half, saver, 0)
    assert newest(half, saver) == 0


def test_neither_side_of_a_fork_makes_a_new_file_where_the_old_one_was_lost(connect, database):
    saver = connect(database)
    saver.put(*lives.put_arguments("t", 0))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    delete_all(database)
    with pytest.raises(threadline.Unavailable, match="deleted"):
        saver.put(*lives.put_arguments("t", 1))
    assert list(database.parent.iterdir()) == []


def test_a_commit_looks_at_the_names_twice_and_no_more(connect, database, half, monkeypatch):
    from threadline.backends.sqlite import file as sqlite_file

    saver = connect(database)
    put(half, saver, 0)
    put(half, saver, 1)
    looks = []
    look = sqlite_file._identity_of
    monkeypatch.setattr(sqlite_file, "_identity_of", lambda name: looks.append(name) or look(name))
    put(half, saver, 2)
    assert looks == [str(database), f"{database}-wal"]


@pytest.fixture
def looks(monkeypatch):
    """The names that are looked at one by one, as they are."""
    from threadline.backends.sqlite import file as sqlite_file

    found, look = [], sqlite_file._identity_of
    monkeypatch.setattr(sqlite_file, "_identity_of", lambda name: found.append(name) or look(name))
    return found


@pytest.fixture
def settled(monkeypatch):
    """Lets a folder count as settled as soon as its time has passed, and not seconds later."""
    from threadline.backends.sqlite import file as sqlite_file

    monkeypatch.setattr(sqlite_file, "_SETTLED_NANOSECONDS", 20_000_000)
    return lambda: time.sleep(0.05)


def test_in_a_folder_that_was_not_changed_a_commit_looks_at_the_folder_alone(connect, database, half, looks, settled):
    saver = connect(database)
    put(half, saver, 0)
    settled()
    put(half, saver, 1)  # looks at the names, and finds that the folder has settled
    looks.clear()
    put(half, saver, 2)
    assert looks == []
    (database.parent / "another file").write_bytes(b"")
    put(half, saver, 3)
    assert looks == [str(database), f"{database}-wal"]


@pytest.mark.parametrize(
    "change", ["moved", "replaced", "replaced as it was", "deleted", "log deleted", "folder moved"]
)
def test_what_happens_in_a_settled_folder_is_noticed(connect, database, half, settled, change):
    saver = connect(database)
    put(half, saver, 0)
    settled()
    put(half, saver, 1)
    put(half, saver, 2)
    if change == "moved":
        database.rename(database.with_name("elsewhere.db"))
    elif change.startswith("replaced"):
        times = os.stat(database.parent)
        other = database.with_name("other.db")
        other.write_bytes(database.read_bytes())
        other.replace(database)
        if change == "replaced as it was":  # as what unpacks an archive does
            os.utime(database.parent, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif change == "deleted":
        database.unlink()
    elif change == "log deleted":
        database.with_name(database.name + "-wal").unlink()
    else:
        database.parent.rename(database.parent.with_name("elsewhere"))
        database.parent.mkdir()
    with pytest.raises(threadline.Unavailable):
        put(half, saver, 3)


def test_a_file_system_that_does_not_keep_the_times_of_folders_is_found_out(
    connect, database, half, settled, monkeypatch
):
    from threadline.backends.sqlite import file as sqlite_file

    monkeypatch.setattr(sqlite_file, "_TRUSTED_SECONDS", 0.0)
    saver = connect(database)
    put(half, saver, 0)
    settled()
    then = sqlite_file._times_of(os.fsencode(database.parent))
    monkeypatch.setattr(sqlite_file, "_times_of", lambda folder: then)
    put(half, saver, 1)
    database.rename(database.with_name("elsewhere.db"))
    with pytest.raises(threadline.Unavailable, match="moved"):
        put(half, saver, 2)


def test_a_name_leads_where_stat_says(tmp_path, monkeypatch):
    from threadline.backends.sqlite import file as sqlite_file

    here = tmp_path / "naïve \udce9.db"
    here.write_bytes(b"")
    link = tmp_path / "link"
    link.symlink_to(here)
    found = os.stat(here)
    for quietly in (sqlite_file._statx, lambda: None):
        monkeypatch.setattr(sqlite_file, "_statx", quietly)
        assert sqlite_file._identity_of(str(here)) == (found.st_dev, found.st_ino)
        assert sqlite_file._identity_of(str(link)) == (found.st_dev, found.st_ino)
        assert sqlite_file._identity_of(str(tmp_path / "nothing")) is None
        assert sqlite_file._identity_of(str(here / "below")) is None


def test_the_times_of_a_folder_are_those_that_stat_has(tmp_path):
    from threadline.backends.sqlite import file as sqlite_file

    here = tmp_path / "naïve \udce9"
    here.mkdir()
    found = os.stat(here)
    times = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
    for look in (sqlite_file._times_of, sqlite_file._times_by_stat):
        assert look(os.fsencode(here)) == times
        assert look(os.fsencode(here / "nothing")) is None


def test_a_moved_file_is_noticed_without_statx(connect, database, half, monkeypatch):
    from threadline.backends.sqlite import file as sqlite_file

    monkeypatch.setattr(sqlite_file, "_statx", lambda: None)
    saver = connect(database)
    put(half, saver, 0)
    database.rename(database.with_name("elsewhere.db"))
    with pytest.raises(threadline.Unavailable, match="moved"):
        put(half, saver, 1)


@pytest.mark.parametrize("lose", [move, delete_all, move_the_folder])
def test_a_cache_whose_file_is_gone_misses_and_fails_nobody(lose, database, half, caplog):
    cache = threadline.Cache(database)
    key = (("nodes",), "k")
    half.call(cache, "set", {key: ("result", None)})
    assert half.call(cache, "get", [key]) == {key: "result"}
    lose(database)
    # It looks from time to time. Until then the entry is still there: it is what the node returned.
    for _ in range(10_000):
        found = half.call(cache, "get", [key])
        if not found:
            break
        assert found == {key: "result"}
        time.sleep(0.001)
    assert found == {}
    half.call(cache, "set", {key: ("another", None)})
    assert half.call(cache, "get", [key]) == {}
    assert "the cache cannot be reached" in caplog.text
    cache.close()


def test_a_store_looks_for_its_file_at_every_read(database):
    with threadline.Store(database) as store:
        store.put(("users",), "ada", {"n": 1})
        assert store.get(("users",), "ada").value == {"n": 1}
        move(database)
        with pytest.raises(threadline.Unavailable, match="moved"):
            store.get(("users",), "ada")


def test_a_store_that_was_closed_reads_nothing(database):
    store, cache = threadline.Store(database), threadline.Cache(database)
    store.put(("users",), "ada", {"n": 1})
    cache.set({(("n",), "k"): (1, None)})
    assert cache.get([(("n",), "k")]) == {(("n",), "k"): 1}
    store.close()
    cache.close()
    with pytest.raises(threadline.errors.Closed):
        store.get(("users",), "ada")
    with pytest.raises(threadline.errors.Closed):
        cache.get([(("n",), "k")])
