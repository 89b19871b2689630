"""Every script that changes something. Each checks first and changes then, so that a refusal changes nothing.

A full server refuses the first command of a script that takes room, if nothing was changed before it. So what
adds begins with such a command, and what deletes begins by deleting: a full store can still be emptied.
"""

from __future__ import annotations

from .heirs import HEIRS
from .scripts import COMMON, script

__all__ = [
    "APPLY",
    "COLLECT",
    "CREATE",
    "LEAVE",
    "REMOVE_CHECKPOINTS",
    "REMOVE_THREAD",
    "REWRAP",
    "SHUT",
    "SWAP_FIELD",
    "SWAP_KEY",
    "SWAP_LEASE",
    "SWAP_THREAD",
    "TICKET",
]

_TOUCH = r"""
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Let all of a pool live for `ttl` more milliseconds, and not shorter than it would; 0 is for ever.
local function touch(base, ttl, until_ms)
  local ends = redis.call('HGET', KEYS[base + POOL], 'ends')
  if ttl == 0 then
    if ends then
      redis.call('HDEL', KEYS[base + POOL], 'ends')
      for i = POOL, LEASES do redis.call('PERSIST', KEYS[base + i]) end
    end
    return
  end
  local latest = math.max(tonumber(ends or '0'), now_ms + ttl, until_ms or 0)
  redis.call('HSET', KEYS[base + POOL], 'ends', digits(latest))
  for i = POOL, LEASES do redis.call('PEXPIREAT', KEYS[base + i], digits(latest)) end
end
"""

