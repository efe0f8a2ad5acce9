-- Takes hits of keys of rules with several fixed windows aligned to the epoch. Does the same as charge.lua, with the
-- same states, in less time. batch.rs picks it for such charges. script.rs puts it behind prelude.lua.
--
-- KEYS    one for each entry (the charges of one key), in order; on a cluster all of one slot
-- ARGV    1, a call with rules and entries in a short form, lean. Layouts of this and others: codec.rs, packed formats
-- Cost    two commands per key, one where nothing is charged
-- Expiry  as in charge.lua
local KEYS, args, type = KEYS, ARGV[1], type
local COUNTS_DENIED, SHADOW, NEVER = 1, 2, 8
local t, slack, rules, at = read('<I7I4B', args)
if t == 0 then
  local now = call('TIME')
  t = now[1] * 1000000 + now[2]
end

for i = 1, rules do
  local count
  count, at = read('B', args, at)
  -- For limit j, from 4 j - 3 on: n, period, flags, and the start of the current window.
  local rule = { count = count, format = '<B' .. string.rep('I7I4', count), size = 1 + 11 * count }
  for j = 1, 4 * count, 4 do
    rule[j], rule[j + 1], rule[j + 2], at = read('<I7I7B', args, at)
    rule[j + 3] = t - t % rule[j + 1]
  end
  if i == 1 then rules = {} end
  rules[i] = rule
end

local out, i, last, fits = { pack('<I7', t) }, 0, #args, {}
while at <= last do
  local rule, entries
  rule, entries, at = read('BB', args, at)
  rule = rules[rule + 1]
  local format, size, limits = rule.format, rule.size, rule.count * 4
  for _ = 1, entries do
    i = i + 1
    local key, hits, times = KEYS[i], nil, nil
    hits, times, at = read('<I4I4', args, at)
    local state, result, v = try('GET', key), nil, nil
    local keeps = state
    if not state then
      state, v = '', { LAYOUT }
      for a = 2, limits / 2, 2 do v[a], v[a + 1] = 0, 0 end
    elseif type(state) == 'table' then
      result = pack('<I4', failed(state))
    elseif #state ~= size or state:byte() ~= LAYOUT then
      result = pack('<I4', INVALID)
    else
      v = { read(format, state) }
    end
    if not result then
      local all, changed, a = times, false, 2
      for j = 1, limits, 4 do
        local window, start = v[a], rule[j + 3]
        if window ~= start then
          local p = rule[j + 1]
          if window <= t or window > t + p then
            v[a] = start
            -- A window that a clock left far ahead is moved, and written.
            if window <= t then v[a + 1] = 0 else changed, keeps = true, false end
          elseif window % p > 0 then
            v[a], v[a + 1] = window - window % p, 0
          end
        end
        local fit, flags = rule[j] - v[a + 1], rule[j + 2]
        if fit < hits or flags >= NEVER then fit = 0 elseif hits > 1 then fit = floor(fit / hits) end
        fits[a] = fit
        if fit < all and flags % 4 < SHADOW then all = fit end
        a = a + 2
      end
      a = 3
      for j = 1, limits, 4 do
        local charged = times
        if rule[j + 2] % 2 < COUNTS_DENIED then
          charged = fits[a - 1]
          if charged > all then charged = all end
        end
        if charged > 0 then
          local count = v[a]
          if count == 0 then keeps = false end
          count = count + charged * hits
          if count > MAX_COUNT then count = MAX_COUNT end
          v[a], changed = count, true
        end
        a = a + 2
      end
      if changed then
        local text = pack(format, unpack(v, 1, limits / 2 + 1))
        local set
        if keeps then
          set = try('SET', key, text, 'KEEPTTL')
        else
          local ends = 0
          a = 2
          for j = 1, limits, 4 do
            local e = v[a] + rule[j + 1]
            if v[a + 1] > 0 and e > ends then ends = e end
            a = a + 2
          end
          -- All hits were refunded: the move is written, and the state expires at once.
          ends = ends > t and (ends - t) / 1000 + slack or 0
          set = try('SET', key, text, 'PX', ends - ends % 1 + 1)
        end
        if set.err then result = pack('<I4', failed(set)) end
      end
      result = result or pack('<I4c0', #state, state)
    end
    out[i + 1] = result
  end
end

out[#out + 1] = reason
return table.concat(out)
