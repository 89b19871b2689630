-- Which places a list looks for: bounds, and runs; taken from the arguments by `take_wanted`.
local namespace, exact, upper, last, floor, most, runs
local function take_wanted()
  namespace, exact, upper, last, floor, most = take(), take(), take(), take(), take(), tonumber(take())
  local count = tonumber(take())
  if count >= 0 then runs = {} end
  for i = 1, count do runs['=' .. take()] = true end
end

-- The heads of the namespaces of a thread that are wanted.
local function wanted_heads(serial)
  return namespace == '' and namespaces(0, serial) or {serial .. ':' .. string.sub(namespace, 2)}
end

-- Up to `most` places of one namespace, newest first, within the bounds.
local function newest_places(head)
  local list = {}
  if exact ~= '' then
    local place = head .. string.sub(exact, 2)
    local id = string.sub(exact, 2)
    if upper ~= '' and not before(id, string.sub(upper, 2)) then return list end
    if last ~= '' and before(string.sub(last, 2), id) then return list end
    if not redis.call('ZSCORE', KEYS[ORDER], place) then return list end
    if runs and not runs[fields(redis.call('HGET', KEYS[ROWS], place))[3]] then return list end
    return {place}
  end
  local high = '(' .. head .. '\255'
  if last ~= '' then high = '[' .. head .. string.sub(last, 2) end
  if upper ~= '' and (last == '' or before(string.sub(upper, 2), string.sub(last, 2) .. '\0')) then
    high = '(' .. head .. string.sub(upper, 2)
  end
  local low = '[' .. head .. string.sub(floor, 2)
  while true do
    local found = redis.call('ZREVRANGEBYLEX', KEYS[ORDER], high, low, 'LIMIT', 0, most)
    for i = 1, #found do
      if not runs or runs[fields(redis.call('HGET', KEYS[ROWS], found[i]))[3]] then list[#list + 1] = found[i] end
      if #list == most then return list end
    end
    if #found < most then return list end
    high = '(' .. found[#found]
  end
end
