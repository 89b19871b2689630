-- Put records of one space, whatever is there. Gives -1; nothing in a store without a format, which lost everything. Of
-- each record: name, time of creation, time of expiry ('' for none), and the rest of the record.
if redis.call('EXISTS', KEYS[4]) == 0 then return false end
for at = 1, #ARGV, 4 do
  local name, ends = ARGV[at], ARGV[at + 2]
  local there = redis.call('HGET', KEYS[1], name)
  local version, created = 0, tonumber(ARGV[at + 1])
  if there then version, created = struct.unpack('>I8d', there) end
  redis.call('HSET', KEYS[1], name, struct.pack('>I8d', version + 1, created) .. ARGV[at + 3])
  if not there then redis.call('ZADD', KEYS[2], 0, name) end
  if ends ~= '' then redis.call('ZADD', KEYS[3], ends, name) elseif there then redis.call('ZREM', KEYS[3], name) end
end
return -1
