-- Reads the time and a key's state as it is, for weir to decode: states.rs runs it when an operator inspects a key.
--
-- KEYS    of one slot: that of the state, that of its holds (requests in flight, by id), and that of a reservation
-- ARGV    2, the time that limits go by, as TIME replies it; 0 and 0 for the server's clock
-- Reply   the time, as TIME replies it, and for each key its value, or nil. The error of the first key
--         that cannot be read, in place of all
-- Cost    a command per key; grows with the values
local now = ARGV
if now[1] == '0' and now[2] == '0' then now = redis.call('TIME') end
local out = { now }
for i, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' and value.err then return value end
  out[i + 1] = value
end
return out
