-- A whole script: charges keys of rules with one fixed window aligned to the epoch and no other limit. The state of
-- such a key is one number, its counter: the window and its hits.
--
-- KEYS    one for each entry (the charges of one key), in order; on a cluster all of one slot
-- ARGV    1, a call with counter entries. Layouts of this, the reply and counters: codec.rs, packed formats
--           TAKE counts all hits, even above the limit; ADMIT as many times as they fit within n
--           UNDO has no effect in a later window
--           REPAIR repairs the number that a plain INCRBY of these hits met, without charging more: it
--           subtracts them from what is not a state; see counter.rs
-- Cost    one command per key; a second one where a window starts
-- Expiry  with the window, rounded up; set when the window starts
local KEYS, args, try, read, type = KEYS, ARGV[1], redis.pcall, struct.unpack, type
local WINDOWS, COUNTS, MAX_COUNT, TAKE = 2 ^ 20 - 2, 2 ^ 33, 2 ^ 32 - 1, 1
local t, slack, at = read('<I7I4', args)
if t == 0 then
  local now = redis.call('TIME')
  t = now[1] * 1000000 + now[2]
end

-- Hits of one key in a window that has started: skips the set-up of everything else.
local incremented
if #args == 24 then
  local p, op, _, hits = read('<I7BBI4', args, at)
  if op == TAKE then
    local new, low = try('INCRBY', KEYS[1], hits == 1 and '1' or hits), ((t - t % p) / p % WINDOWS + 1) * COUNTS
    if type(new) == 'number' and new - hits > low and new <= low + MAX_COUNT then
      return struct.pack('<I7I7', t, new - hits)
    end
    incremented = new
  end
end

-- The rare cases: a window starts, a clock stepped back, a count is full, a command failed; and every
-- operation but take.
local function rare_case(key, op, p, window, ttl, new, hits, times, n, taken)
  -- Declared again: locals cost less than upvalues, which each call would create.
  local LOOK, TAKE, ADMIT, UNDO, REPAIR = 0, 1, 2, 4, 5
  local STATES, FAILURES, STEP, CORRUPT, floor = 2 ^ 53, 2 ^ 54, 4, 2, math.floor
  -- Returns the number of an error, and Redis's message for one that has none of its own.
  local function failed(reply)
    local FAILURES, STEP, WRONG_TYPE, CORRUPT, OTHER = 2 ^ 54, 4, 1, 2, 5
    local text = reply.err
    if text:find('WRONGTYPE', 1, true) then return FAILURES + WRONG_TYPE * STEP end
    if text:find('not an integer', 1, true) or text:find('overflow', 1, true) then return FAILURES + CORRUPT * STEP end
    return FAILURES + OTHER * STEP, text
  end
  local old
  if op == TAKE then
    if type(new) == 'table' then return failed(new) end
    old = new - hits
    if old < 0 or old >= STATES then
      try('DECRBY', key, hits)
      return FAILURES + CORRUPT * STEP
    end
  else
    local value = try('GET', key)
    if type(value) == 'table' then return failed(value) end
    old = tonumber(value or 0)
    local before = op == REPAIR and old and old - hits or old
    if not before or before < 0 or before >= STATES or before % 1 > 0 then
      if op ~= REPAIR then return FAILURES + CORRUPT * STEP end
      if before then try('DECRBY', key, hits) end
      return 0
    end
    if op == LOOK then return old end
    if op == REPAIR and old < COUNTS then
      -- Let it expire now: INCRBY sets no expiry, so it would stay forever.
      if value then try('SET', key, 0, 'PX', 1) end
      return 0
    end
  end

  -- The window of the number. A clock that stepped back by one window stays in the newest one; where that
  -- is further ahead, its count moves to the current window.
  local was = floor(old / COUNTS)
  local count, keep, moved = old - was * COUNTS, old > 0, false
  local ahead = (was - window) % WINDOWS
  if count > MAX_COUNT then count = MAX_COUNT end
  if was == 0 then
    count, keep = 0, false
  elseif ahead == 1 then
    window = was
  elseif ahead > 0 then
    keep = false
    if ahead >= WINDOWS / 2 then count = 0 else moved = true end
  end

  -- By how many windows this is later than that of the hits to undo.
  local later = op == UNDO and (window - 1 - floor(taken / p)) % WINDOWS or 0
  local sum
  if op == TAKE then
    sum = count + hits
    if sum > MAX_COUNT then sum = MAX_COUNT end
  elseif op == ADMIT then
    local fit = n < count and 0 or floor((n - count) / hits)
    sum = count + hits * (fit < times and fit or times)
  elseif op == REPAIR or later > 0 and later < WINDOWS / 2 then
    sum = count
  else
    sum = count > hits and count - hits or 0
  end

  sum = window * COUNTS + sum
  local set
  if op == TAKE then
    if not keep then
      set = try('SET', key, sum, 'PX', ttl)
    elseif sum ~= new then
      set = try('SET', key, sum, 'KEEPTTL')
    end
  elseif moved or sum ~= (op == REPAIR and keep and old or window * COUNTS + count) then
    set = keep and try('SET', key, sum, 'KEEPTTL') or try('SET', key, sum, 'PX', ttl)
  end
  if set and set.err then return failed(set) end
  return old
end

local ADMIT, REFUND, UNDO, REPAIR = 2, 3, 4, 5
local out, i, last, reason = { t }, 0, #args, nil
while at <= last do
  local p, op, count, window, ttl
  p, op, count, at = read('<I7BB', args, at)
  local passed = t % p
  window = (t - passed) / p % WINDOWS + 1
  ttl = (p - passed) / 1000
  ttl = ttl - ttl % 1 + 1 + slack
  if op == TAKE then
    local low, high = window * COUNTS, window * COUNTS + MAX_COUNT
    for _ = 1, count do
      i = i + 1
      local key, hits = KEYS[i], nil
      hits, at = read('<I4', args, at)
      local new = incremented or try('INCRBY', key, hits == 1 and '1' or hits)
      if type(new) == 'number' and new - hits > low and new <= high then
        out[i + 1] = new - hits
      else
        local number, text = rare_case(key, op, p, window, ttl, new, hits)
        out[i + 1], reason = number, reason or text
      end
    end
  else
    for _ = 1, count do
      i = i + 1
      local hits, times, n, taken
      if op == ADMIT then
        hits, times, n, at = read('<I4I4I4', args, at)
      elseif op == REFUND or op == REPAIR then
        hits, at = read('<I4', args, at)
      elseif op == UNDO then
        hits, taken, at = read('<I4I7', args, at)
      end
      local number, text = rare_case(KEYS[i], op, p, window, ttl, nil, hits, times, n, taken)
      out[i + 1], reason = number, reason or text
    end
  end
end

-- Redis's message for the first error that has no number of its own.
if reason then return struct.pack('<' .. string.rep('I7', i + 1), unpack(out)) .. reason end
if i == 1 then return struct.pack('<I7I7', t, out[2]) end
return struct.pack('<' .. string.rep('I7', i + 1), unpack(out))
