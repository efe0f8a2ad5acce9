-- Reads the rules that a call sends (limits and their algorithms), and reads and writes states of keys by them, for
-- charge.lua or reserve.lua, which script.rs puts behind it. Layouts of rules and states: codec.rs, packed formats.
--
-- The functions of an algorithm find the numbers of a limit from limit[1] on, and those of its state in v from limit.at
-- on, which settle brings to now, t. Layouts of both: tables in codec.rs
local args = ARGV[1]
local t, slack, count, at = read('<I7I4I4', args)
if t == 0 then
  local now = call('TIME')
  t = now[1] * 1000000 + now[2]
end

-- Flags of a limit: each is one bit.
local COUNTS_DENIED, SHADOW, STRICT, NEVER = 1, 2, 4, 8

local rules = {}
for i = 1, count do
  -- Fields that are declared at once cost less than those that a table grows by.
  local rule = { format = '', width = 1, size = 0, rings = nil, log = nil, holds = nil, lone = nil, ban = nil }
  local format, width, rings, log = '<B', 1, nil, nil
  count, at = read('B', args, at)
  for j = 1, count do
    local number, flags
    number, flags, at = read('BB', args, at)
    local algorithm = algorithms[number]
    local counts_denied, never, keeps = flags % 2 >= COUNTS_DENIED, flags >= NEVER, algorithm.keeps
    local limit = {
      algorithm = algorithm,
      settle = algorithm.settle,
      room = algorithm.room,
      take = algorithm.take,
      at = width + 1,
      counts_denied = counts_denied,
      shadow = flags % 4 >= SHADOW,
      strict = flags % 8 >= STRICT,
      never = never,
      -- A limit of 0 denies looks too, except a fixed window that counts what it denies.
      denies_looks = never and not (counts_denied and algorithm.answers_looks_if_n_is_zero),
      -- Behind its numbers, where the next limit is.
      read(algorithm.numbers, args, at),
    }
    at = limit[#limit]
    if keeps == 'ban' then
      rule.ban, at = limit, algorithm.read(limit, args, at)
    else
      rule[j] = limit
    end
    format, width = format .. algorithm.format, width + algorithm.width
    if algorithm.alone then rule.alone = true end
    if keeps == 'log' then
      local n, p = limit[1], limit[2]
      log = log or { longest = 0, shortest = p, stamps = 0 }
      if p > log.longest then log.longest = p end
      if p < log.shortest then log.shortest = p end
      if n > log.stamps then log.stamps = n end
      limit.log = log
    elseif keeps == 'ring' then
      rings = rings or {}
      rings[#rings + 1] = limit
    elseif keeps == 'holds' then
      rule.holds = limit
    elseif keeps == 'counter' then
      rule.lone = limit
    end
  end
  if log then
    log.at = width + 1
    format, width = format .. sliding_log.FORMAT, width + sliding_log.WIDTH
  end
  local size = struct.size(format)
  if rings then
    for _, limit in ipairs(rings) do
      limit.ring_at = size
      size = size + limit[3] * 4
    end
  end
  if log then log.base = size end
  rule.format, rule.width, rule.size, rule.rings, rule.log = format, width, size, rings, log
  rules[i] = rule
end

-- Reads a state and brings it to the current time. Returns an error, or the stored state and its numbers.
local function open(rule, key, holds_key)
  local log, holds, rings, state, v = rule.log, rule.holds, rule.rings, nil, nil
  if log then
    state = try('GETRANGE', key, 0, rule.size + sliding_log.AHEAD - 1)
  elseif rule.width == 1 then
    state = ''
  else
    state = try('GET', key) or ''
  end
  if type(state) == 'table' then return failed(state) end
  if rule.lone and state ~= '' then
    v = rule.lone.algorithm.decode(rule.lone, state, t)
    if not v then return INVALID end
    -- As if there were none: it has no expiry to keep.
    if v == 0 then state = '' end
  end
  if state == '' then
    v = { LAYOUT }
    for i = 2, rule.width do v[i] = 0 end
    if rings then
      for _, limit in ipairs(rings) do limit.ring = string.rep('\0', limit[3] * 4) end
    end
  elseif not rule.lone then
    if #state < rule.size or not log and #state > rule.size or state:byte() ~= LAYOUT then return INVALID end
    v = { read(rule.format, state) }
    if rings then
      for _, limit in ipairs(rings) do limit.ring = state:sub(limit.ring_at + 1, limit.ring_at + limit[3] * 4) end
    end
  end
  local err
  if log then
    log.key, log.text = key, state
    err = sliding_log.settle(log, v, t)
    state = state:sub(1, rule.size)
  end
  if holds then err = err or holds.algorithm.open(holds, holds_key) end
  if err then return err end
  for i = 1, #rule do
    local limit = rule[i]
    err = limit.settle(limit, v, t)
    if err then return err end
  end
  if rule.ban then err = rule.ban.settle(rule.ban, v, t) end
  return err, state, v
end

-- Writes a state that was read as `state`. Returns an error, if any.
local function close(rule, key, state, v, grows)
  local text, ends, lone = nil, 0, rule.lone
  if lone then
    text = lone.algorithm.encode(lone, v)
  else
    text = pack(rule.format, unpack(v, 1, rule.width))
  end
  if rule.rings then
    for _, limit in ipairs(rule.rings) do text = text .. limit.ring end
  end
  local keeps, log = state ~= '' and not grows, rule.log
  if not keeps then
    for i = 1, #rule do
      local limit = rule[i]
      local e = limit.algorithm.ends(limit, v, t)
      if e > ends then ends = e end
    end
    local log_ends = log and sliding_log.ends(log, v) or 0
    local ban_ends = rule.ban and rule.ban.algorithm.ends(rule.ban, v) or 0
    if log_ends > ends then ends = log_ends end
    if ban_ends > ends then ends = ban_ends end
    -- A number of no window: a plain INCRBY must not count in one that expires now.
    if lone and ends <= t then text = 0 end
    ends = ends > t and ceil((ends - t) / 1000) + slack or 1
    if ends > MAX_EXPIRY then ends = MAX_EXPIRY end
  end
  local set
  if log then
    set = try('SETRANGE', key, 0, text)
    if type(set) == 'number' and not keeps then set = try('PEXPIRE', key, ends) end
  elseif keeps then
    set = try('SET', key, text, 'KEEPTTL')
  else
    set = try('SET', key, text, 'PX', ends)
  end
  return type(set) == 'table' and set.err and failed(set)
end

