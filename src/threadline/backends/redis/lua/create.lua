-- The format and the first serial of a new store.
if redis.call('HEXISTS', KEYS[1], 'format') == 1 then return 0 end
redis.call('HSETNX', KEYS[1], 'serial', ARGV[2])
return redis.call('HSET', KEYS[1], 'format', ARGV[1])
