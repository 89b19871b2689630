-- uses: common, living, wanted
-- The next checkpoints of one thread. `most` is one more than a page: its first place may have ended the page before.
local with_writes, after, limit = take() == '1', take(), tonumber(take())
take_wanted()
local heads = wanted_heads(row[1])
local list = {}
for _, head in ipairs(heads) do
  local spoken = string.sub(head, #row[1] + 2)
  for _, place in ipairs(newest_places(head)) do
    local id = string.sub(place, #head + 1)
    -- Of the id that ended the page before, only the namespaces that follow.
    if after == '' or id ~= string.sub(last, 2) or before(string.sub(after, 2), spoken) then
      list[#list + 1] = {place, id, spoken}
    end
  end
end
if #heads > 1 then
  table.sort(list, function(a, b)
    if a[2] == b[2] then return before(a[3], b[3]) end
    return before(b[2], a[2])
  end)
end
local found = {digits(number(0, 'epoch'))}
for i = 1, math.min(limit, #list) do found[i + 1] = shown(0, row[1], list[i][1], with_writes) end
return found
