-- The expiry of a pool.
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
