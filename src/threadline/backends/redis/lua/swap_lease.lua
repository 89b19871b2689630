-- uses: common, touch
-- Compare-and-swap of the lease of a thread; -1 if the thread has moved to another pool.
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
