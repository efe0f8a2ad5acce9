-- The algorithm bucketed_window, a ring of counters of short spans; see limit/algorithms/bucketed_window.rs.
-- rules.lua and charge.lua call these functions.
--
-- Cost     grows with the slots, 4 bytes each, and with the slots passed since the last hit
-- Expiry   when the newest slot with hits no longer counts
local function count_at(ring, slot) return (read('<I4', ring, slot * 4 + 1)) end

local function put(ring, slot, count)
  return ring:sub(1, slot * 4) .. pack('<I4', count) .. ring:sub(slot * 4 + 5)
end

local NUMBER = 5

algorithms[NUMBER] = {
  keeps = 'ring',
  numbers = '<I7I7I7I7',
  format = 'I7I7',
  width = 2,
  window_unit = 4,
  settle = function(limit, v, t)
    local a, slots, span = limit.at, limit[3], limit[4]
    local newest = floor(t / span)
    local index, ring = v[a], limit.ring
    if index * span > t + limit[2] then
      -- Rotates the ring so that each slot keeps its age.
      local turn = (index - newest) % slots * 4
      ring = ring:sub(turn + 1) .. ring:sub(1, turn)
      index, moved = newest, true
    end
    local passed = newest - index
    if passed >= slots then
      ring, v[a + 1] = string.rep('\0', slots * 4), 0
    elseif passed > 0 then
      for slot = index + 1, newest do
        local count = count_at(ring, slot % slots)
        if count > 0 then
          v[a + 1] = v[a + 1] - count
          ring = put(ring, slot % slots, 0)
        end
      end
    end
    if newest > index then index = newest end
    v[a], limit.ring = index, ring
  end,
  room = function(limit, v) return limit[1] - v[limit.at + 1] end,
  take = function(limit, v, _, hits)
    local a, slot = limit.at, v[limit.at] % limit[3]
    local count = count_at(limit.ring, slot)
    local sum = count + hits
    if sum > MAX_COUNT then sum = MAX_COUNT end
    v[a + 1], limit.ring = v[a + 1] + sum - count, put(limit.ring, slot, sum)
    return true
  end,
  refund = function(limit, v, _, hits)
    local a = limit.at
    for age = 0, limit[3] - 1 do
      local slot = (v[a] - age) % limit[3]
      local count = count_at(limit.ring, slot)
      local less = hits < count and hits or count
      if less > 0 then
        limit.ring = put(limit.ring, slot, count - less)
        v[a + 1], hits = v[a + 1] - less, hits - less
      end
      if hits == 0 then return end
    end
  end,
  undo = function(limit, v, _, hits, taken)
    local a, slots = limit.at, limit[3]
    local age = v[a] - floor(taken / limit[4])
    if age >= slots then return end
    local slot = (v[a] - (age > 0 and age or 0)) % slots
    local count = count_at(limit.ring, slot)
    local less = hits < count and hits or count
    v[a + 1], limit.ring = v[a + 1] - less, put(limit.ring, slot, count - less)
  end,
  ends = function(limit, v, t)
    if v[limit.at + 1] == 0 then return 0 end
    -- The newest slot may be empty after hits were refunded; the state is then kept longer than needed.
    return (v[limit.at] + limit[3]) * limit[4]
  end,
}
