"""`copy`, `export`, `import`, `backup`, `restore` and `open` on the command line."""

import base64
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from house import ROOT, config, grow, picture, put

import threadline
from threadline import KeyRing, Saver, Unavailable


@pytest.fixture
def old(furnished):
    return furnished("sqlite", steps=12)


@pytest.fixture
def shown(connect):
    return lambda path, **options: picture(connect(path, **options))


def keys_file(tmp_path, name="keys", key=bytes(32)):
    path = tmp_path / name
    path.write_text(f"{name}:{base64.b64encode(key).decode()}\n")
    return path, KeyRing({name: key})


def test_copy_reports_and_a_second_run_has_nothing_to_do(old, run, shown, tmp_path):
    out, _ = run("copy", old.url, "--to", tmp_path / "new.db")
    assert "checkpoints" in out
    assert "read back" in out
    assert shown(tmp_path / "new.db") == picture(old)
    told = json.loads(run("copy", old.url, "--to", tmp_path / "new.db", "--json")[0])
    assert told["checkpoints"]["copied"] == 0
    assert told["is_complete"]


def test_copy_into_an_encrypted_store_and_out_of_it_only_when_told(old, run, shown, tmp_path, monkeypatch):
    path, ring = keys_file(tmp_path)
    run("copy", old.url, "--to", tmp_path / "sealed.db", "--to-key-file", path)
    assert shown(tmp_path / "sealed.db", encryption=ring) == picture(old)
    _, said = run("copy", tmp_path / "sealed.db", "--to", tmp_path / "p.db", "--key-file", path, status=2)
    assert "--plain" in said
    run("copy", tmp_path / "sealed.db", "--to", tmp_path / "p.db", "--key-file", path, "--plain")
    assert shown(tmp_path / "p.db") == picture(old)


def test_a_copy_with_the_wrong_keys_changes_nothing_of_the_target(old, run, tmp_path):
    path, ring = keys_file(tmp_path)
    wrong, _ = keys_file(tmp_path, "wrong", b"w" * 32)
    run("copy", old.url, "--to", tmp_path / "sealed.db", "--to-key-file", path, "--thread", "b")
    run("export", "--url", old.url, "-o", tmp_path / "all.tla")
    for command in (["copy", old.url], ["import", tmp_path / "all.tla"]):
        _, said = run(*command, "--to", tmp_path / "sealed.db", "--to-key-file", wrong, status=2)
        assert "encrypted under 'keys', and the keys given are 'wrong'" in said
    path.write_text(f"keys:{base64.b64encode(b'w' * 32).decode()}\n")  # another key of the same id
    _, said = run("copy", old.url, "--to", tmp_path / "sealed.db", "--to-key-file", path, status=1)
    assert "the key 'keys' that was given does not open this store" in said
    assert base64.b64encode(b"w" * 32).decode() not in said
    with threadline.connect(tmp_path / "sealed.db", encryption=ring) as saver:
        known = saver.keys()
    assert [one.id for one in known] == ["keys"]


def test_a_copy_into_a_store_with_a_cold_tier_reads_what_is_cold_there(run, connect, shown, tmp_path, monkeypatch):
    path, ring = keys_file(tmp_path)
    old, new, cold = connect(tmp_path / "long.db"), tmp_path / "sealed.db", f"file://{tmp_path}/cold"
    # Words that do not compress: packs of them are worth moving, and are sent again with the next root.
    words = [random.Random(number).randbytes(150).hex() for number in range(240)]

    def grow(at, first, last):
        for step in range(first, last):
            at = put(old, at, {"messages": words[: step + 1]}, step)
        return at

    at = grow(config("t"), 0, 200)
    with threadline.connect(new, encryption=ring, cold=cold) as target:
        old.copy_to(target)
        assert target.tier(thread_ids=["t"]).chunks
    at = grow(at, 200, 220)
    _, said = run("copy", old.url, "--to", new, "--to-key-file", path, status=1)
    assert "THREADLINE_TO_COLD" in said
    run("copy", old.url, "--to", new, "--to-key-file", path, "--to-cold", cold)
    grow(at, 220, 240)
    run("backup", "-o", tmp_path / "b.tla", "--url", old.url)
    monkeypatch.setenv("THREADLINE_TO_COLD", cold)
    run("restore", tmp_path / "b.tla", "--to", new, "--to-key-file", path)
    assert shown(new, encryption=ring, cold=cold) == picture(old)