# Changes of one or several pools: all of them are checked, then all are made.
APPLY = script(
    COMMON,
    HEIRS,
    _TOUCH,
    r"""
local ttl, count, meta = tonumber(take()), tonumber(take()), KEYS[tonumber(take())]
local changes = {}
for c = 1, count do
  local one = {
    base = (tonumber(take()) - 1) * 10, pool = take(), thread = take(), ticket = tonumber(take()), before = take(),
    carried = take(), now = take(), epoch = take(), continues = take(), begins = take() == '1', joins = take(),
    forked = take(), created = take(), head = take(), newest = take(), lease = take(),
  }
  local counts = {tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take()), tonumber(take())}
  one.chunks, one.rows, one.writes = at, at + 2 * counts[1], at + 2 * counts[1] + 2 * counts[2]
  one.stop = one.writes + 3 * counts[3]
  one.firsts = one.stop + 2 * counts[4]
  at = one.firsts + 2 * counts[5]
  one.last = at
  changes[c] = one
end

local function within(one, limit)  -- whether the change continues something that is not after `limit`
  return one.continues ~= '' and not before(string.sub(limit, 2), string.sub(one.continues, 2))
end
local function brings(one, place)
  for i = one.rows + 1, one.writes, 2 do
    if ARGV[i] == place then return true end
  end
  return false
end
local function has(one, serial)
  for _, head in ipairs(namespaces(one.base, serial)) do
    local place = head .. string.sub(one.continues, 2)
    if redis.call('HEXISTS', KEYS[one.base + ROWS], place) == 1 then return true end
  end
  return false
end

-- The field of a row at a position, without looking at the others.
local function nth(value, position)
  local from = 1
  for _ = 2, position do from = from + 4 + struct.unpack('>I4', value, from) end
  local field = struct.unpack('>I4c0', value, from)
  return field
end
-- Whether the rows by which the writer knows of chunks are there, as they were put.
local function has_all(one, serial)
  for i = one.stop + 1, one.firsts, 2 do
    local value = redis.call('HGET', KEYS[one.base + ROWS], serial .. ':' .. ARGV[i])
    if not value or nth(value, 8) ~= ARGV[i + 1] then return false end
  end
  return true
end

-- Why a change is refused, before anything is changed; nil when it is not.
local function refusal(one, c)
  if redis.call('EXISTS', KEYS[one.base + GATE]) == 1 then return {'busy', c} end
  local row, raw = row_of(one.base, one.thread)
  local alive = lives(row)
  if not alive and (one.ticket == 0 or (row and tonumber(row[1]) >= one.ticket)) then return {'again', c, raw} end
  local epoch = redis.call('HGET', KEYS[one.base + POOL], 'epoch') or '0'
  if alive then
    if row[2] == 'archived' then return {'closed', c, epoch, raw} end
    local is_own = row[4] == one.forked and row[5] == one.created
    if one.joins ~= '' and not is_own then return {'closed', c, epoch, raw} end
  else
    if meta and redis.call('HEXISTS', meta, 'format') == 0 then return {'unformatted', c} end
    if one.before == '' and row then one.before = row[3] end
    if one.before ~= '' and one.continues ~= '' and (not one.begins or within(one, one.before)) then
      return {'deleted', c, one.before}
    end
  end
  if one.lease ~= '' then
    local record = redis.call('HGET', KEYS[one.base + LEASES], one.thread) or string.sub(one.carried, 2)
    local token = string.sub(one.lease, 2)
    if string.sub(record, 1, #token) ~= token then return {'lease', c} end
  end
  if one.head ~= '' then
    local head, found = string.sub(one.head, 2), ''
    if alive then
      local place = newest(one.base, row[1] .. ':' .. head)
      if place then found = '=' .. string.sub(place, #row[1] + #head + 2) end
    end
    if found ~= one.newest and not brings(one, head .. string.sub(found, 2)) then return {'head', c, found} end
  end
  if alive then
    if row[3] ~= '' and within(one, row[3]) and not has(one, row[1]) then return {'parent', c} end
    for i = one.firsts + 1, one.last, 2 do
      local value = redis.call('HGET', KEYS[one.base + WRITES], row[1] .. ':' .. ARGV[i])
      if value and value ~= ARGV[i + 1] then return {'first', c, digits((i - one.firsts - 1) / 2)} end
    end
  elseif one.joins ~= '' then
    if not lives((row_of(one.base, string.sub(one.joins, 2)))) then return {'unjoined', c} end
  elseif one.epoch ~= '' then
    return {'stale', '0', '0'}
  end
  if one.epoch ~= '' and (one.epoch ~= one.pool .. ':' .. epoch or (alive and not has_all(one, row[1]))) then
    return {'stale', one.pool, epoch}
  end
  return nil
end

for c = 1, count do
  local refused = refusal(changes[c], c)
  if refused then return refused end
end

local function opened(one)
  local row = row_of(one.base, one.thread)
  if lives(row) then
    if tonumber(one.now) - tonumber(row[6]) > 60 then
      row[6] = one.now
      redis.call('HSET', KEYS[one.base + THREADS], one.thread, joined(row))
    end
    return row
  end
  row = {digits(one.ticket), 'active', one.before, one.forked, one.created, one.now, '', '[]', ''}
  redis.call('HSET', KEYS[one.base + THREADS], one.thread, joined(row))
  redis.call('HINCRBY', KEYS[one.base + POOL], 'living', 1)
  -- A pool that expired may come back under its number; what was known of it must not seem known.
  redis.call('HSETNX', KEYS[one.base + POOL], 'epoch', digits(now_ms))
  if one.carried ~= '' then redis.call('HSETNX', KEYS[one.base + LEASES], one.thread, string.sub(one.carried, 2)) end
  return row
end

local answer = {'ok'}
for c = 1, count do
  local one = changes[c]
  local row = opened(one)
  local head = row[1] .. ':'
  for i = one.chunks + 1, one.rows, 2 do redis.call('HSETNX', KEYS[one.base + CHUNKS], ARGV[i], ARGV[i + 1]) end
  -- The order before what it orders: were a command refused in between, nothing is there that cannot be collected.
  for i = one.rows + 1, one.writes, 2 do redis.call('ZADD', KEYS[one.base + ORDER], 0, head .. ARGV[i]) end
  for i = one.rows + 1, one.writes, 2 do
    local entry = heir(head .. ARGV[i], ARGV[i + 1])
    if entry then redis.call('ZADD', KEYS[one.base + HEIRS], 0, entry) end
  end
  for i = one.writes + 1, one.stop, 3 do redis.call('ZADD', KEYS[one.base + TASKS], 0, head .. ARGV[i]) end
  for i = one.writes + 1, one.stop, 3 do
    local verb = ARGV[i + 1] == '1' and 'HSET' or 'HSETNX'
    redis.call(verb, KEYS[one.base + WRITES], head .. ARGV[i], ARGV[i + 2])
  end
  for i = one.firsts + 1, one.last, 2 do
    redis.call('ZADD', KEYS[one.base + TASKS], 0, head .. ARGV[i])
    redis.call('HSET', KEYS[one.base + WRITES], head .. ARGV[i], ARGV[i + 1])
  end
  for i = one.rows + 1, one.writes, 2 do
    redis.call('HSET', KEYS[one.base + ROWS], head .. ARGV[i], ARGV[i + 1])
  end
  redis.call('HINCRBY', KEYS[one.base + POOL], 'version', 1)
  touch(one.base, ttl)
  answer[c + 1] = redis.call('HGET', KEYS[one.base + POOL], 'epoch')
end
return answer
""",
)

