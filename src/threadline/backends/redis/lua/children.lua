-- uses: common, living, lineage
-- The checkpoints that have one of some others for their parent.
local found = {digits(number(0, 'epoch'))}
while at < #ARGV do
  for _, place in ipairs(children(0, serial .. take())) do
    found[#found + 1] = shown(0, row[1], place, false)
  end
end
return found
