-- uses: common, lineage, touch
-- Changes of one or several pools: all of them are checked, then all are made, so a refusal changes nothing.
-- A full server refuses the first command that takes room, if nothing was changed before: so this begins with one.
local ttl, count, meta = tonumber(take()), tonumber(take()), KEYS[tonumber(take())]
local changes = {}
for c = 1, count do
  local h = fields(take())
  local one = {
    base = (tonumber(h[1]) - 1) * 10, pool = h[2], thread = h[3], ticket = tonumber(h[4]), before = h[5],
    carried = h[6], now = h[7], epoch = h[8], continues = h[9], begins = h[10] == '1', joins = h[11],
    forked = h[12], created = h[13], head = h[14], newest = h[15], lease = h[16],
  }
  local function after(position, field, words) return position + words * tonumber(h[field]) end
  one.chunks = at
  one.moved = after(one.chunks, 17, 2)
  one.rows = after(one.moved, 18, 2)
  one.writes = after(one.rows, 19, 2)
  one.stop = after(one.writes, 20, 3)
  one.firsts = after(one.stop, 21, 2)
  at = after(one.firsts, 22, 2)
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
  return row, true
end

local answer = {'ok'}
for c = 1, count do
  local one = changes[c]
  local row, begins = opened(one)
  local head = row[1] .. ':'
  for i = one.chunks + 1, one.moved, 2 do redis.call('HSETNX', KEYS[one.base + CHUNKS], ARGV[i], ARGV[i + 1]) end
  for i = one.moved + 1, one.rows, 2 do redis.call('HSET', KEYS[one.base + CHUNKS], ARGV[i], ARGV[i + 1]) end
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
  -- What only moves chunks is upkeep, and no use of the thread.
  if begins or one.stop > one.rows or one.last > one.firsts then touch(one.base, ttl) end
  answer[c + 1] = redis.call('HGET', KEYS[one.base + POOL], 'epoch')
end
return answer
