-- fixed_window whose windows follow the calendar. limit/calendar.rs computes their boundaries.
--
-- Numbers  n, period, and four boundaries of windows (I7 each): by the caller's clock the second is
--          not after now and the third is after it
-- State    I7 the start of the window, I4 its count
-- Cost     constant
-- Expiry   with the window
algorithms[2] = {
  numbers = 'I7I7I7I7I7I7',
  format = 'I7I4',
  width = 2,
  settle = function(limit, v, t)
    local a, p = limit.at, limit[2]
    local window = v[a]
    if window > t and window <= t + p then
      limit.ending = window + p + DAY
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
    reason = reason or "weir's clock and Redis's are too far apart for its calendar"
    return ERROR + 6
  end,
  -- Only the boundaries of windows differ from fixed_window.lua.
  room = algorithms[1].room,
  take = algorithms[1].take,
  give_back = algorithms[1].give_back,
  ends = function(limit, v) return v[limit.at + 1] > 0 and limit.ending or 0 end,
}
