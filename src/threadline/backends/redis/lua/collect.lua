-- uses: common
-- Delete chunks if no change was made since the marking began, and let writers in again.
local version = take()
if (redis.call('HGET', KEYS[POOL], 'version') or '0') ~= version then return 0 end
redis.call('DEL', KEYS[GATE])
while at < #ARGV do redis.call('HDEL', KEYS[CHUNKS], take()) end
redis.call('HINCRBY', KEYS[POOL], 'epoch', 1)
return 1
