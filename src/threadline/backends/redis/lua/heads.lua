-- A page of the rows of an index: the last place, how many places, and what `about` tells of each row.
local function heads(index, held, about)
  local low, most = take(), tonumber(take())
  local places = redis.call('ZRANGEBYLEX', KEYS[index], low == '' and '-' or '(' .. low, '+', 'LIMIT', 0, most)
  local found = {}
  for i = 1, #places do
    local row = fields(redis.call('HGET', KEYS[held], places[i]) or '')
    if #row > 0 then found[#found + 1] = about(row, string.match(places[i], '^%d+')) end
  end
  return {places[#places] or '', #places, found}
end
