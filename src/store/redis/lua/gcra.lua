-- gcra, also called leaky_bucket; see limit/algorithms/gcra.rs. All numbers stay below 2^52 and
-- so exact, except for a level far above the top, which is set to the top.
--
-- Numbers  burst, n', p', tick in microseconds, burst plus the largest debt (I7 each)
-- State    I7 theoretical arrival time in ticks, I4 what it is too late by, in 1/n' ticks
-- Cost     constant
-- Expiry   when the level is 0, at the next full second, so that successive states share it
local function level(limit, v, t)
  local a, now = limit.at, floor(t / limit[4])
  local tat = v[a]
  if tat <= now then return 0, now end
  -- A remainder of another n' counts as less than a tick too.
  local rem, n = v[a + 1], limit[2]
  local l = (tat - now) * n - (rem < n and rem or n - 1)
  local top = limit[5] * limit[3]
  if l < 0 then l = 0 elseif l > top then return top, now, true end
  return l, now
end

local function set(limit, v, now, l)
  local a, n = limit.at, limit[2]
  if l == 0 then
    -- Otherwise the old level would count again after the clock stepped back.
    v[a], v[a + 1] = 0, 0
    return
  end
  local ahead = ceil(l / n)
  v[a], v[a + 1] = now + ahead, ahead * n - l
end

local NUMBER = 7

algorithms[NUMBER] = {
  numbers = 'I7I7I7I7I7',
  format = 'I7I4',
  width = 2,
  settle = function(limit, v, t)
    local top, now, cut = level(limit, v, t)
    if cut then
      set(limit, v, now, top)
      moved = true
    end
  end,
  room = function(limit, v, t)
    local p = limit[3]
    return floor((limit[1] * p - level(limit, v, t)) / p)
  end,
  take = function(limit, v, t, hits)
    if limit.never then return end
    local l, now = level(limit, v, t)
    local p, most = limit[3], limit[5]
    local top = (limit.counts_denied and most or limit[1]) * p
    if top < l then top = l end
    l = l + (hits < most and hits or most) * p
    set(limit, v, now, l < top and l or top)
    return true
  end,
  give_back = function(limit, v, t, hits)
    local l, now = level(limit, v, t)
    local most = limit[5]
    l = l - (hits < most and hits or most) * limit[3]
    set(limit, v, now, l > 0 and l or 0)
  end,
  -- Less what has drained since.
  undo = function(limit, v, t, hits, taken)
    local l, now = level(limit, v, t)
    local passed, most = now - floor(taken / limit[4]), limit[5]
    local back = (hits < most and hits or most) * limit[3]
    if passed > 0 then back = back - passed * limit[2] end
    if back > 0 then l = l - back end
    set(limit, v, now, l > 0 and l or 0)
  end,
  ends = function(limit, v)
    local ends = (v[limit.at] + 1) * limit[4]
    return ends - ends % 1000000 + 1000000
  end,
}
