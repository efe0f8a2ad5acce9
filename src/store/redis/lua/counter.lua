-- Charges keys whose state is one number: those of a lone fixed window aligned to the epoch.
--
-- KEYS    one for each entry, in order; on a cluster all of one slot
-- ARGV    1, packed, little-endian:
--           I7 now, in microseconds since the epoch; 0 for the server's clock
--           I4 milliseconds to keep states for longer than they need
--           for each entry I7 its period, B what to do, and the numbers of that:
--             0 look
--             1 take       I7 hits, all of them counted, also past the limit
--             2 admit      I7 hits, I4 times, I4 n: counted as often as they are within n
--             3 give back  I7 hits
--             4 undo       I7 hits, I7 when they were taken: void in another window
--           A period of 0: the window is part of the key; then comes I7, the milliseconds to
--           keep it, after it.
-- Reply   packed: I7 now, and for each entry I7, the number as it was (0 for none). From 2^54 on
--         it is an error: plus 4 of a wrong type, 8 not a state, 12 no memory, 16 read-only, 20 other
-- State   the window mod 2^20, times 2^32, plus the count. With the window in the key: the count.
-- Cost    one command a key; a second one where a window begins
-- Expiry  with the window, rounded up; set when the window begins
local call, try, read, floor, ceil = redis.call, redis.pcall, struct.unpack, math.floor, math.ceil
local WINDOWS, COUNTS, STATES, ERROR = 2 ^ 20, 2 ^ 32, 2 ^ 52, 2 ^ 54

local function failed(reply)
  local text = reply.err
  if text:find('WRONGTYPE', 1, true) then return ERROR + 4 end
  if text:find('not an integer', 1, true) or text:find('overflow', 1, true) then return ERROR + 8 end
  if text:find('OOM', 1, true) then return ERROR + 12 end
  if text:find('READONLY', 1, true) then return ERROR + 16 end
  return ERROR + 20
end

local args = ARGV[1]
local t, slack, at = read('<I7I4', args)
if t == 0 then
  local now = call('TIME')
  t = now[1] * 1000000 + now[2]
end

local out = { t }
for i = 1, #KEYS do
  local key, p, op, hits, times, n, taken, window, ttl, most = KEYS[i]
  p, op, at = read('<I7B', args, at)
  if p > 0 then
    local passed = t % p
    window = (t - passed) / p % WINDOWS
    ttl = ceil((p - passed) / 1000) + slack
    most = COUNTS - 1
  else
    window, most = 0, STATES - 1
    ttl, at = read('<I7', args, at)
  end
  if op == 1 or op == 3 then
    hits, at = read('<I7', args, at)
  elseif op == 2 then
    hits, times, n, at = read('<I7I4I4', args, at)
  elseif op == 4 then
    hits, taken, at = read('<I7I7', args, at)
  end

  local old, new
  if op == 1 then
    new = try('INCRBY', key, hits)
    if type(new) == 'table' then
      old = failed(new)
      new = nil
    else
      old = new - hits
      if old < 0 or old >= STATES then
        call('DECRBY', key, hits)
        old, new = ERROR + 8, nil
      end
    end
  else
    local value = try('GET', key)
    if type(value) == 'table' then
      old = failed(value)
    else
      old = tonumber(value or 0)
      if not old or old < 0 or old >= STATES or old % 1 > 0 then
        old = ERROR + 8
      elseif op > 0 then
        new = old
      end
    end
  end

  if new then
    -- The window that the number is of. A clock that stepped back stays in the newest one, unless
    -- that is further ahead: then its count goes into the window of now.
    local was = p > 0 and floor(old / COUNTS) or 0
    local count, keep = old - was * COUNTS, old > 0
    local ahead = (was - window) % WINDOWS
    if ahead == 1 and keep then
      window = was
    elseif ahead > 0 then
      keep = false
      if ahead >= WINDOWS / 2 then count = 0 end
    end

    local sum
    if op == 1 then
      sum = count + hits
      if sum > most then sum = most end
    elseif op == 2 then
      local fit = n < count and 0 or floor((n - count) / hits)
      sum = count + hits * (fit < times and fit or times)
    elseif op == 4 and p > 0 and (taken - taken % p) / p % WINDOWS ~= window then
      sum = count
    else
      sum = count > hits and count - hits or 0
    end

    sum = window * COUNTS + sum
    if op == 1 then
      if not keep then
        call('SET', key, sum, 'PX', ttl)
      elseif sum ~= new then
        call('SET', key, sum, 'KEEPTTL')
      end
    elseif sum ~= window * COUNTS + count then
      local set = keep and try('SET', key, sum, 'KEEPTTL') or try('SET', key, sum, 'PX', ttl)
      if set.err then old = failed(set) end
    end
  end
  out[i + 1] = old
end

return struct.pack('<' .. string.rep('I7', #out), unpack(out))
