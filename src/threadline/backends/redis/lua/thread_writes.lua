-- uses: common, living
-- All writes of a thread.
return add_writes({}, 0, serial)
