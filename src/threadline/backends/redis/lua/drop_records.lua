-- Deletes named records; with a time only those that have expired by then.
-- Returns the names that went, with a time each in a pair with the time at which it expired.
local gone = {}
for at = 2, #ARGV do
  local ends = ARGV[1] ~= '' and redis.call('ZSCORE', KEYS[3], ARGV[at])
  if ARGV[1] == '' or (ends and tonumber(ends) <= tonumber(ARGV[1])) then
    if redis.call('HDEL', KEYS[1], ARGV[at]) == 1 then gone[#gone + 1] = ends and {ARGV[at], ends} or ARGV[at] end
    redis.call('ZREM', KEYS[2], ARGV[at])
    redis.call('ZREM', KEYS[3], ARGV[at])
  end
end
return gone
