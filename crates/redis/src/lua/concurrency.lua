-- The algorithm concurrency, hits in flight, where requests have no ids; holds.lua is for those with ids. See
-- limit/algorithms/concurrency.rs. rules.lua and charge.lua call these functions.
--
-- State    the hits in flight, and the time of the newest start or end
-- Cost     constant
-- Expiry   the timeout after the newest start or end; it clears hits that nobody released
local NUMBER = 8

algorithms[NUMBER] = {
  numbers = '<I7I7',
  format = 'I7I7',
  width = 2,
  alone = true,
  settle = function(limit, v, t)
    local a, timeout = limit.at, limit[2]
    if v[a + 1] > t + timeout then v[a + 1], moved = t, true end
    if v[a + 1] + timeout <= t then v[a] = 0 end
  end,
  room = function(limit, v) return limit[1] - v[limit.at] end,
  take = function(limit, v, t, hits)
    local a = limit.at
    v[a] = v[a] + hits < 2 ^ 52 and v[a] + hits or 2 ^ 52
    if v[a + 1] < t then v[a + 1] = t end
    return true
  end,
  refund = function(limit, v, t, hits)
    local a = limit.at
    v[a] = v[a] > hits and v[a] - hits or 0
    if v[a + 1] < t then v[a + 1] = t end
    return true
  end,
  ends = function(limit, v) return v[limit.at] > 0 and v[limit.at + 1] + limit[2] or 0 end,
}
