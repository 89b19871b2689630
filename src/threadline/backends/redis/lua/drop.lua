-- Delete the rows under a head from an index and, where it has one, its hash.
local function drop(held, index, head)
  while true do
    local places = redis.call('ZRANGEBYLEX', KEYS[index], '[' .. head, '(' .. head .. '\255', 'LIMIT', 0, 500)
    for i = 1, #places do
      if held then redis.call('HDEL', KEYS[held], places[i]) end
      redis.call('ZREM', KEYS[index], places[i])
    end
    if #places < 500 then return end
  end
end
