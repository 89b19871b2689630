-- uses: common
-- Links, form and size of these chunks, without their bytes.
local found = {}
for i = 1, #ARGV do
  local value = redis.call('HGET', KEYS[CHUNKS], ARGV[i])
  if value then
    local links, from = struct.unpack('>I4c0', value, 1)
    local form = struct.unpack('>I4', value, from)
    found[#found + 1] = {ARGV[i], links, form, #value - #links - 8}
  end
end
return found
