-- uses: common, wanted
-- The places of the newest checkpoints of every thread of a pool: thread and place, in no order.
take_wanted()
local found = {}
local rows = redis.call('HGETALL', KEYS[THREADS])
for i = 1, #rows, 2 do
  local row = fields(rows[i + 1])
  if lives(row) then
    for _, head in ipairs(wanted_heads(row[1])) do
      for _, place in ipairs(newest_places(head)) do
        found[#found + 1] = rows[i]
        found[#found + 1] = string.sub(place, #row[1] + 2)
      end
    end
  end
end
return found
