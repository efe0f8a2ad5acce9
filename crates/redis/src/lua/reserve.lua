-- Makes only operations about reservations (hits reserved under an id and settled later): what charge.lua does with
-- them, in less time. Not for keys that are charged all or none. script.rs puts it behind rules.lua.
--
-- KEYS    for each entry (one operation) its key, and that of its id's record; on a cluster all of one slot
-- ARGV, reply, states, expiry as in charge.lua
-- Cost    as in charge.lua and reservations.lua
local RESERVATIONS = 15
local make, out, i = algorithms[RESERVATIONS].make, { pack('<I7', t) }, 0
-- Behind how entries are charged: each by itself.
at = at + 1
while at <= #args do
  local rule, op, used, otherwise, least, more, timeout
  rule, op, used, otherwise, least, more, timeout, at = read('<I4xxBI4xxxxBI4I4I4', args, at)
  rule = rules[rule + 1]
  i = i + 1
  local key, record_key = KEYS[2 * i - 1], KEYS[2 * i]
  moved = false
  local err, state, v = open(rule, key)
  local changed, grows = moved, moved
  local record, _, changes, grow
  if not err then
    err, record, _, changes, grow =
      make(record_key, key .. ':reset', rule, v, t, slack, op, used, otherwise, least, more, timeout, state)
    changed, grows = changed or changes, grows or grow
  end
  if not err and changed then
    err = close(rule, key, state, v, grows)
    -- Hits that are not charged must not be returned.
    if err then try('DEL', record_key) end
  end
  out[i + 1] = err and pack('<I4', err) or pack('<I4c0I4c0', #state, state, #record, record)
end

out[i + 2] = reason
return table.concat(out)
