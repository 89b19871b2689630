-- uses: common
-- Compare-and-swap of the bytes of chunks, checkpoints and writes.
while at < #ARGV do
  local key, field, old, new = KEYS[tonumber(take())], take(), take(), take()
  if redis.call('HGET', key, field) == old then redis.call('HSET', key, field, new) end
end
