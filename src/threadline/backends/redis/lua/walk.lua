-- uses: common, living
-- The checkpoints of a thread as they lie, after a place.
local with_writes, after, most = take() == '1', take(), take()
local low = after == '' and '[' .. serial or '(' .. serial .. string.sub(after, 2)
local found = {digits(number(0, 'epoch'))}
for _, place in ipairs(redis.call('ZRANGEBYLEX', KEYS[ORDER], low, '(' .. serial .. '\255', 'LIMIT', 0, most)) do
  found[#found + 1] = shown(0, row[1], place, with_writes)
end
return found
