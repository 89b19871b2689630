-- A new entry for a thread under the next ticket, in a pool of its own or a given one, and the indexes of both.
-- Keys: meta, the entry, threads, pools. Arguments: the thread as it is in the index, the entry that is replaced
-- ('' for none), the pool ('' for its own), and the last deletion. Gives 1 and the entry, or 0 and the entry that is
-- there where another one was expected; nothing in a store without a format, which lost everything.
if redis.call('HEXISTS', KEYS[1], 'format') == 0 then return false end
local found = redis.call('GET', KEYS[2])
if (found and '=' .. found or '') ~= ARGV[2] then return {0, found or '0:0:'} end
local ticket = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'serial', 1))
local pool = ARGV[3] == '' and ticket or ARGV[3]
redis.call('ZADD', KEYS[3], 0, ARGV[1] .. ticket .. ':' .. pool)
if ARGV[3] == '' then redis.call('ZADD', KEYS[4], ticket, ticket) end
local entry = pool .. ':' .. ticket .. ':' .. ARGV[4]
redis.call('SET', KEYS[2], entry)
return {1, entry}
