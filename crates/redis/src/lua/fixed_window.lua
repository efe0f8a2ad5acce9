-- fixed_window, aligned to the epoch: functions for rules.lua and charge.lua; see limit/algorithms/fixed_window.rs.
--
-- Cost     constant
-- Expiry   with the window
local NUMBER = 1

algorithms[NUMBER] = {
  answers_looks_if_n_is_zero = true,
  numbers = '<I7I7',
  format = 'I7I4',
  width = 2,
  window_unit = 0,
  settle = function(limit, v, t)
    local a, p = limit.at, limit[2]
    local window, from = v[a], t
    if window > t and window <= t + p then from = window end
    local start = from - from % p
    if start ~= window then
      if window <= t + p then v[a + 1] = 0 else moved = true end
      v[a] = start
    end
  end,
  room = function(limit, v) return limit[1] - v[limit.at + 1] end,
  take = function(limit, v, _, hits)
    local c = limit.at + 1
    local count = v[c]
    local sum = count + hits
    v[c] = sum < MAX_COUNT and sum or MAX_COUNT
    return count == 0
  end,
  refund = function(limit, v, _, hits)
    local c = limit.at + 1
    v[c] = v[c] > hits and v[c] - hits or 0
  end,
  undo = function(limit, v, _, hits, taken)
    local c = limit.at + 1
    if v[c - 1] <= taken then v[c] = v[c] > hits and v[c] - hits or 0 end
  end,
  ends = function(limit, v) return v[limit.at + 1] > 0 and v[limit.at] + limit[2] or 0 end,
}
