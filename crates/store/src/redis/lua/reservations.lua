-- Hits reserved under an id, and settled later; see limit/plan/reservation.rs. Turns an operation about a
-- reservation into one that charge.lua has, and keeps the record of the id.
--
-- Numbers  after those of the run, whose hits are those used, or to cancel, or the tag of a request: I4 the least hits to reserve, I4
--          the most of further ones, I4 the seconds within which they can be settled
-- Record   under a key of its own: a byte for the layout, I4 the hits that are reserved, I2 the number of
--          reservations that they are the sum of, I2 the limits that charged all of them, one bit each, I7
--          the time for which they count, I5 when they lapse, in seconds since the epoch, I2 the tag of the
--          request that made it, or 0
-- Cost     two commands, one where nothing is reserved
-- Expiry   when the reservation lapses
local NUMBER = 15
local RESERVE, SETTLE_OR_RESERVE, CANCEL, RESERVE_ONCE, SETTLE_KNOWN = 5, 7, 8, 9, 10
local FORMAT, SIZE, ALL_LIMITS, MAX_RESERVATIONS = '<BI4I2I2I7I5I2', 23, 2 ^ 16 - 1, 2 ^ 16 - 1

-- Returns the start of a limit's newest window or sub-window, 0 if it has none, and its end.
local function newest_window(limit, v)
  local unit = limit.algorithm.window_unit
  if not unit then return 0, 0 end
  local start = v[limit.at] * (unit == 0 and 1 or limit[unit])
  return start, limit.ending or start + limit[unit == 0 and 2 or unit]
end

-- Returns the start of the newest window of all limits, and the time for which hits count that are charged
-- now; see Plan::times of the file above.
local function times(rule, v, t)
  local newest = 0
  for i = 1, #rule do
    local start = newest_window(rule[i], v)
    if start > newest then newest = start end
  end
  if newest <= t then return newest, t end
  for i = 1, #rule do
    local _, ending = newest_window(rule[i], v)
    if ending <= newest then return newest, t end
  end
  return newest, newest
end

-- Returns the limits that charge hits if these are allowed, one bit each: in shadow mode those that would
-- admit them.
local function charging(rule, v, t, hits)
  local bits = 0
  for i = #rule, 1, -1 do
    local limit = rule[i]
    local admits = not limit.shadow or hits == 0 or not limit.never and limit.room(limit, v, t) >= hits
    bits = bits * 2 + (admits and 1 or 0)
  end
  return bits
end

algorithms[NUMBER] = {
  -- Reads the numbers of a run and the record under a key. Returns where the next run starts, the record,
  -- and an error.
  open = function(key, t, args, at)
    local text, least, more, timeout, err = try('GET', key) or '', nil, nil, nil, nil
    local _, hits, count, limits, taken, lapses, tag = 0, 0, 0, 0, 0, 0, 0
    least, more, timeout, at = read('<I4I4I4', args, at)
    if type(text) == 'table' then
      err = failed(text)
    elseif text ~= '' then
      if #text ~= SIZE or text:byte() ~= LAYOUT then
        err = INVALID
      else
        _, hits, count, limits, taken, lapses, tag = read(FORMAT, text)
      end
    end
    -- All fields at once: a table that grows is slow.
    return at, {
      key = key, was = text, live = t < lapses * 1000000,
      least = least, more = more, timeout = timeout,
      hits = hits, count = count, limits = limits, taken = taken, lapses = lapses, tag = tag,
      granted = false, charging = 0, settled = 0, kept = false,
    }, err
  end,
  -- Returns the operation that is made, with its hits, limits and time.
  resolve = function(record, rule, v, t, op, used, granted)
    local UNDO, ADD, UPTO = 2, 3, 4
    local is_new = not record.live and (op == RESERVE_ONCE or op == SETTLE_OR_RESERVE and used == 0)
    if op == RESERVE or is_new then
      record.tag = op == RESERVE_ONCE and used or 0
      record.granted = granted(rule, v, record.least, record.more, 1)
      record.charging = charging(rule, v, t, record.granted)
      return UPTO, record.granted
    end
    if not record.live then
      if op == CANCEL or op == SETTLE_KNOWN then used = 0 end
      return ADD, used, ALL_LIMITS
    end
    if op == RESERVE_ONCE then
      record.kept = true
      return ADD, 0, 0
    end
    if op == CANCEL then
      record.settled = used < record.hits and used or record.hits
      return UNDO, record.settled, record.limits, record.taken
    end
    record.settled = floor(record.hits / (record.count > 0 and record.count or 1))
    if used < record.settled then return UNDO, record.settled - used, record.limits, record.taken end
    return ADD, used - record.settled, record.limits
  end,
  -- Writes the record of an operation that was made, or of a reservation if it was `admitted`. Returns an
  -- error, if any.
  close = function(record, rule, v, t, slack, admitted)
    local hits, count, limits, taken, lapses = record.hits, record.count, record.limits, record.taken, record.lapses
    local set
    if record.kept then return end
    if record.granted then
      if not admitted then return end
      local newest, at = times(rule, v, t)
      local after = ceil((t + record.timeout * 1000000) / 1000000)
      if record.live and newest <= taken and count < MAX_RESERVATIONS then
        hits, count, limits = hits + record.granted, count + 1, bit.band(limits, record.charging)
        if hits > MAX_COUNT then hits = MAX_COUNT end
        if after > lapses then lapses = after end
        if at < taken then taken = at end
      else
        hits, count, limits, taken, lapses = record.granted, 1, record.charging, at, after
      end
      local ends = ceil((lapses * 1000000 - t) / 1000) + slack
      if ends < 1 then ends = 1 end
      set = try('SET', record.key, pack(FORMAT, LAYOUT, hits, count, limits, taken, lapses, record.tag), 'PX', ends)
    elseif record.live and count > 1 then
      hits = hits - record.settled
      local text = pack(FORMAT, LAYOUT, hits, count - 1, limits, taken, lapses, record.tag)
      set = try('SET', record.key, text, 'KEEPTTL')
    elseif record.was ~= '' then
      set = try('DEL', record.key)
    end
    return type(set) == 'table' and set.err and failed(set)
  end,
}
