-- The algorithm sliding_log, the time of every admitted hit; see limit/algorithms/sliding_log.rs. All limits of a rule
-- that use it share one log, a ring of timestamps that is read in place. rules.lua and charge.lua call these functions.
--
-- Numbers  of a limit: limit[1] on. State: v from log.at on; settle brings it to now, t. Layouts: tables in codec.rs
-- Cost     a binary search per limit, within what came with the state where the log is short; one more
--          command to charge
-- Expiry   the longest period after the newest timestamp
local WIDE = 7

-- Returns the timestamp of a rank: 1 is the newest.
local function stamp(log, v, rank)
  local a = log.at
  local from = log.base + (v[a] + v[a + 1] - rank) % v[a + 2] * WIDE
  local text, at = log.text, from + 1
  if from + WIDE > #text then text, at = call('GETRANGE', log.key, from, from + WIDE - 1), 1 end
  if #text < at + WIDE - 1 then
    log.broken = true
    return 0
  end
  return read('<I7', text, at) - v[a + 4]
end

sliding_log = {
  FORMAT = 'I4I4I4I7I7',
  WIDTH = 5,
  -- The bytes of the log read with the state: short logs come whole.
  AHEAD = 32 * WIDE,
  settle = function(log, v, t)
    local a = log.at
    log.now, log.broken = t, false
    if v[a + 1] == 0 then return end
    if v[a] >= v[a + 2] or v[a + 1] > v[a + 2] then return INVALID end
    local newest = v[a + 3] - v[a + 4]
    if newest > t + log.shortest then
      v[a + 4] = v[a + 4] + newest - t
      newest, moved = t, true
    end
    if newest > t then log.now = newest end
  end,
  -- Writes a timestamp per hit and keeps the newest ones.
  take = function(log, v, hits)
    local a, most = log.at, log.stamps
    if hits > most then hits = most end
    local head, len, cap = v[a], v[a + 1], v[a + 2]
    if cap < most then
      -- The key is new, or n was raised: the ring is written again, with the oldest timestamp first.
      if len > 0 then
        local ring = try('GETRANGE', log.key, log.base, -1)
        if type(ring) == 'table' then return failed(ring) end
        ring = ring .. string.rep('\0', cap * WIDE - #ring)
        ring = ring:sub(head * WIDE + 1) .. ring:sub(1, head * WIDE)
        local set = try('SETRANGE', log.key, log.base, ring)
        if type(set) == 'table' then return failed(set) end
      end
      head, cap = 0, most
    end
    local text, at = pack('<I7', log.now + v[a + 4]), (head + len) % cap
    local first = hits < cap - at and hits or cap - at
    local set = try('SETRANGE', log.key, log.base + at * WIDE, text:rep(first))
    if type(set) == 'table' then return failed(set) end
    if first < hits then try('SETRANGE', log.key, log.base, text:rep(hits - first)) end
    local kept = len + hits < most and len + hits or most
    v[a], v[a + 1], v[a + 2] = (head + len + hits - kept) % cap, kept, cap
    v[a + 3] = log.now + v[a + 4]
  end,
  refund = function(log, v, hits)
    local a = log.at
    local left = v[a + 1] > hits and v[a + 1] - hits or 0
    local newest = left > 0 and stamp(log, v, hits + 1) or 0
    v[a + 1], v[a + 3] = left, left > 0 and newest + v[a + 4] or 0
    return newest
  end,
  ends = function(log, v)
    local a = log.at
    return v[a + 1] > 0 and v[a + 3] - v[a + 4] + log.longest or 0
  end,
}

local NUMBER = 4

algorithms[NUMBER] = {
  keeps = 'log',
  numbers = '<I7I7',
  format = '',
  width = 0,
  settle = function() end,
  room = function(limit, v)
    local log, p = limit.log, limit[2]
    local len = v[log.at + 1]
    -- Between a rank that counts and one that does not.
    local low, high = 0, len + 1
    if len > 0 and v[log.at + 3] - v[log.at + 4] + p <= log.now then high = 1 end
    while high - low > 1 do
      local rank = floor((low + high) / 2)
      if stamp(log, v, rank) + p > log.now then low = rank else high = rank end
    end
    limit.used = low
    return limit[1] - low
  end,
  -- Returns the timestamp that denies these hits once `taken` more are taken.
  blocks = function(limit, v, hits, taken)
    local log = limit.log
    local rank = limit[1] - (hits > 0 and hits or 1) + 1
    if rank < 1 or rank > v[log.at + 1] + taken then return 0 end
    return rank <= taken and log.now or stamp(log, v, rank - taken)
  end,
  take = function() end,
  refund = function() end,
  ends = function() return 0 end,
}
