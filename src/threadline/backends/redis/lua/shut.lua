-- uses: common
-- Keep writers out of a pool for some milliseconds; returns the version of the pool.
local patience = tonumber(take())
if patience > 0 then redis.call('SET', KEYS[GATE], '1', 'PX', patience) end
return redis.call('HGET', KEYS[POOL], 'version') or '0'
