"""Scripts: each file says its purpose and what it uses, is used itself, and is one that a server takes."""

import re
from importlib.resources import files

import pytest

import redis
from threadline.backends.redis.wire import script

LUA = files("threadline.backends.redis").joinpath("lua")
NAMES = sorted(entry.name.removesuffix(".lua") for entry in LUA.iterdir())
TEXTS = {name: LUA.joinpath(f"{name}.lua").read_text() for name in NAMES}
USES = {name: re.findall(r"\w+", text.splitlines()[0].partition("-- uses: ")[2]) for name, text in TEXTS.items()}
SHARED = {used for uses in USES.values() for used in uses}
PYTHON = "".join(
    entry.read_text() for entry in files("threadline.backends.redis").iterdir() if entry.name.endswith(".py")
)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_its_purpose_and_is_used(name):
    lines = [line for line in TEXTS[name].splitlines() if not line.startswith("-- uses: ")]
    assert re.fullmatch(r"-- .{10,}", lines[0])
    assert name in SHARED or f'"{name}"' in PYTHON
    assert all(len(line) <= 120 for line in lines)
    assert "-- uses: " not in "".join(lines)


@pytest.mark.parametrize("name", sorted(set(NAMES) - SHARED))
def test_a_server_takes_every_script_under_its_digest(name, redis_url):
    client = redis.Redis.from_url(redis_url)
    assert client.script_load(script(name).text) == script(name).sha
    client.close()
