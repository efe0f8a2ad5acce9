-- Reserves hits under an id, and settles them with the hits that were used, for rules with one fixed window aligned to
-- the epoch and no other limit. Does the same as reserve.lua, with the same states and records, in less time. script.rs
-- puts it behind prelude.lua and records.lua.
--
-- KEYS, ARGV, reply as in reserve.lua
-- Cost    three commands per entry, five to settle, six for a further reservation of an id; two if nothing is charged
local args, KEYS, type = ARGV[1], KEYS, type
local WINDOWS, COUNTS, STATES, SHADOW, NEVER = 2 ^ 20 - 2, 2 ^ 33, 2 ^ 53, 2, 8
local RESERVE, CANCEL, OR_CHARGE, OR_RESERVE = 5, 7, 1, 2
local RECORD, MAX_RESERVATIONS = '<BI4I2I2I7I5I2', 2 ^ 16 - 1
-- Where the rules are, and the bytes of each.
local RULES, RULE_BYTES = 16, 17
local t, slack, count, at = read('<I7I4I4', args)
if t == 0 then
  local now = call('TIME')
  t = now[1] * 1000000 + now[2]
end

-- Behind the rules, and how entries are charged.
local out, i = { pack('<I7', t) }, 0
at = at + count * RULE_BYTES + 1
while at <= #args do
  local rule, op, used, otherwise, least, more, timeout
  rule, op, used, otherwise, least, more, timeout, at = read('<I4xxBI4xxxxBI4I4I4', args, at)
  local flags, n, p = read('<xxBI7I7', args, RULES + rule * RULE_BYTES)
  i = i + 1
  local key, record_key = KEYS[2 * i - 1], KEYS[2 * i]
  local reset_key = key .. ':reset'

  local state, window, set = try('GET', key) or '', floor(t / p), nil
  local err, count, changed, grows = nil, 0, false, false
  if type(state) == 'table' then
    err = failed(state)
  elseif state ~= '' then
    local number = tonumber(state)
    if not number or number < 0 or number >= STATES or number % 1 > 0 then
      err = INVALID
    elseif number < COUNTS then
      -- As if there were none: it has no expiry to keep.
      state = ''
    else
      local ahead = (floor(number / COUNTS) - 1 - window) % WINDOWS
      if ahead < WINDOWS / 2 then
        count = number % COUNTS
        if count > MAX_COUNT then count = MAX_COUNT end
        -- A window that a clock left far ahead is moved, and written.
        if ahead == 1 then window = window + 1 else changed, grows = ahead > 0, ahead > 0 end
      end
    end
  end

  local record, live, hits, sum_of, limits, taken, lapses, tag = '', false, 0, 0, 0, 0, 0, 0
  -- A reservation without a tag reads a record only if it cannot write a new one.
  local adds_up = op == RESERVE and used == 0
  if not err and not adds_up then
    err, record, live, hits, sum_of, limits, taken, lapses, tag = open_record(record_key, reset_key, t)
  end
  -- The hits to charge.
  local charged = 0
  if err then
    -- Nothing is made.
  elseif adds_up or not live and otherwise == OR_RESERVE then
    local reserved, room = least + more, flags < NEVER and count < n and n - count or 0
    if room < reserved and flags % 4 < SHADOW then reserved = room end
    -- What is denied is never charged.
    if reserved >= least then
      local admits = room >= reserved
      if admits then charged = reserved end
      local charging, newest = admits and 1 or 0, window * p
      local time, after = newest > t and newest or t, ceil((t + timeout * 1000000) / 1000000)
      if adds_up then
        local text = pack(RECORD, LAYOUT, reserved, 1, charging, time, after, 0)
        set = try('SET', record_key, text, 'PX', ceil((after * 1000000 - t) / 1000) + slack, 'NX')
        if not set then err, record, live, hits, sum_of, limits, taken, lapses, tag = open_record(record_key, reset_key, t) end
      end
      if not set and not err then
        if live and newest <= taken and sum_of < MAX_RESERVATIONS then
          hits, sum_of, limits = hits + reserved, sum_of + 1, bit.band(limits, charging)
          if hits > MAX_COUNT then hits = MAX_COUNT end
          if after > lapses then lapses = after end
          if time < taken then taken = time end
        else
          hits, sum_of, limits, taken, lapses = reserved, 1, charging, time, after
        end
        tag = op == RESERVE and used or 0
        local text = pack(RECORD, LAYOUT, hits, sum_of, limits, taken, lapses, tag)
        set = try('SET', record_key, text, 'PX', ceil((lapses * 1000000 - t) / 1000) + slack)
      end
    end
  elseif not live then
    if otherwise == OR_CHARGE then charged = used end
    if record ~= '' then set = try('DEL', record_key) end
  elseif op ~= RESERVE then
    local settled = floor(hits / (sum_of > 0 and sum_of or 1))
    if op == CANCEL then
      settled, used = used < hits and used or hits, 0
    end
    if limits % 2 > 0 then
      if used >= settled then
        charged = used - settled
      elseif state ~= '' and taken > 0 then
        -- Without a state there is nothing to return.
        local less = window * p <= taken and settled - used or 0
        count, changed = count > less and count - less or 0, true
      end
    end
    if sum_of > 1 then
      local text = pack(RECORD, LAYOUT, hits - settled, sum_of - 1, limits, taken, lapses, tag)
      set = try('SET', record_key, text, 'KEEPTTL')
    else
      set = try('DEL', record_key)
    end
  end
  if type(set) == 'table' and set.err then err = failed(set) end

  if charged > 0 then
    changed, grows = true, grows or count == 0
    count = count + charged < MAX_COUNT and count + charged or MAX_COUNT
  end
  if changed and not err then
    local number = (window % WINDOWS + 1) * COUNTS + count
    if state ~= '' and not grows then
      set = try('SET', key, number, 'KEEPTTL')
    else
      local ends = count > 0 and (window + 1) * p or 0
      -- A number of no window: a plain INCRBY must not count in one that expires now.
      if ends <= t then number = 0 end
      set = try('SET', key, number, 'PX', ends > t and ceil((ends - t) / 1000) + slack or 1)
    end
    if set.err then
      err = failed(set)
      -- Hits that are not charged must not be returned.
      try('DEL', record_key)
    end
  end
  out[i + 1] = err and pack('<I4', err) or pack('<I4c0I4c0', #state, state, #record, record)
end

out[i + 2] = reason
return table.concat(out)
