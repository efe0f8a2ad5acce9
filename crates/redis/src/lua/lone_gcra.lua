-- A whole script: takes hits of keys of rules with a gcra and no other limit. Does the same as charge.lua, with the
-- same states, in less time. batch.rs picks it for such charges. See limit/algorithms/gcra.rs.
--
-- KEYS    one for each entry (the charges of one key), in order; on a cluster all of one slot
-- ARGV    1, a call with rules and entries in a short form, lean. Layouts of this and others: codec.rs, packed formats
-- Expiry  as in gcra.lua: it is only set where a state ends in another second than before. At most a
--         thousand years, as no rule is longer: 14 digits in milliseconds, so every server reads an
--         integer
-- Cost    two commands per key, one where nothing is charged
local KEYS, args, try, read, pack, type, floor = KEYS, ARGV[1], redis.pcall, struct.unpack, struct.pack, type, math.floor
-- One key of one rule: reads all numbers at once, and skips what several entries need.
local one = #args == 65
local LAYOUT, COUNTS_DENIED, NEVER = 1, 1, 8
local t, slack, count, at, burst, n, p, tick, most, period, flags, hits, times
if one then
  t, slack, count, burst, n, p, tick, most, period, flags, at, at, hits, times = read('<I7I4BI7I7I7I7I7I7BBBI4I4', args)
  at = 13
else
  t, slack, count, at = read('<I7I4B', args)
end
if t == 0 then
  local now = redis.call('TIME')
  t = now[1] * 1000000 + now[2]
end

local REM_END = 2 ^ 21

-- Returns the arrival time of a state that a clock left more than a period ahead of what it was.
local function stepped_back(tat, tail, now)
  local ahead, known = tat - now, floor(tail / REM_END)
  if ahead <= period or n >= REM_END or known <= 256 then return end
  local unit = 2 ^ (floor(known / 32) - 8)
  local far = (known % 32 + 32) * unit - 32
  if ahead > far and ahead > far - unit + 1 + period then return now + far end
end

-- Returns a state, which is rounded up as in gcra.lua.
local function state_of(now, ahead, rem)
  if n < REM_END then
    local _, exponent = math.frexp(ahead + 32)
    exponent = exponent - 6
    rem = rem - REM_END * (-224 - exponent * 32 + floor(-(ahead + 32) / 2 ^ exponent))
  end
  return pack('<BI7I4', LAYOUT, now + ahead, rem)
end

if one and flags < NEVER and flags % 2 < COUNTS_DENIED then
  local key = KEYS[1]
  -- `before` is the end of the stored state.
  local state, now, level, top, before = try('GET', key), (t - t % tick) / tick, 0, most * p, 0
  if not state then
    state = ''
  elseif type(state) == 'string' and #state == 12 and state:byte() == LAYOUT then
    local tat, tail = read('<I7I4', state, 2)
    before = (tat + 1) * tick
    if tat > now then
      if tat - now > period and stepped_back(tat, tail, now) then
        level = top + 1
      else
        local rem = n < REM_END and tail % REM_END or tail
        -- A remainder of another n' counts as less than a tick too.
        level = (tat - now) * n - (rem < n and rem or n - 1)
      end
    end
  else
    level = top + 1
  end
  -- Values that are not states, and states beyond the top or that a clock left far ahead, are rare: left
  -- to the loop below.
  if level <= top then
    local fit, each = burst * p - level, hits * p
    if times > 1 then
      if fit > times * each then fit = times * each else fit = fit - fit % each end
    elseif fit > each then
      fit = each
    elseif fit < each then
      fit = 0
    end
    if fit <= 0 or hits > burst then return pack('<I7I4c0', t, #state, state) end
    level = level + fit
    local rem = -level % n
    local ahead, set = (level + rem) / n, nil
    local ends = (now + ahead + 1) * tick
    ends = ends - ends % 1000000
    local text = state_of(now, ahead, rem)
    if before >= ends and before < ends + 1000000 then
      set = try('SET', key, text, 'KEEPTTL')
    else
      ends = (ends + 1000000 - t) / 1000
      set = try('SET', key, text, 'PX', ends - ends % 1 + 1 + slack)
    end
    if not set.err then return pack('<I7I4c0', t, #state, state) end
  end
end

local rules = {}
for i = 1, count do
  local rule = { read('<I7I7I7I7I7I7B', args, at) }
  rules[i], at = rule, rule[8]
end

-- The failure of an invalid state, and Redis's message for the last error that has no number of its own.
local INVALID, reason = 2 ^ 32 - 16 + 2, nil
local function failed(reply)
  local FAILURES, WRONG_TYPE, OTHER = 2 ^ 32 - 16, 1, 5
  if reply.err:find('WRONGTYPE', 1, true) then return pack('<I4', FAILURES + WRONG_TYPE) end
  reason = reply.err
  return pack('<I4', FAILURES + OTHER)
end

local out, i, last = { pack('<I7', t) }, 0, #args
while at <= last do
  local rule, entries
  rule, entries, at = read('BB', args, at)
  rule = rules[rule + 1]
  burst, n, p, tick, most, period, flags = unpack(rule, 1, 7)
  local now = (t - t % tick) / tick
  local room, top = burst * p, most * p
  for _ = 1, entries do
    i = i + 1
    local key, result = KEYS[i], nil
    hits, times, at = read('<I4I4', args, at)
    local state, level, stays, moved, before = try('GET', key), 0, 0, nil, 0
    if not state then
      state = ''
    elseif type(state) == 'table' then
      result = failed(state)
    elseif #state ~= 12 or state:byte() ~= LAYOUT then
      result = pack('<I4', INVALID)
    else
      local tat, tail = read('<I7I4', state, 2)
      before = (tat + 1) * tick
      if tat > now then
        local to = stepped_back(tat, tail, now)
        if to then tat, before, moved = to, 0, pack('<BI7I4', LAYOUT, to, tail) end
        local rem = n < REM_END and tail % REM_END or tail
        level = (tat - now) * n - (rem < n and rem or n - 1)
        stays = tat - now
      end
    end
    if not result then
      local fit = 0
      if hits <= burst and level <= room and flags < NEVER then fit = floor((room - level) / (p * hits)) end
      if fit > times then fit = times end
      -- Admitted hits fit; denied hits that are charged may fill it to the top.
      local raised = level + fit * hits * p
      if flags % 2 >= COUNTS_DENIED and flags < NEVER and fit < times and raised < top then
        local more = (times - fit) * hits
        raised = raised + (more < most and more or most) * p
        if raised > top then raised = top end
      end
      if raised > level or moved then
        local ahead, set, text = stays, nil, moved
        if raised > level then
          ahead = -floor(-raised / n)
          text = state_of(now, ahead, ahead * n - raised)
        end
        local ends = (now + ahead + 1) * tick
        ends = ends - ends % 1000000
        if before >= ends and before < ends + 1000000 then
          set = try('SET', key, text, 'KEEPTTL')
        else
          ends = (ends + 1000000 - t) / 1000
          set = try('SET', key, text, 'PX', ends - ends % 1 + 1 + slack)
        end
        if set.err then result = failed(set) end
      end
      result = result or pack('<I4c0', #state, state)
    end
    out[i + 1] = result
  end
end

if reason then out[i + 2] = reason end
return table.concat(out)
