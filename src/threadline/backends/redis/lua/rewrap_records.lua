-- New bytes for records that are still what they were: of each its name, the record before, the record after.
for at = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[at]) == ARGV[at + 1] then redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2]) end
end
return 0
