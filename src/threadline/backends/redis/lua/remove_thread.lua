-- uses: common, drop
-- Delete the rows of a thread and leave a tombstone; the last thread of a pool takes the chunks along.
-- A full server lets a script go on that has freed something first: so this begins by deleting.
local thread, until_id, now = take(), take(), take()
local row = row_of(0, thread)
if not lives(row) then return false end
local living = number(0, 'living') - 1
if living <= 0 then
  for _, i in ipairs({CHUNKS, ROWS, ORDER, WRITES, TASKS, HEIRS}) do redis.call('UNLINK', KEYS[i]) end
  redis.call('HINCRBY', KEYS[POOL], 'epoch', 1)
else
  redis.call('HDEL', KEYS[WRITES], '')
  drop(ROWS, ORDER, row[1] .. ':')
  drop(WRITES, TASKS, row[1] .. ':')
  drop(nil, HEIRS, row[1] .. ':')
end
redis.call('HINCRBY', KEYS[POOL], 'living', -1)
row[2], row[3], row[6] = 'deleted', until_id, now
redis.call('HSET', KEYS[THREADS], thread, joined(row))
return {row[1], living}