def test_copy_of_a_tenant_and_of_named_threads(old, run, shown, tmp_path):
    run("copy", old.url, "--to", tmp_path / "c.db", "--prefix", "org-1/")
    run("copy", old.url, "--to", tmp_path / "c.db", "--thread", "b")
    assert sorted(shown(tmp_path / "c.db")[0]) == ["b", "org-1/c"]
    assert "no thread 'nobody'" in run("copy", old.url, "--to", tmp_path / "c.db", "--thread", "nobody", status=1)[1]


def test_copy_refuses_another_thread_of_the_same_id(old, run, shown, connect, tmp_path):
    with threadline.connect(tmp_path / "new.db") as other:
        put(other, ROOT, {"own": 1}, 0)
    _, said = run("copy", old.url, "--to", tmp_path / "new.db", "--thread", "a", status=1)
    assert "exists in the target" in said
    out, _ = run("copy", old.url, "--to", tmp_path / "new.db", "--thread", "a", "--merge")
    assert "a is a~" in out


def test_export_open_and_import(old, run, shown, tmp_path):
    file = tmp_path / "x.tla"
    run("export", "a", "b", "-o", file, "--url", old.url)
    out, _ = run("open", file)
    assert "a" in out
    assert "13 checkpoints" in out
    assert [one["thread_id"] for one in json.loads(run("open", file, "--json")[0])] == ["a", "b"]
    assert run("log", "a", "--url", f"archive:///{file}")[0] == run("log", "a", "--url", old.url)[0]
    run("import", file, "--to", tmp_path / "new.db")
    whole = picture(old)[0]
    assert shown(tmp_path / "new.db")[0] == {name: whole[name] for name in ("a", "b")}
    assert "exists already" in run("export", "a", "-o", file, "--url", old.url, status=1)[1]
    assert "--to names the store" in run("import", file, status=2)[1]


def test_export_as_json_has_a_line_for_each_checkpoint(old, run, tmp_path):
    out, _ = run("export", "b", "--json", "--url", old.url)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["metadata"]["step"] for line in lines] == [0, 1, 2]
    assert lines[2]["values"]["messages"][0].startswith("0: word 0")
    run("export", "b", "--json", "-o", tmp_path / "b.jsonl", "--url", old.url)
    assert (tmp_path / "b.jsonl").read_text() == out
    assert (tmp_path / "b.jsonl").stat().st_mode & 0o777 == 0o600


def test_export_as_json_without_the_cold_tier_says_what_is_missing(run, connect, tmp_path):
    with connect(tmp_path / "tiered.db", cold=f"file://{tmp_path}/cold") as saver:
        words = [random.Random(number).randbytes(150).hex() for number in range(60)]
        put(saver, config("t"), {"messages": words}, 0)
        saver.tier("0s")
    _, said = run("export", "--json", "-o", tmp_path / "a.jsonl", "--url", tmp_path / "tiered.db", status=1)
    assert "THREADLINE_COLD" in said
    assert "None" not in said
    assert sorted(path.name for path in tmp_path.glob("a.jsonl*")) == []