# Let nobody begin a thread here under this ticket or an earlier one, because it moves to another pool; unless it
# lives here. Gives its last deletion and its lease. May be done twice. A pool that nobody is left in expires.
LEAVE = script(
    COMMON,
    _TOUCH,
    r"""
local thread, ticket, only_absent = take(), tonumber(take()), take() == '1'
local row = row_of(0, thread)
if lives(row) then return {'alive'} end
local lease = redis.call('HGET', KEYS[LEASES], thread)
if only_absent and (lease or (row and row[2] ~= 'moved')) then return {'alive'} end
row = row or {'0', 'moved', '', '', '0.0', '0.0', '', '[]', ''}
row[1], row[2] = digits(math.max(tonumber(row[1]), ticket)), 'moved'
redis.call('HSET', KEYS[THREADS], thread, joined(row))
if number(0, 'living') <= 0 then
  local rows, is_left = redis.call('HVALS', KEYS[THREADS]), true
  for i = 1, #rows do is_left = is_left and fields(rows[i])[2] == 'moved' end
  -- An hour is longer than any writer can be on its way that still believes in the old place.
  if is_left then
    for i = POOL, LEASES do redis.call('PEXPIRE', KEYS[i], 3600000) end
  end
end
return {'left', row[3], lease}
""",
)

_DROP = r"""
-- Delete the rows under a head from an index and, where it has one, its hash.
local function drop(held, index, head)
  while true do
    local places = under(KEYS[index], head, 500)
    for i = 1, #places do
      if held then redis.call('HDEL', KEYS[held], places[i]) end
      redis.call('ZREM', KEYS[index], places[i])
    end
    if #places < 500 then return end
  end
end
"""

# Delete a thread's rows and leave a tombstone; the last thread of a pool takes the chunks along.
REMOVE_THREAD = script(
    COMMON,
    _DROP,
    r"""
local thread, until_id, now = take(), take(), take()
local row = row_of(0, thread)
if not lives(row) then return false end
local living = number(0, 'living') - 1
if living <= 0 then
  for _, i in ipairs({CHUNKS, ROWS, ORDER, WRITES, TASKS, HEIRS}) do redis.call('UNLINK', KEYS[i]) end
  redis.call('HINCRBY', KEYS[POOL], 'epoch', 1)
else
  redis.call('HDEL', KEYS[WRITES], '')
  drop(ROWS, ORDER, row[1] .. ':')
  drop(WRITES, TASKS, row[1] .. ':')
  drop(nil, HEIRS, row[1] .. ':')
end
redis.call('HINCRBY', KEYS[POOL], 'living', -1)
row[2], row[3], row[6] = 'deleted', until_id, now
redis.call('HSET', KEYS[THREADS], thread, joined(row))
return {row[1], living}
""",
)

# Delete checkpoints with their writes, and of others only the writes. Nothing goes, and -1 is the answer, if one of
# those that are looked at has a child beside those that were seen.
REMOVE_CHECKPOINTS = script(
    COMMON,
    HEIRS,
    _DROP,
    r"""
local row = row_of(0, take())
if not lives(row) then return 0 end
local head, removed = row[1] .. ':', 0
local looked, seen = {}, {}
for i = 1, tonumber(take()) do looked[i] = head .. take() end
for i = 1, tonumber(take()) do seen[head .. take()] = true end
for i = 1, #looked do
  for _, place in ipairs(children(0, looked[i])) do
    if not seen[place] then return -1 end
  end
end
for i = 1, tonumber(take()) do
  local place = head .. take()
  local value = redis.call('HGET', KEYS[ROWS], place)
  if value then
    removed = removed + redis.call('HDEL', KEYS[ROWS], place)
    local entry = heir(place, value)
    if entry then redis.call('ZREM', KEYS[HEIRS], entry) end
  end
  redis.call('ZREM', KEYS[ORDER], place)
end
while at < #ARGV do drop(WRITES, TASKS, head .. take()) end
return removed
""",
)

