-- The next serial for a pool or thread; nothing in a store without a format, which lost everything.
if redis.call('HEXISTS', KEYS[1], 'format') == 0 then return false end
return redis.call('HINCRBY', KEYS[1], 'serial', 1)
