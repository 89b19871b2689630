-- uses: common, heads
-- A page of the checkpoints of a pool: serial, links, bytes in the row, form, form of the metadata, time of creation.
return heads(ORDER, ROWS, function(row, serial)
  return {serial, row[1], #row[10] + #row[11], row[4], row[5], row[8]}
end)
