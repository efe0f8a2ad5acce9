-- token_bucket; see limit/algorithms/token_bucket.rs.
--
-- Numbers  capacity, interval, amount, the most tokens that may be missing (I7 each)
-- State    I7 missing tokens, I7 the time of the last refill
-- Cost     constant
-- Expiry   when the bucket is full
local NUMBER = 6

algorithms[NUMBER] = {
  numbers = 'I7I7I7I7',
  format = 'I7I7',
  width = 2,
  settle = function(limit, v, t)
    local a, interval = limit.at, limit[2]
    local missing, last = v[a], v[a + 1]
    if last > t + interval then last, moved = t, true end
    local steps = t > last and floor((t - last) / interval) or 0
    missing = missing - steps * limit[3]
    last = last + steps * interval
    if missing <= 0 then
      missing = 0
      if last < t then last = t end
    end
    v[a], v[a + 1] = missing, last
  end,
  room = function(limit, v) return limit[1] - v[limit.at] end,
  take = function(limit, v, _, hits)
    if limit.never then return end
    local a = limit.at
    local most = limit.counts_denied and limit[4] or limit[1]
    if most < v[a] then most = v[a] end
    local sum = v[a] + hits
    v[a] = sum < most and sum or most
    return true
  end,
  -- A denial restarts the wait of a strict bucket.
  deny = function(limit, v, t)
    local last = limit.at + 1
    if limit.strict and v[last] < t then v[last] = t end
    return limit.strict
  end,
  give_back = function(limit, v, t, hits)
    local a = limit.at
    v[a] = v[a] > hits and v[a] - hits or 0
    -- As `settle` leaves a full bucket.
    if v[a] == 0 and v[a + 1] < t then v[a + 1] = t end
  end,
  -- Less what was refilled since. A wait that nothing restarted again starts where it had.
  undo = function(limit, v, t, hits, taken, _, was)
    local a = limit.at
    if was > 0 and v[a + 1] == taken then
      v[a + 1] = was - 1
      limit.settle(limit, v, t)
    end
    local passed = v[a + 1] - taken
    if passed > 0 then hits = hits - ceil(passed / limit[2]) * limit[3] end
    if hits > 0 then v[a] = v[a] > hits and v[a] - hits or 0 end
  end,
  ends = function(limit, v)
    local a = limit.at
    return v[a] > 0 and v[a + 1] + ceil(v[a] / limit[3]) * limit[2] or 0
  end,
}
