-- sliding_window of two counters: functions for rules.lua and charge.lua; see limit/algorithms/sliding_window.rs.
--
-- Cost     constant
-- Expiry   two windows after the start of the last hit's window
local NUMBER = 3

algorithms[NUMBER] = {
  numbers = '<I7I7',
  format = 'I7I4I4',
  width = 3,
  window_unit = 2,
  settle = function(limit, v, t)
    local a, p = limit.at, limit[2]
    if v[a] * p > t + p then
      -- Without hits it is as no state.
      v[a], moved = (v[a + 1] > 0 or v[a + 2] > 0) and ceil(t / p) or floor(t / p), true
    end
    local index = floor(t / p)
    if index == v[a] + 1 then
      v[a], v[a + 1], v[a + 2] = index, v[a + 2], 0
    elseif index > v[a] then
      v[a], v[a + 1], v[a + 2] = index, 0, 0
    end
  end,
  room = function(limit, v, t)
    local a, p = limit.at, limit[2]
    local prev, passed = v[a + 1], t - v[a] * p
    if passed < 0 then passed = 0 end
    -- In doubles and in this order; rounding may exceed `prev`.
    local weighs = prev * (p - passed) / p
    if weighs > prev then weighs = prev end
    return limit[1] - v[a + 2] - ceil(weighs)
  end,
  take = function(limit, v, _, hits)
    local c = limit.at + 2
    local count = v[c]
    local sum = count + hits
    v[c] = sum < MAX_COUNT and sum or MAX_COUNT
    return count == 0
  end,
  refund = function(limit, v, _, hits)
    local a = limit.at
    local rest = hits - v[a + 2]
    v[a + 2] = rest < 0 and -rest or 0
    if rest > 0 then v[a + 1] = v[a + 1] > rest and v[a + 1] - rest or 0 end
  end,
  undo = function(limit, v, _, hits, taken)
    local a, p = limit.at, limit[2]
    local c = a + 2
    if v[a] * p > taken then
      -- Hits of the previous window are in its count; earlier ones are gone.
      if (v[a] - 1) * p > taken then return end
      c = a + 1
    end
    v[c] = v[c] > hits and v[c] - hits or 0
  end,
  ends = function(limit, v)
    local a, p = limit.at, limit[2]
    if v[a + 2] > 0 then return (v[a] + 2) * p end
    return v[a + 1] > 0 and (v[a] + 1) * p or 0
  end,
}
