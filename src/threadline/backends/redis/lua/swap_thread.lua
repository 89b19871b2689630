-- uses: common, touch
-- Compare-and-swap of status, expiry, tags and metadata of a thread.
local thread, ttl, until_ms = take(), tonumber(take()), tonumber(take())
local row = row_of(0, thread)
if not row or row[2] == 'moved' then return 0 end
local is_same = true
for _, i in ipairs({1, 2, 7, 8, 9}) do
  if row[i] ~= take() then is_same = false end
end
local wanted, is_done = {}, true
for _, i in ipairs({2, 7, 8, 9}) do
  wanted[i] = take()
  if row[i] ~= wanted[i] then is_done = false end
end
-- Already as it should become: this very swap was made before, and its answer was lost.
if is_done then return 1 end
if not is_same then return 0 end
for _, i in ipairs({2, 7, 8, 9}) do row[i] = wanted[i] end
redis.call('HSET', KEYS[THREADS], thread, joined(row))
if ttl > 0 then touch(0, ttl, until_ms) end
return 1
