-- Compare-and-swap of a key; '' stands for no key.
local found = redis.call('GET', KEYS[1])
found = found and '=' .. found or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], string.sub(ARGV[2], 2)) end
return 1
