-- Put and delete records of any spaces: all or, where a condition does not hold, none. Gives the first refused, or -1;
-- nothing in a store without a format, which lost everything. Of each change: number of the space, name, expected
-- version ('' for any), for a put the first version ('0' deletes), time of creation, time of expiry ('' for none), and
-- the rest of the record.
if redis.call('EXISTS', KEYS[#KEYS]) == 0 then return false end
local made, after = {}, {}
for position = 0, #ARGV / 7 - 1 do
  local at = position * 7
  local space, name, expected = tonumber(ARGV[at + 1]) * 3, ARGV[at + 2], ARGV[at + 3]
  local is_put, first, rest = ARGV[at + 4] ~= '0', tonumber(ARGV[at + 4]), ARGV[at + 7]
  local place = ARGV[at + 1] .. ':' .. name
  local there = after[place]
  if there == nil then there = redis.call('HGET', KEYS[space + 1], name) or false end
  local version, created, body = 0, nil, nil
  if there then
    version, created = struct.unpack('>I8d', there)
    body = string.sub(there, 17)
  end
  if expected ~= '' and version ~= tonumber(expected) then
    local is_made
    local becomes = expected == '0' and first or tonumber(expected) + 1
    if is_put then is_made = there and version == becomes and body == rest else is_made = not there end
    if not is_made then return position end
    made[position] = true
  elseif is_put then
    after[place] = struct.pack('>I8d', there and version + 1 or first, created or tonumber(ARGV[at + 5])) .. rest
  else
    after[place] = false
  end
end
for position = 0, #ARGV / 7 - 1 do
  local at = position * 7
  local space, name = tonumber(ARGV[at + 1]) * 3, ARGV[at + 2]
  local records, names, expiry = KEYS[space + 1], KEYS[space + 2], KEYS[space + 3]
  local becomes = after[ARGV[at + 1] .. ':' .. name]
  if not made[position] then
    if becomes then
      redis.call('HSET', records, name, becomes)
      redis.call('ZADD', names, 0, name)
      local ends = ARGV[at + 6]
      if ends == '' then redis.call('ZREM', expiry, name) else redis.call('ZADD', expiry, ends, name) end
    else
      redis.call('HDEL', records, name)
      redis.call('ZREM', names, name)
      redis.call('ZREM', expiry, name)
    end
  end
end
return -1
