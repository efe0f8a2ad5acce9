-- The ban of a rule, as if it were its last limit; see limit/ban.rs.
--
-- Numbers, state: packed formats of codec.rs
-- Cost     constant
-- Expiry   when the last strike, or the ban, is forgotten
local NUMBER = 12

-- Indices of the state.
local STRIKES, BANS, SINCE, BEGAN, UNTIL = 0, 1, 2, 3, 4

algorithms[NUMBER] = {
  numbers = '<I7I7I7B',
  format = 'BBI7I7I7',
  width = 5,
  keeps = 'ban',
  -- Reads the lengths of bans, which follow their number.
  read = function(ban, args, at)
    ban.lengths = {}
    for i = 1, ban[4] do
      ban.lengths[i], at = read('<I7', args, at)
    end
    return at
  end,
  settle = function(ban, v, t)
    local a = ban.at
    local ahead = v[a + BEGAN] - t
    -- A clock that stepped back makes no ban longer.
    if ahead > 0 then v[a + BEGAN], v[a + UNTIL], moved = t, v[a + UNTIL] - ahead, true end
    if v[a + SINCE] > t then v[a + SINCE] = t end
    if v[a + STRIKES] > 0 and t - v[a + SINCE] >= ban[2] then v[a + STRIKES] = 0 end
    if t >= v[a + UNTIL] + ban[3] then
      v[a + BANS], v[a + BEGAN], v[a + UNTIL] = 0, 0, 0
      if v[a + STRIKES] == 0 then v[a + SINCE] = 0 end
    end
  end,
  lasts = function(ban, v, t) return t < v[ban.at + UNTIL] end,
  -- Counts a strike, unless a control denied.
  strike = function(ban, v, t)
    local a = ban.at
    if ban[1] == 0 then return end
    if v[a + STRIKES] == 0 then v[a + SINCE] = t end
    v[a + STRIKES] = v[a + STRIKES] + 1
    if v[a + STRIKES] < ban[1] then return true end
    local bans = v[a + BANS]
    v[a + STRIKES], v[a + BANS] = 0, bans < 255 and bans + 1 or 255
    v[a + BEGAN], v[a + UNTIL] = t, t + (ban.lengths[bans + 1] or ban.lengths[ban[4]])
    return true
  end,
  ends = function(ban, v)
    local a = ban.at
    local strikes = v[a + STRIKES] > 0 and v[a + SINCE] + ban[2] or 0
    local bans = v[a + BANS] > 0 and v[a + UNTIL] + ban[3] or 0
    return strikes > bans and strikes or bans
  end,
}
