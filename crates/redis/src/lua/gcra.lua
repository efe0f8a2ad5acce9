-- The algorithm gcra, also called leaky_bucket; see limit/algorithms/gcra.rs and gcra/state.rs. rules.lua and
-- charge.lua call these functions. Numbers that decide stay below 2^52, so that doubles hold them exactly.
--
-- Cost     constant
-- Expiry   when the level is 0, at the next full second, so that successive states share it
local REM_END = 2 ^ 21

-- What the arrival time is too late by, in 1/n' ticks; less than a tick also if it is of another n'.
local function remainder(limit, v)
  local rem, n = v[limit.at + 1], limit[2]
  if n < REM_END then rem = rem % REM_END end
  return rem < n and rem or n - 1
end

local function level(limit, v, t)
  local now = floor(t / limit[4])
  local ahead = v[limit.at] - now
  return ahead > 0 and ahead * limit[2] - remainder(limit, v) or 0, now
end

local function set(limit, v, now, ahead, rem)
  local a = limit.at
  if ahead <= 0 then
    -- Otherwise the old level would count again after the clock stepped back.
    v[a], v[a + 1] = 0, 0
    return
  end
  if limit[2] < REM_END then
    -- Rounded up to six bits and an exponent.
    local _, exponent = math.frexp(ahead + 32)
    exponent = exponent - 6
    rem = rem + REM_END * (224 + exponent * 32 + ceil((ahead + 32) / 2 ^ exponent))
  end
  v[a], v[a + 1] = now + ahead, rem
end

local NUMBER = 7

algorithms[NUMBER] = {
  numbers = '<I7I7I7I7I7I7',
  format = 'I7I4',
  width = 2,
  -- Moves a state that a clock left more than a period ahead of what it was.
  settle = function(limit, v, t)
    local a, now, period = limit.at, floor(t / limit[4]), limit[6]
    local ahead = v[a] - now
    if ahead <= period or limit[2] >= REM_END then return end
    local known = floor(v[a + 1] / REM_END)
    if known <= 256 then return end
    local unit = 2 ^ (floor(known / 32) - 8)
    local most = (known % 32 + 32) * unit - 32
    if ahead > most and ahead > most - unit + 1 + period then v[a], moved = now + most, true end
  end,
  room = function(limit, v, t)
    local p = limit[3]
    return floor((limit[1] * p - level(limit, v, t)) / p)
  end,
  take = function(limit, v, t, hits)
    if limit.never then return end
    local l, now = level(limit, v, t)
    local n, p, most = limit[2], limit[3], limit[5]
    local top = (limit.counts_denied and most or limit[1]) * p
    if l >= top then return end
    l = l + (hits < most and hits or most) * p
    if l > top then l = top end
    local ahead = ceil(l / n)
    set(limit, v, now, ahead, ahead * n - l)
    return true
  end,
  refund = function(limit, v, t, hits)
    -- A limit that admits nothing has raised nothing.
    if limit[5] == 0 then return end
    -- In ticks, as far as that is exact: the level itself may be beyond it.
    local n, p, now = limit[2], limit[3], floor(t / limit[4])
    local most = floor((2 ^ 52 - 1) / p)
    local back = remainder(limit, v) + (hits < most and hits or most) * p
    local ticks = floor(back / n)
    set(limit, v, now, v[limit.at] - now - ticks, back - ticks * n)
  end,
  ends = function(limit, v)
    local ends = (v[limit.at] + 1) * limit[4]
    return ends - ends % 1000000 + 1000000
  end,
}