def test_backup_into_a_folder_adds_to_the_newest_and_restores_to_any_time(old, run, shown, tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    assert "adds to" not in run("backup", "-o", folder, "--url", old.url)[0]
    before = old.get_tuple(config("b")).checkpoint["id"]
    grow(old, config("b"), 3, 2)
    time.sleep(1.1)  # names of backups are whole seconds
    assert "adds to" in run("backup", "-o", folder, "--url", old.url)[0]
    newest = max(folder.iterdir())
    run("restore", newest, "--to", tmp_path / "new.db")
    assert shown(tmp_path / "new.db") == picture(old)
    run("restore", newest, "--to", tmp_path / "then.db", "--until", before)
    with threadline.connect(tmp_path / "then.db") as then:
        assert then.get_tuple(config("b")).checkpoint["id"] == before


def test_backup_into_a_folder_adds_to_the_backup_that_was_made_last(old, run, shown, tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    run("backup", "-o", folder / "zz.tla", "--url", old.url)
    grow(old, config("b"), 3, 1)
    run("backup", "-o", folder / "aa.tla", "--base", folder / "zz.tla", "--url", old.url)
    run("export", "b", "-o", folder / "zzz.tla", "--url", old.url)
    (folder / "zzzz.tla").write_bytes(b"junk")
    (folder / "zzzzz.tla").write_bytes((folder / "aa.tla").read_bytes()[:-1])
    out, said = run("backup", "-o", folder, "--url", old.url)
    assert f"adds to         {folder / 'aa.tla'}" in out
    assert f"{folder / 'zzzz.tla'} is no archive" in said
    assert said.count("passed over") == 2
    [made] = folder.glob("2*.tla")
    run("restore", made, "--to", tmp_path / "new.db")
    assert shown(tmp_path / "new.db") == picture(old)


def test_a_folder_of_exports_gets_a_whole_backup(old, run, shown, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    run("export", "b", "-o", folder / "b.tla", "--url", old.url)
    assert "adds to" not in run("backup", "-o", folder, "--url", old.url)[0]
    (folder / "b.tla").unlink()
    run("restore", next(folder.iterdir()), "--to", tmp_path / "new.db")
    assert shown(tmp_path / "new.db") == picture(old)


def test_restore_of_a_thread_is_what_it_was(old, run):
    run("restore", "org-1/c", "--url", old.url)
    assert [info.status for info in old.threads(prefix="org-1/")] == ["active"]


def test_a_damaged_file_changes_nothing(old, run, tmp_path):
    file = tmp_path / "x.tla"
    run("export", "-o", file, "--url", old.url)
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    _, said = run("import", file, "--to", tmp_path / "new.db", status=1)
    assert "altered" in said
    assert not (tmp_path / "new.db").exists()
    _, said = run("import", tmp_path / "none.tla", "--to", tmp_path / "new.db", status=1)
    assert said


def test_a_way_back_on_the_command_line(run, connect, tmp_path):
    pytest.importorskip("langgraph.checkpoint.sqlite")
    from langgraph.checkpoint.sqlite import SqliteSaver

    saver = connect(tmp_path / "ours.db")
    grow(saver, config("b"), 0, 3)
    out, _ = run("export", "b", "--to-langgraph", f"sqlite:///{tmp_path}/back.db", "--url", tmp_path / "ours.db")
    assert "LangGraph's own tables" in out
    with SqliteSaver.from_conn_string(str(tmp_path / "back.db")) as back:
        found = back.get_tuple(config("b"))
        assert found.checkpoint["channel_values"]["count"] == 2
        assert found.metadata["step"] == 2


def test_what_is_refused_makes_no_target(old, run, tmp_path):
    path, _ = keys_file(tmp_path)
    run("copy", old.url, "--to", tmp_path / "sealed.db", "--to-key-file", path)
    run("backup", "--url", tmp_path / "sealed.db", "--key-file", path, "-o", tmp_path / "all.tla")
    target = tmp_path / "none.db"
    run("copy", old.url, "--to", target, "--thread", "nobody", status=1)
    _, said = run("copy", old.url, "--to", target, "--since", "nonsense", status=2)
    assert "a span such as 7d or a time such as" in said
    _, said = run("restore", tmp_path / "all.tla", "--key-file", path, "--to", target, "--until", "nonsense", status=2)
    assert "the id of a checkpoint, not 'nonsense'" in said
    assert "made by `threadline export`" in run("copy", old.url, "--to", "archive:///new.tla", status=2)[1]
    for command in (["copy", tmp_path / "sealed.db"], ["restore", tmp_path / "all.tla"]):
        assert "--plain" in run(*command, "--key-file", path, "--to", target, status=2)[1]
    assert not list(tmp_path.glob("none.db*"))


def test_what_is_refused_makes_nothing_on_a_server(postgres, old, run, tmp_path):
    path, _ = keys_file(tmp_path)
    run("copy", old.url, "--to", tmp_path / "sealed.db", "--to-key-file", path)
    refused = ["copy", tmp_path / "sealed.db", "--key-file", path, "--to", postgres.url]
    assert "--plain" in run(*refused, status=2)[1]
    with (
        pytest.raises(threadline.InvalidRequest, match="has no Threadline"),
        threadline.connect(postgres.url, setup=False) as target,
    ):
        target.stats()
    run(*refused, "--plain")
    with threadline.connect(postgres.url, setup=False) as target:
        assert picture(target) == picture(old)


def test_a_store_is_not_copied_onto_itself_by_any_name_of_it(old, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to(old.url.removeprefix("sqlite:///"))
    for target in (old.url, tmp_path / "link.db", "link.db"):
        assert "onto itself" in run("copy", old.url, "--to", target, status=2)[1]


def test_import_of_what_is_no_file_of_ours(run, tmp_path):
    assert "no such file" in run("import", tmp_path / "missing.tla", "--to", tmp_path / "x.db", status=1)[1]
    (tmp_path / "no.tla").write_text("junk")
    _, said = run("import", tmp_path / "no.tla", "--to", tmp_path / "x.db", status=2)
    assert "is no export of Threadline, and no database" in said
    assert not (tmp_path / "x.db").exists()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_follow_copies_until_the_switch(old, connect, tmp_path, ending):
    arguments = ["copy", old.url, "--to", str(tmp_path / "new.db"), "--follow", "--every", "0.2s"]
    command = [sys.executable, "-m", "threadline", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        said = process.stderr.readline()
        assert "following" in said
        at = grow(old, config("b"), 3, 5)
        new, until = connect(tmp_path / "new.db"), time.monotonic() + 60
        while (found := new.get_tuple(config("b"))) is None or found.config != at:
            assert time.monotonic() < until
            time.sleep(0.1)
        last = grow(old, config("b"), 8, 1)
        process.send_signal(ending)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, out
    assert new.get_tuple(config("b")).config == last
    assert picture(new) == picture(old)


def test_follow_goes_on_when_a_server_comes_back(old, run, shown, tmp_path, monkeypatch):
    copy_to, passes = Saver.copy_to, []

    def failing(self, other, **options):
        passes.append(options.get("since"))
        if len(passes) == 2:
            raise Unavailable("the store does not answer")
        if len(passes) == 4:
            raise KeyboardInterrupt
        return copy_to(self, other, **options)

    monkeypatch.setattr(Saver, "copy_to", failing)
    _, said = run("copy", old.url, "--to", tmp_path / "new.db", "--follow", "--every", "0.05s")
    assert "the store does not answer; following goes on" in said
    # The pass after the one that failed looks at what that one did not.
    assert passes[1] == passes[2] < passes[3]
    assert passes[4] is None
    assert shown(tmp_path / "new.db") == picture(old)


def test_follow_goes_on_with_the_other_threads_when_one_is_deleted(old, run, connect, tmp_path, monkeypatch):
    copy_to, passes = Saver.copy_to, []

    def watched(self, other, **options):
        passes.append(options["threads"])
        if len(passes) == 2:
            old.delete_thread("b")
        if len(passes) == 4:
            grow(old, config("a-fork"), 5, 2)
            raise KeyboardInterrupt
        return copy_to(self, other, **options)

    monkeypatch.setattr(Saver, "copy_to", watched)
    options = ["--thread", "a-fork", "--thread", "b", "--follow", "--every", "0.05s"]
    _, said = run("copy", old.url, "--to", tmp_path / "new.db", *options)
    assert "no thread 'b'" in said
    assert "the last pass" in said
    assert passes == [["a-fork", "b"], ["a-fork", "b"], *[["a-fork"]] * 3]
    new = connect(tmp_path / "new.db")
    assert new.get_tuple(config("a-fork")).config == old.get_tuple(config("a-fork")).config
    assert new.get_tuple(config("b")) is not None  # as it was when it was last seen
