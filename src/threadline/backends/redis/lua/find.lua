-- uses: common, living
-- One checkpoint, or the newest of its namespace; nothing for a thread that does not live here.
local head = serial .. take()
local id, with_writes = take(), take() == '1'
local place
if id == '' then place = newest(0, head) else place = head .. string.sub(id, 2) end
return {digits(number(0, 'epoch')), place and shown(0, row[1], place, with_writes) or nil}
