-- Reserves hits of a key under an id, settles them later with the hits that were used, or cancels them; see
-- limit/plan/reservation.rs. The record of the id is a key of its own. charge.lua or reserve.lua calls `make`.
--
-- Layouts  of its arguments ("run: RESERVE and later") and of records: codec.rs, packed formats
-- Cost     three commands; of a reservation that adds to others of its id, one if it is new, none if it is denied
-- Expiry   when the reservation lapses
local NUMBER = 15

-- Where the clock is behind the start of the newest window: returns the time for which hits charged now count, which is
-- that start if each limit has a window that includes it, else t. See Plan::times in limit/plan/reservation.rs.
local function time_before(newest, rule, v, t)
  for i = 1, #rule do
    local limit = rule[i]
    local unit = limit.algorithm.window_unit
    local ends = unit == 0 and (limit.ending or v[limit.at] + limit[2])
    ends = ends or unit and (v[limit.at] + 1) * limit[unit] or 0
    if ends <= newest then return t end
  end
  return newest
end

algorithms[NUMBER] = {
  -- Makes an operation, the only one of its entry. Returns an error, the record before, whether the operation was
  -- admitted, whether the state changed, and whether that may need a later expiry.
  make = function(key, reset_key, rule, v, t, slack, op, used, otherwise, least, more, timeout, state)
    local RESERVE, CANCEL, OR_CHARGE, OR_RESERVE, OR_LEAVE = 5, 7, 1, 2, 3
    local FORMAT, ALL_LIMITS, MAX_RESERVATIONS = '<BI4I2I2I7I5I2', 2 ^ 16 - 1, 2 ^ 16 - 1
    local was, err, live, hits, count, limits, taken, lapses, tag = '', nil, false
    -- What is charged to which limits whatever they say, or returned to them.
    local charged, returned, bits = 0, 0, ALL_LIMITS
    local changed, grows, set = false, false, nil
    -- A reservation without a tag reads a record only if it cannot write a new one.
    local adds_up = op == RESERVE and used == 0
    if not adds_up then
      err, was, live, hits, count, limits, taken, lapses, tag = open_record(key, reset_key, t)
      if err then return err end
    end
    if adds_up or not live and otherwise == OR_RESERVE then
      local ban = rule.ban
      if ban and ban.algorithm.is_banned(ban, v, t) then return nil, was, false, false, false end
      local reserved, charging, bit_of, newest = least + more, 0, 1, 0
      for i = 1, #rule do
        local limit = rule[i]
        local room = limit.never and 0 or limit.room(limit, v, t)
        if room < 0 then room = 0 end
        if room < reserved and not limit.shadow then reserved = room end
        limit.fits = room
      end
      -- What is denied is never charged.
      if reserved < least then
        local strikes = ban and ban.algorithm.strike(ban, v, t)
        return nil, was, false, strikes, strikes
      end
      -- The bits of the limits that charge: limits in shadow mode only if they would admit all of it.
      for i = 1, #rule do
        local limit = rule[i]
        if limit.fits >= reserved then
          charging = charging + bit_of
          -- To reserve nothing moves no window.
          if reserved > 0 then changed, grows = true, limit.take(limit, v, t, reserved) or grows end
        end
        bit_of = bit_of * 2
        local unit = limit.algorithm.window_unit
        local start = unit and v[limit.at] * (unit == 0 and 1 or limit[unit]) or 0
        if start > newest then newest = start end
      end
      local at = newest > t and time_before(newest, rule, v, t) or t
      local after = ceil((t + timeout * 1000000) / 1000000)
      if adds_up then
        local text = pack(FORMAT, LAYOUT, reserved, 1, charging, at, after, 0)
        set = try('SET', key, text, 'PX', ceil((after * 1000000 - t) / 1000) + slack, 'NX')
        if set then return set.err and failed(set), was, true, changed, grows end
        err, was, live, hits, count, limits, taken, lapses, tag = open_record(key, reset_key, t)
        if err then return err end
      end
      if live and newest <= taken and count < MAX_RESERVATIONS then
        hits, count, limits = hits + reserved, count + 1, bit.band(limits, charging)
        if hits > MAX_COUNT then hits = MAX_COUNT end
        if after > lapses then lapses = after end
        if at < taken then taken = at end
      else
        hits, count, limits, taken, lapses = reserved, 1, charging, at, after
      end
      tag = op == RESERVE and used or 0
      local ends = ceil((lapses * 1000000 - t) / 1000) + slack
      set = try('SET', key, pack(FORMAT, LAYOUT, hits, count, limits, taken, lapses, tag), 'PX', ends)
    elseif not live then
      if otherwise == OR_CHARGE then charged = used end
      if was ~= '' and otherwise ~= OR_LEAVE then set = try('DEL', key) end
    elseif op ~= RESERVE then
      local settled = floor(hits / (count > 0 and count or 1))
      if op == CANCEL then
        settled, used = used < hits and used or hits, 0
      end
      bits = limits
      if used >= settled then
        charged = used - settled
      elseif state ~= '' and taken > 0 then
        -- Without a state there is nothing to return.
        returned = settled - used
      end
      if count > 1 then
        set = try('SET', key, pack(FORMAT, LAYOUT, hits - settled, count - 1, limits, taken, lapses, tag), 'KEEPTTL')
      else
        set = try('DEL', key)
      end
    end
    if charged > 0 or returned > 0 then
      for i = 1, #rule do
        local limit = rule[i]
        if bits % 2 > 0 then
          changed = true
          if returned > 0 then
            limit.algorithm.undo(limit, v, t, returned, taken)
          else
            -- Whatever the limit says: as one that counts what it denies.
            local counts_denied = limit.counts_denied
            limit.counts_denied = true
            grows = limit.take(limit, v, t, charged) or grows
            limit.counts_denied = counts_denied
          end
        end
        bits = floor(bits / 2)
      end
    end
    return type(set) == 'table' and set.err and failed(set), was, true, changed, grows
  end,
}
