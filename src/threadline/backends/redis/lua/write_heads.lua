-- uses: common, heads
-- A page of the writes of a pool: serial, links, bytes, form.
return heads(TASKS, WRITES, function(row, serial) return {serial, row[1], #row[5], row[2]} end)
