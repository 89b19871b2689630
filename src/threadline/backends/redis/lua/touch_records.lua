-- Sets when records expire: the time ("" for never), then names.
for at = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1 then
    if ARGV[1] == '' then redis.call('ZREM', KEYS[3], ARGV[at]) else redis.call('ZADD', KEYS[3], ARGV[1], ARGV[at]) end
  end
end
return 0