# Delete chunks if no change was made since the marking began, and open the gate again.
COLLECT = script(
    COMMON,
    r"""
local version = take()
if (redis.call('HGET', KEYS[POOL], 'version') or '0') ~= version then return 0 end
redis.call('DEL', KEYS[GATE])
while at < #ARGV do redis.call('HDEL', KEYS[CHUNKS], take()) end
redis.call('HINCRBY', KEYS[POOL], 'epoch', 1)
return 1
""",
)

# Keep writers out of a pool for some milliseconds; gives the version it has.
SHUT = script(
    COMMON,
    r"""
local patience = tonumber(take())
if patience > 0 then redis.call('SET', KEYS[GATE], '1', 'PX', patience) end
return redis.call('HGET', KEYS[POOL], 'version') or '0'
""",
)

# Replace what people say of a thread if it is still the same.
SWAP_THREAD = script(
    COMMON,
    _TOUCH,
    r"""
local thread, ttl, until_ms = take(), tonumber(take()), tonumber(take())
local row = row_of(0, thread)
if not row or row[2] == 'moved' then return 0 end
local is_same = true
for _, i in ipairs({1, 2, 7, 8, 9}) do
  if row[i] ~= take() then is_same = false end
end
local wanted, is_done = {}, true
for _, i in ipairs({2, 7, 8, 9}) do
  wanted[i] = take()
  if row[i] ~= wanted[i] then is_done = false end
end
-- What is already as it should become: this very swap was made before, and its answer lost.
if is_done then return 1 end
if not is_same then return 0 end
for _, i in ipairs({2, 7, 8, 9}) do row[i] = wanted[i] end
redis.call('HSET', KEYS[THREADS], thread, joined(row))
if ttl > 0 then touch(0, ttl, until_ms) end
return 1
""",
)

# Replace the record of a lease if it is still the same, unless the thread has moved to another pool.
SWAP_LEASE = script(
    COMMON,
    _TOUCH,
    r"""
local thread, ttl, was, becomes = take(), tonumber(take()), take(), take()
local row = row_of(0, thread)
if row and row[2] == 'moved' then return -1 end
local record = redis.call('HGET', KEYS[LEASES], thread)
record = record and '=' .. record or ''
if record ~= was and record ~= becomes then return 0 end
if becomes == '' then
  redis.call('HDEL', KEYS[LEASES], thread)
else
  redis.call('HSET', KEYS[LEASES], thread, string.sub(becomes, 2))
  if ttl > 0 or not row then touch(0, ttl) end
end
return 1
""",
)

# New bytes for chunks, checkpoints and writes, each only if it is still what it was.
REWRAP = script(
    COMMON,
    r"""
local thread = take()
local head = ''
if thread ~= '' then
  local row = row_of(0, string.sub(thread, 2))
  if not lives(row) then return 0 end
  head = row[1] .. ':'
end
local changed = 0
while at < #ARGV do
  local key, field, old, new = KEYS[tonumber(take())], head .. take(), take(), take()
  if redis.call('HGET', key, field) == old then
    redis.call('HSET', key, field, new)
    changed = changed + 1
  end
end
return changed
""",
)

# Replace the value of a key if it is still the same; nothing stands for no key.
SWAP_KEY = script(
    r"""
local found = redis.call('GET', KEYS[1])
found = found and '=' .. found or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], string.sub(ARGV[2], 2)) end
return 1
""",
)

# The same for a field of a hash.
SWAP_FIELD = script(
    r"""
if redis.call('HEXISTS', KEYS[1], 'format') == 0 then return -1 end
local found = redis.call('HGET', KEYS[1], ARGV[1])
found = found and '=' .. found or ''
if found ~= ARGV[2] and found ~= ARGV[3] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.sub(ARGV[3], 2))
end
return 1
""",
)

# The records of a new store, all at once.
CREATE = script(
    r"""
if redis.call('HEXISTS', KEYS[1], 'format') == 1 then return 0 end
redis.call('HSETNX', KEYS[1], 'serial', ARGV[2])
return redis.call('HSET', KEYS[1], 'format', ARGV[1])
""",
)

# The next number for a pool or thread; nothing in a store without a format, which lost everything.
TICKET = script(
    r"""
if redis.call('HEXISTS', KEYS[1], 'format') == 0 then return false end
return redis.call('HINCRBY', KEYS[1], 'serial', 1)
""",
)
