"""Every script that reads, and what scripts share. All values are bound: KEYS are those of layout.py, in order.

Text is compared byte by byte here: Lua compares by the locale of the server. Arguments are taken one by one: Lua
cannot spread a long list over a call. A script ends within a batch; large pools are read page by page.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

__all__ = [
    "CHAIN",
    "CHUNK_HEADS",
    "COMMON",
    "FIND",
    "MISSING",
    "PAGE",
    "POOL_PLACES",
    "ROWS",
    "ROW_HEADS",
    "Script",
    "THREAD",
    "THREAD_WRITES",
    "WRITE_HEADS",
]


class Script(NamedTuple):
    """A script and the digest under which a server knows it."""

    text: str
    sha: str


def script(*parts: str) -> Script:
    text = "\n".join(parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


COMMON = r"""
local POOL, THREADS, CHUNKS, ROWS, ORDER, WRITES, TASKS, HEIRS, LEASES, GATE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function number(base, name) return tonumber(redis.call('HGET', KEYS[base + POOL], name) or '0') end
local function digits(n) return string.format('%.0f', n) end

-- The fields of a row, each behind its length; and back.
local function fields(value)
  local list, from = {}, 1
  while from <= #value do
    local field
    field, from = struct.unpack('>I4c0', value, from)
    list[#list + 1] = field
  end
  return list
end
local function joined(list)
  local parts = {}
  for i = 1, #list do parts[i] = struct.pack('>I4c0', #list[i], list[i]) end
  return table.concat(parts)
end
local function first(value)
  local field = struct.unpack('>I4c0', value, 1)
  return field
end

-- Whether one text comes before another, by their bytes.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function row_of(base, thread)
  local raw = redis.call('HGET', KEYS[base + THREADS], thread)
  if not raw then return nil, nil end
  return fields(raw), raw
end
local function lives(row) return row and row[2] ~= 'deleted' and row[2] ~= 'moved' end

-- Members of a sorted set that begin with a head, at most `most` of them.
local function under(key, head, most)
  return redis.call('ZRANGEBYLEX', key, '[' .. head, '(' .. head .. '\255', 'LIMIT', 0, most)
end
-- The head `serial:namespace NUL` of each namespace of a thread, by jumping from one to the next.
local function namespaces(base, serial)
  local heads, head = {}, serial .. ':'
  local low, high = '[' .. head, '(' .. head .. '\255'
  while true do
    local found = redis.call('ZRANGEBYLEX', KEYS[base + ORDER], low, high, 'LIMIT', 0, 1)
    if #found == 0 then return heads end
    local stop = #head + 1
    while true do
      stop = string.find(found[1], '\0', stop, true)
      if string.byte(found[1], stop + 1) ~= 255 then break end
      stop = stop + 2
    end
    heads[#heads + 1] = string.sub(found[1], 1, stop)
    low = '(' .. heads[#heads] .. '\255'
  end
end
local function newest(base, head)
  return redis.call('ZREVRANGEBYLEX', KEYS[base + ORDER], '(' .. head .. '\255', '[' .. head, 'LIMIT', 0, 1)[1]
end
-- A checkpoint with its writes: place and value, and both of each write; places without the serial.
local function shown(base, serial, place, with_writes)
  local cut = #serial + 2
  local value = redis.call('HGET', KEYS[base + ROWS], place)
  if not value then return nil end
  local list = {string.sub(place, cut), value}
  if with_writes then
    local stop = #serial + 1
    repeat
      stop = string.find(place, '\0', stop + 1, true)
    until string.byte(place, stop + 1) ~= 255
    local id = string.gsub(string.sub(place, stop + 1), '%z', '\0\255')
    local head = string.sub(place, 1, stop) .. id .. '\0'
    local from, high = '[' .. head, '(' .. head .. '\255'
    while true do
      local tasks = redis.call('ZRANGEBYLEX', KEYS[base + TASKS], from, high, 'LIMIT', 0, 500)
      for i = 1, #tasks do
        list[#list + 1] = string.sub(tasks[i], cut)
        list[#list + 1] = redis.call('HGET', KEYS[base + WRITES], tasks[i])
      end
      if #tasks < 500 then break end
      from = '(' .. tasks[500]
    end
  end
  return list
end
"""

# A thread's row, the pool's epoch, and whether there is a lease: whatever state the thread is in.
THREAD = script(
    COMMON,
    r"""
local thread = take()
local raw = redis.call('HGET', KEYS[THREADS], thread)
return {raw, redis.call('HGET', KEYS[POOL], 'epoch'), redis.call('HGET', KEYS[LEASES], thread)}
""",
)

# One checkpoint, or the newest of its namespace, with its writes; nothing for a thread that is not here.
FIND = script(
    COMMON,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local head = row[1] .. ':' .. take()
local id, with_writes = take(), take() == '1'
local place
if id == '' then place = newest(0, head) else place = head .. string.sub(id, 2) end
return {digits(number(0, 'epoch')), place and shown(0, row[1], place, with_writes) or nil}
""",
)

# A checkpoint and its ancestors with their writes, nearest first.
CHAIN = script(
    COMMON,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local head, id, most = row[1] .. ':' .. take(), take(), tonumber(take())
local found = {digits(number(0, 'epoch'))}
while id ~= '' and #found <= most do
  local one = shown(0, row[1], head .. string.sub(id, 2), true)
  if not one then break end
  found[#found + 1] = one
  id = fields(one[2])[2]
end
return found
""",
)

# What PAGE and POOL_PLACES look for: bounds, and which runs.
_WANTED = r"""
local namespace, exact, upper, last, floor = take(), take(), take(), take(), take()
local most, runs = tonumber(take()), nil
local count = tonumber(take())
if count >= 0 then
  runs = {}
  for i = 1, count do runs['=' .. take()] = true end
end

-- Up to `most` places of one namespace, newest first, within the bounds.
local function newest_places(head)
  local list = {}
  if exact ~= '' then
    local place = head .. string.sub(exact, 2)
    local id = string.sub(exact, 2)
    if upper ~= '' and not before(id, string.sub(upper, 2)) then return list end
    if last ~= '' and before(string.sub(last, 2), id) then return list end
    if not redis.call('ZSCORE', KEYS[ORDER], place) then return list end
    if runs and not runs[fields(redis.call('HGET', KEYS[ROWS], place))[3]] then return list end
    return {place}
  end
  local high = '(' .. head .. '\255'
  if last ~= '' then high = '[' .. head .. string.sub(last, 2) end
  if upper ~= '' and (last == '' or before(string.sub(upper, 2), string.sub(last, 2) .. '\0')) then
    high = '(' .. head .. string.sub(upper, 2)
  end
  local low = '[' .. head .. string.sub(floor, 2)
  while true do
    local found = redis.call('ZREVRANGEBYLEX', KEYS[ORDER], high, low, 'LIMIT', 0, most)
    for i = 1, #found do
      if not runs or runs[fields(redis.call('HGET', KEYS[ROWS], found[i]))[3]] then list[#list + 1] = found[i] end
      if #list == most then return list end
    end
    if #found < most then return list end
    high = '(' .. found[#found]
  end
end
"""

# The next checkpoints of one thread, with or without their writes. `most` is one more than a page, since the
# first place may be the last one of the page before.
PAGE = script(
    COMMON,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local with_writes, after, limit = take() == '1', take(), tonumber(take())
""",
    _WANTED,
    r"""
local heads = namespace == '' and namespaces(0, row[1]) or {row[1] .. ':' .. string.sub(namespace, 2)}
local list = {}
for _, head in ipairs(heads) do
  local spoken = string.sub(head, #row[1] + 2)
  for _, place in ipairs(newest_places(head)) do
    local id = string.sub(place, #head + 1)
    -- Of the id that ended the page before, only the namespaces that follow.
    if after == '' or id ~= string.sub(last, 2) or before(string.sub(after, 2), spoken) then
      list[#list + 1] = {place, id, spoken}
    end
  end
end
if #heads > 1 then
  table.sort(list, function(a, b)
    if a[2] == b[2] then return before(a[3], b[3]) end
    return before(b[2], a[2])
  end)
end
local found = {digits(number(0, 'epoch'))}
for i = 1, math.min(limit, #list) do found[i + 1] = shown(0, row[1], list[i][1], with_writes) end
return found
""",
)

# The places of the newest checkpoints of every thread of a pool: thread and place, in no order.
POOL_PLACES = script(
    COMMON,
    _WANTED,
    r"""
local found = {}
local rows = redis.call('HGETALL', KEYS[THREADS])
for i = 1, #rows, 2 do
  local row = fields(rows[i + 1])
  if lives(row) then
    local heads = namespace == '' and namespaces(0, row[1]) or {row[1] .. ':' .. string.sub(namespace, 2)}
    for _, head in ipairs(heads) do
      for _, place in ipairs(newest_places(head)) do
        found[#found + 1] = rows[i]
        found[#found + 1] = string.sub(place, #row[1] + 2)
      end
    end
  end
end
return found
""",
)

# Some checkpoints of a thread by their places, with or without their writes.
ROWS = script(
    COMMON,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local with_writes = take() == '1'
local found = {digits(number(0, 'epoch'))}
for _ = 1, tonumber(take()) do
  local one = shown(0, row[1], row[1] .. ':' .. take(), with_writes)
  if one then found[#found + 1] = one end
end
return found
""",
)

# All writes of a thread.
THREAD_WRITES = script(
    COMMON,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local found, head = {}, row[1] .. ':'
local low = '[' .. head
while true do
  local tasks = redis.call('ZRANGEBYLEX', KEYS[TASKS], low, '(' .. head .. '\255', 'LIMIT', 0, 500)
  for i = 1, #tasks do
    found[#found + 1] = string.sub(tasks[i], #head + 1)
    found[#found + 1] = redis.call('HGET', KEYS[WRITES], tasks[i])
  end
  if #tasks < 500 then return found end
  low = '(' .. tasks[500]
end
""",
)

# Which of these chunks are not there.
MISSING = script(
    COMMON,
    r"""
local absent = {}
for i = 1, #ARGV do
  if redis.call('HEXISTS', KEYS[CHUNKS], ARGV[i]) == 0 then absent[#absent + 1] = ARGV[i] end
end
return absent
""",
)

# Links, form and size of these chunks, without their bytes.
CHUNK_HEADS = script(
    COMMON,
    r"""
local found = {}
for i = 1, #ARGV do
  local value = redis.call('HGET', KEYS[CHUNKS], ARGV[i])
  if value then
    local links, from = struct.unpack('>I4c0', value, 1)
    local form = struct.unpack('>I4', value, from)
    found[#found + 1] = {ARGV[i], links, form, #value - #links - 8}
  end
end
return found
""",
)

_HEADS = r"""
local low, most = take(), tonumber(take())
local places = redis.call('ZRANGEBYLEX', KEYS[INDEX], low == '' and '-' or '(' .. low, '+', 'LIMIT', 0, most)
local found = {}
for i = 1, #places do
  local row = fields(redis.call('HGET', KEYS[HELD], places[i]) or '')
  if #row > 0 then found[#found + 1] = ABOUT(row, places[i]) end
end
return {places[#places] or '', #places, found}
"""

# A page of a pool's checkpoints: serial, links, forms, creation, and how many bytes the row holds.
ROW_HEADS = script(
    COMMON,
    r"""
local INDEX, HELD = ORDER, ROWS
local function ABOUT(row, place)
  return {string.match(place, '^%d+'), row[1], row[4], row[5], row[8], #row[10] + #row[11]}
end
""",
    _HEADS,
)

# The same for its writes: links, form, bytes, serial.
WRITE_HEADS = script(
    COMMON,
    r"""
local INDEX, HELD = TASKS, WRITES
local function ABOUT(row, place) return {row[1], row[2], #row[5], string.match(place, '^%d+')} end
""",
    _HEADS,
)
