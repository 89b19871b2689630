"""How often the server is asked: a put is one script, a get one script and one read for each level of the tree."""

import lives


def counted(saver):
    """Notes each way to the server that a saver goes from now on."""
    link, trips = saver._engine.blocking_half().link, []

    def noting(name, call):
        async def noted(*args, **options):
            trips.append(name)
            return await call(*args, **options)

        return noted

    for name in ("call", "calls", "command", "batch"):
        setattr(link, name, noting(name, getattr(link, name)))
    return trips


def test_a_put_is_one_way_to_the_server_and_so_is_a_write(connect):
    saver = connect()
    saver.put(*lives.put_arguments("thread", 0))
    trips = counted(saver)
    for step in range(1, 60):
        saver.put(*lives.put_arguments("thread", step))
        config, writes, *task = lives.write_arguments("thread", step, "task-a")
        saver.put_writes(config, [write for write in writes if write[0] != "__interrupt__"], *task)
    assert trips == ["call"] * 118


def test_a_first_put_is_two_ways_to_a_server(connect, url):
    saver = connect()
    saver.open()
    trips = counted(saver)
    for number in range(3):
        saver.put(*lives.put_arguments(f"thread-{number}", 0))
    # A cluster has the directory, the indexes and the pool in different slots.
    way = ["command", "call", "batch", "call", "call"] if url.startswith("redis+cluster") else ["call", "call"]
    assert trips == way * 3


def test_a_question_is_two_ways_more_so_that_it_is_listed_before_it_is_there(connect):
    saver = connect()
    config = saver.put(*lives.put_arguments("thread", 0))
    trips = counted(saver)
    saver.put_writes(config, [("__interrupt__", "really?")], "task")
    assert trips == ["call", "command", "call"]
    assert [one.value for one in saver.interrupts()] == ["really?"]


def test_a_get_is_one_script_and_one_read_for_each_level(connect):
    saver, other = connect(), connect()
    for step in range(60):
        saver.put(*lives.put_arguments("thread", step))
    assert lives.check(other.get_tuple(lives.config("thread")), "thread") == 59
    other.clear_cache()
    trips = counted(other)
    assert lives.check(other.get_tuple(lives.config("thread")), "thread") == 59
    assert trips[0] == "call"
    assert set(trips[1:]) == {"batch"}
    assert len(trips) <= 4
    trips.clear()
    other.get_tuple(lives.config("thread"))
    assert trips == ["call"]


def test_what_is_stored_takes_less_than_three_times_the_bytes_that_changed(connect):
    saver = connect()
    changed = 0
    for number in range(400):
        message = lives.text("memory", number) * 4  # 1,200 bytes, as in a chat
        changed += len(message)
        messages = [lives.text("memory", at) * 4 for at in range(number + 1)]
        made = {**lives.checkpoint("thread", number), "channel_values": {"messages": messages}}
        made["channel_versions"] = {"messages": number + 1}
        parent = lives.id_of(number - 1) if number else None
        saver.put(lives.config("thread", parent), made, {"source": "loop", "step": number}, made["channel_versions"])
    assert saver.stats().bytes_stored < 3 * changed
