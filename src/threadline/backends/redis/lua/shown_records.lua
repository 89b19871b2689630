-- Of each of these names the name, the record, and the time it expires ('' for none).
local function shown_records(names)
  local found = {}
  for i = 1, #names do
    local name = names[i]
    found[i] = {name, redis.call('HGET', KEYS[1], name) or '', redis.call('ZSCORE', KEYS[3], name) or ''}
  end
  return found
end
