"""Who went on from a checkpoint: the index of children, asked for everything that is to be deleted.

An entry is the place of the parent, a NUL and the id of the child. A child that was put again under another parent
leaves its entry behind, so that the child's own row decides.
"""

from __future__ import annotations

from .scripts import COMMON, script

__all__ = ["CHILDREN", "HEIRS", "WALK"]

HEIRS = r"""
-- The end of a place's namespace: a NUL that is not part of a name.
local function space_end(place)
  local stop = string.find(place, ':', 1, true)
  repeat
    stop = string.find(place, '\0', stop + 1, true)
  until string.byte(place, stop + 1) ~= 255
  return stop
end
-- The entry of a checkpoint among its parent's children; nil without a parent.
local function heir(place, value)
  local _, from = struct.unpack('>I4c0', value, 1)
  local parent = struct.unpack('>I4c0', value, from)
  if parent == '' then return nil end
  local stop, name = space_end(place), string.gsub(string.sub(parent, 2), '%z', '\0\255')
  return string.sub(place, 1, stop) .. name .. '\0' .. string.sub(place, stop + 1)
end
-- The places of the children of a checkpoint, which is given as the head of its entries.
local function children(base, head)
  local found, space = {}, string.sub(head, 1, space_end(head))
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', KEYS[base + HEIRS], '[' .. head, '(' .. head .. '\255')) do
    local place = space .. string.sub(entry, #head + 1)
    local value = redis.call('HGET', KEYS[base + ROWS], place)
    if value and heir(place, value) == entry then found[#found + 1] = place end
  end
  return found
end
"""

# The checkpoints that have one of some others for their parent.
CHILDREN = script(
    COMMON,
    HEIRS,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local found = {digits(number(0, 'epoch'))}
while at < #ARGV do
  for _, place in ipairs(children(0, row[1] .. ':' .. take())) do
    found[#found + 1] = shown(0, row[1], place, false)
  end
end
return found
""",
)

# The checkpoints of a thread as they lie, after a place.
WALK = script(
    COMMON,
    r"""
local row = row_of(0, take())
if not lives(row) then return false end
local head, with_writes, after, most = row[1] .. ':', take() == '1', take(), take()
local low = after == '' and '[' .. head or '(' .. head .. string.sub(after, 2)
local found = {digits(number(0, 'epoch'))}
for _, place in ipairs(redis.call('ZRANGEBYLEX', KEYS[ORDER], low, '(' .. head .. '\255', 'LIMIT', 0, most)) do
  found[#found + 1] = shown(0, row[1], place, with_writes)
end
return found
""",
)
