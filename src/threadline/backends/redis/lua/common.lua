-- The keys of a pool, arguments one by one, rows and their places.
-- Text is compared byte by byte: Lua compares by the locale of the server.
local POOL, THREADS, CHUNKS, ROWS, ORDER, WRITES, TASKS, HEIRS, LEASES, GATE = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function number(base, name) return tonumber(redis.call('HGET', KEYS[base + POOL], name) or '0') end
local function digits(n) return string.format('%.0f', n) end

-- The fields of a row, each behind its length; and back.
local function fields(value)
  local list, from = {}, 1
  while from <= #value do
    list[#list + 1], from = struct.unpack('>I4c0', value, from)
  end
  return list
end
local function joined(list)
  local parts = {}
  for i = 1, #list do parts[i] = struct.pack('>I4c0', #list[i], list[i]) end
  return table.concat(parts)
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

-- The end of the namespace of a place: a NUL that is not part of the name.
local function namespace_end(place)
  local stop = string.find(place, ':', 1, true)
  repeat
    stop = string.find(place, '\0', stop + 1, true)
  until string.byte(place, stop + 1) ~= 255
  return stop
end
-- The head `serial:namespace NUL` of each namespace of a thread, by jumping from one to the next.
local function namespaces(base, serial)
  local heads, low, high = {}, '[' .. serial .. ':', '(' .. serial .. ':\255'
  while true do
    local found = redis.call('ZRANGEBYLEX', KEYS[base + ORDER], low, high, 'LIMIT', 0, 1)
    if #found == 0 then return heads end
    heads[#heads + 1] = string.sub(found[1], 1, namespace_end(found[1]))
    low = '(' .. heads[#heads] .. '\255'
  end
end
local function newest(base, head)
  return redis.call('ZREVRANGEBYLEX', KEYS[base + ORDER], '(' .. head .. '\255', '[' .. head, 'LIMIT', 0, 1)[1]
end

-- Add the writes under a head to a list: place without the serial, and value, of each.
local function add_writes(list, base, head)
  local cut = string.find(head, ':', 1, true) + 1
  local from, high = '[' .. head, '(' .. head .. '\255'
  while true do
    local tasks = redis.call('ZRANGEBYLEX', KEYS[base + TASKS], from, high, 'LIMIT', 0, 500)
    for i = 1, #tasks do
      list[#list + 1] = string.sub(tasks[i], cut)
      list[#list + 1] = redis.call('HGET', KEYS[base + WRITES], tasks[i])
    end
    if #tasks < 500 then return list end
    from = '(' .. tasks[500]
  end
end
-- A checkpoint, and its writes where they are wanted: place without the serial, and value, of each.
local function shown(base, serial, place, with_writes)
  local value = redis.call('HGET', KEYS[base + ROWS], place)
  if not value then return nil end
  local list = {string.sub(place, #serial + 2), value}
  if not with_writes then return list end
  local stop = namespace_end(place)
  local id = string.gsub(string.sub(place, stop + 1), '%z', '\0\255')
  return add_writes(list, base, string.sub(place, 1, stop) .. id .. '\0')
end
