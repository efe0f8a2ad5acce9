-- The algorithm reduce_bucket, a bucket for weir's Redis command RL.REDUCE; see limit/algorithms/reduce_bucket.rs.
-- Its times are in milliseconds. rules.lua and charge.lua call these functions.
--
-- Cost     constant
-- Expiry   the time in which an empty bucket refills, after the last charge, by the time of the call
local NUMBER = 11

local function time(limit, t) return limit[4] > 0 and limit[4] - 1 or floor(t / 1000) end

algorithms[NUMBER] = {
  numbers = '<I7I7I7I7I7',
  format = 'I4I7',
  width = 2,
  settle = function(limit, v, t)
    local a, interval, now = limit.at, limit[3], time(limit, t)
    if v[a] == 0 then
      -- Never charged: a state that is stored misses a token.
      v[a + 1] = now
      return
    end
    local last = v[a + 1]
    local steps = now > last and floor((now - last) / interval) or 0
    -- Where the product is not exact, it is more than a bucket holds.
    local missing = v[a] - steps * limit[2]
    v[a], v[a + 1] = missing > 0 and missing or 0, last + steps * interval
  end,
  room = function(limit, v) return limit[1] - v[limit.at] end,
  take = function(limit, v, t, hits)
    local a, max = limit.at, limit[1]
    local sum = v[a] + hits
    v[a] = sum < max and sum or max
    if v[a] == max and limit[5] > 0 then
      -- An older time must not let the same refills come twice.
      local last, now = v[a + 1], time(limit, t)
      v[a + 1] = now > last and now or last
    end
    return true
  end,
  refund = function(limit, v, _, hits)
    local a = limit.at
    v[a] = v[a] > hits and v[a] - hits or 0
  end,
  ends = function(limit, v, t)
    return v[limit.at] > 0 and t + ceil(limit[1] / limit[2]) * limit[3] * 1000 or 0
  end,
}
