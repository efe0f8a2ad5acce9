-- Deletes a key's state when an operator resets it, and stores the time: hits reserved before then return nothing.
--
-- KEYS    the key of its reset, and those of the state, all of one slot
-- ARGV    1, the time in microseconds since the epoch; 0 for the server's clock
--         2, the milliseconds within which all that is reserved now lapses
-- Reset   a packed format of codec.rs; expires with the last of these reservations
-- Cost    two commands
local at = ARGV[1]
if at == '0' then
  local now = redis.call('TIME')
  at = string.format('%.0f', now[1] * 1000000 + now[2])
end
redis.call('SET', KEYS[1], at, 'PX', ARGV[2])
return redis.call('DEL', unpack(KEYS, 2))
