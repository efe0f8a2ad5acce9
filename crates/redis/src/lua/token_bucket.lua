-- The algorithm token_bucket, called by rules.lua and charge.lua; see limit/algorithms/token_bucket.rs.
--
-- Cost     constant
-- Expiry   when the bucket is full
local NUMBER = 6

-- Returns the missing tokens and the time of the last refill, with what has come since.
local function refilled(limit, v, t)
  local a, interval = limit.at, limit[2]
  local missing, last = v[a], v[a + 1]
  local steps = t > last and floor((t - last) / interval) or 0
  missing, last = missing - steps * limit[3], last + steps * interval
  if missing > 0 then return missing, last end
  return 0, last < t and t or last
end

algorithms[NUMBER] = {
  numbers = '<I7I7I7I7',
  format = 'I7I7',
  width = 2,
  -- Refills nothing: another limit may use the same state and refill less, so only what changes the tokens
  -- stores a refill.
  settle = function(limit, v, t)
    local last = limit.at + 1
    if v[last] > t + limit[2] then v[last], moved = t, true end
  end,
  room = function(limit, v, t) return limit[1] - refilled(limit, v, t) end,
  take = function(limit, v, t, hits)
    if limit.never then return end
    local a = limit.at
    v[a], v[a + 1] = refilled(limit, v, t)
    local most = limit.counts_denied and limit[4] or limit[1]
    if most < v[a] then most = v[a] end
    local sum = v[a] + hits
    v[a] = sum < most and sum or most
    return true
  end,
  -- A denial restarts the wait of a strict bucket.
  deny = function(limit, v, t)
    local a = limit.at
    v[a], v[a + 1] = refilled(limit, v, t)
    if v[a + 1] < t then v[a + 1] = t end
  end,
  refund = function(limit, v, t, hits)
    local a = limit.at
    v[a], v[a + 1] = refilled(limit, v, t)
    v[a] = v[a] > hits and v[a] - hits or 0
    -- As a refill leaves a full bucket.
    if v[a] == 0 and v[a + 1] < t then v[a + 1] = t end
  end,
  ends = function(limit, v)
    local a = limit.at
    return v[a] > 0 and v[a + 1] + ceil(v[a] / limit[3]) * limit[2] or 0
  end,
}
