-- uses: common, living, lineage, drop
-- Delete checkpoints with their writes, and of others only the writes.
-- Returns -1, and deletes nothing, if one of those that are looked at has a child beside those that were seen.
local looked, seen, removed = {}, {}, 0
for i = 1, tonumber(take()) do looked[i] = serial .. take() end
for i = 1, tonumber(take()) do seen[serial .. take()] = true end
for i = 1, #looked do
  for _, place in ipairs(children(0, looked[i])) do
    if not seen[place] then return -1 end
  end
end
for i = 1, tonumber(take()) do
  local place = serial .. take()
  local value = redis.call('HGET', KEYS[ROWS], place)
  if value then
    removed = removed + redis.call('HDEL', KEYS[ROWS], place)
    local entry = heir(place, value)
    if entry then redis.call('ZREM', KEYS[HEIRS], entry) end
  end
  redis.call('ZREM', KEYS[ORDER], place)
end
while at < #ARGV do drop(WRITES, TASKS, serial .. take()) end
return removed
