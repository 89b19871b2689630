-- The format and the first serial of a new store; an older format becomes this one, which has the same keys.
local found = redis.call('HGET', KEYS[1], 'format')
if found and (tonumber(found) or math.huge) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSETNX', KEYS[1], 'serial', ARGV[2])
return redis.call('HSET', KEYS[1], 'format', ARGV[1])
