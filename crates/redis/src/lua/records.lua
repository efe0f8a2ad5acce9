-- Reads the record of a reservation (hits of a key that were reserved under an id), for reservations.lua and
-- lone_reserve.lua. Returns an error; or nil, the text of the record, whether it can be settled, and its numbers.
local function open_record(key, reset_key, t)
  local FORMAT, SIZE = '<BI4I2I2I7I5I2', 23
  local text = try('GET', key) or ''
  if type(text) == 'table' then return failed(text) end
  if text == '' then return nil, text, false, 0, 0, 0, 0, 0, 0 end
  if #text ~= SIZE or text:byte() ~= LAYOUT then return INVALID end
  local _, hits, count, limits, taken, lapses, tag = read(FORMAT, text)
  local live = t < lapses * 1000000
  -- What was reserved before a reset is settled, and returns nothing. Its time is read under a key that is not among
  -- KEYS, but in their slot: most keys have none, and while Redis moves a slot, a key that is missing fails the call.
  local reset = live and tonumber(try('GET', reset_key))
  if reset and taken <= reset then
    taken, text = 0, pack(FORMAT, LAYOUT, hits, count, limits, 0, lapses, tag)
  end
  return nil, text, live, hits, count, limits, taken, lapses, tag
end
