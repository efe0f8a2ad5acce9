-- The ban of a rule, which denies a key for a while after several denials, its strikes; see limit/ban.rs. rules.lua and
-- charge.lua call these functions; to them a ban is a rule's last limit.
--
-- Numbers  of the ban: ban[1] on. State: v from ban.at on; settle brings it to now, t. Layouts: tables in codec.rs
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
  -- A clock that stepped back makes no ban longer.
  settle = function(ban, v, t)
    local a = ban.at
    if v[a + UNTIL] < v[a + BEGAN] then return INVALID end
    local ahead = v[a + BEGAN] - t
    if ahead > 0 then v[a + BEGAN], v[a + UNTIL], moved = t, v[a + UNTIL] - ahead, true end
  end,
  is_banned = function(ban, v, t) return t < v[ban.at + UNTIL] end,
  -- Counts a strike; none if ban[1] is 0, where a control of an operator (such as another limit) decides.
  strike = function(ban, v, t)
    local a = ban.at
    if ban[1] == 0 then return end
    local since = v[a + SINCE]
    local strikes = t - since < ban[2] and v[a + STRIKES] or 0
    v[a + STRIKES], v[a + SINCE] = strikes + 1, strikes > 0 and since < t and since or t
    if strikes + 1 < ban[1] then return true end
    local bans = t < v[a + UNTIL] + ban[3] and v[a + BANS] or 0
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
