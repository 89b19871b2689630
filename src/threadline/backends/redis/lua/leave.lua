-- uses: common
-- Let nobody begin a thread in this pool under this ticket or an earlier one: it moves to another pool. Idempotent.
-- Refused where the thread lives here. Returns its last deletion and its lease. A pool without threads expires.
local thread, ticket, only_absent = take(), tonumber(take()), take() == '1'
local row = row_of(0, thread)
if lives(row) then return {'alive'} end
local lease = redis.call('HGET', KEYS[LEASES], thread)
if only_absent and (lease or (row and row[2] ~= 'moved')) then return {'alive'} end
row = row or {'0', 'moved', '', '', '0.0', '0.0', '', '[]', ''}
row[1], row[2] = digits(math.max(tonumber(row[1]), ticket)), 'moved'
redis.call('HSET', KEYS[THREADS], thread, joined(row))
if number(0, 'living') <= 0 then
  local rows, is_left = redis.call('HVALS', KEYS[THREADS]), true
  for i = 1, #rows do is_left = is_left and fields(rows[i])[2] == 'moved' end
  -- An hour is longer than any writer can be on its way that still believes in the old place.
  if is_left then
    for i = POOL, LEASES do redis.call('PEXPIRE', KEYS[i], 3600000) end
  end
end
return {'left', row[3], lease}
