-- uses: common
-- Compare-and-swap of the bytes of chunks, checkpoints and writes.
local thread = take()
local head = ''
if thread ~= '' then
  local row = row_of(0, string.sub(thread, 2))
  if not lives(row) then return 0 end
  head = row[1] .. ':'
end
local changed = 0
while at < #ARGV do
  local key, field, old, new = KEYS[tonumber(take())], head .. take(), take(), take()
  if redis.call('HGET', key, field) == old then
    redis.call('HSET', key, field, new)
    changed = changed + 1
  end
end
return changed
