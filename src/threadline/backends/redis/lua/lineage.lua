-- The index of children. An entry is the place of the parent, a NUL and the id of the child. A child that was put again
-- under another parent leaves its entry behind, so the row of the child decides.

-- The entry of a checkpoint among the children of its parent; nil without a parent.
local function heir(place, value)
  local _, from = struct.unpack('>I4c0', value, 1)
  local parent = struct.unpack('>I4c0', value, from)
  if parent == '' then return nil end
  local stop, name = namespace_end(place), string.gsub(string.sub(parent, 2), '%z', '\0\255')
  return string.sub(place, 1, stop) .. name .. '\0' .. string.sub(place, stop + 1)
end
-- The places of the children of a checkpoint, which is given as the head of its entries.
local function children(base, head)
  local found, space = {}, string.sub(head, 1, namespace_end(head))
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', KEYS[base + HEIRS], '[' .. head, '(' .. head .. '\255')) do
    local place = space .. string.sub(entry, #head + 1)
    local value = redis.call('HGET', KEYS[base + ROWS], place)
    if value and heir(place, value) == entry then found[#found + 1] = place end
  end
  return found
end
