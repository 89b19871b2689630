-- uses: common, living
-- A checkpoint and its ancestors with their writes, nearest first.
local head, id, most = serial .. take(), take(), tonumber(take())
local found = {digits(number(0, 'epoch'))}
while id ~= '' and #found <= most do
  local one = shown(0, row[1], head .. string.sub(id, 2), true)
  if not one then break end
  found[#found + 1] = one
  id = fields(one[2])[2]
end
return found
