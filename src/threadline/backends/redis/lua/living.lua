-- The thread that the first argument names: a script that uses this ends where the thread does not live in the pool.
local row = row_of(0, take())
if not lives(row) then return false end
local serial = row[1] .. ':'
