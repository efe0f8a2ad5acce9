-- The algorithm fixed_window with windows that follow the calendar: weir sends their boundaries; see
-- limit/calendar.rs. rules.lua and charge.lua call these functions.
--
-- Cost     constant
-- Expiry   with the window
local FIXED_WINDOW, NUMBER = 1, 2
local fixed_window = algorithms[FIXED_WINDOW]

algorithms[NUMBER] = {
  answers_looks_if_n_is_zero = true,
  numbers = '<I7I7I7I7I7I7',
  format = 'I7I4',
  width = 2,
  window_unit = 0,
  settle = function(limit, v, t)
    local a, p = limit.at, limit[2]
    local window = v[a]
    if window > t and window <= t + p then
      -- Its end is not among the boundaries: it lasts at most about a day longer than its period.
      limit.ending = window + p + 86400000000
      return
    end
    for b = 3, 5 do
      if limit[b] <= t and t < limit[b + 1] then
        limit.ending = limit[b + 1]
        if limit[b] ~= window then
          if window <= t then v[a + 1] = 0 else moved = true end
          v[a] = limit[b]
        end
        return
      end
    end
    local FAILURES, CLOCK_SKEW = 2 ^ 32 - 16, 6
    return FAILURES + CLOCK_SKEW
  end,
  -- Only the boundaries differ from fixed_window.lua.
  room = fixed_window.room,
  take = fixed_window.take,
  refund = fixed_window.refund,
  undo = fixed_window.undo,
  ends = function(limit, v) return v[limit.at + 1] > 0 and limit.ending or 0 end,
}
