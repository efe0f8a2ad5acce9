-- The algorithm concurrency with hold ids, which name requests in flight: a key of its own lists them. See
-- limit/algorithms/concurrency.rs. rules.lua and charge.lua call these functions.
--
-- Numbers  limit[1] on, read as codec.rs packs them; its packed format "holds" is the list
-- Hold     the hits in flight of one id: taking it again replaces the hold
-- Cost     two commands; grows with the holds, 19 bytes each
-- Expiry   the timeout after the newest start
local HEAD, HOLD = 8, 19

local function hits_of(holds, at) return (read('<I4', holds, at + 15)) end

-- Removes the hold of an id. Returns the other holds, and the removed hits.
local function without(holds, id)
  local hits, at = 0, holds:find(id, 1, true)
  while at do
    if at % HOLD == 1 then
      hits = hits + hits_of(holds, at)
      holds = holds:sub(1, at - 1) .. holds:sub(at + HOLD)
    else
      at = at + 1
    end
    at = holds:find(id, at, true)
  end
  return holds, hits
end

local NUMBER = 9

algorithms[NUMBER] = {
  keeps = 'holds',
  numbers = '<I7I7',
  format = '',
  width = 0,
  alone = true,
  open = function(limit, key)
    local holds = try('GET', key)
    if type(holds) == 'table' then return failed(holds) end
    limit.key, limit.was, limit.last, limit.holds, limit.changed = key, holds or '', 0, '', false
    if holds then
      if #holds < HEAD or (#holds - HEAD) % HOLD > 0 or holds:byte() ~= LAYOUT then return INVALID end
      limit.last, limit.holds = read('<I7', holds, 2), holds:sub(HEAD + 1)
    end
  end,
  settle = function(limit, _, t)
    local holds, timeout, back, sum, from = limit.holds, limit[2], 0, 0, 1
    if limit.last > t + timeout then
      back = limit.last - t
      local all = {}
      for at = 1, #holds, HOLD do
        local id, start, hits = read('<c8I7I4', holds, at)
        all[#all + 1] = pack('<c8I7I4', id, start > back and start - back or 0, hits)
      end
      limit.last, limit.changed, holds = t, true, table.concat(all)
    end
    local now = t > limit.last and t or limit.last
    while from <= #holds and read('<I7', holds, from + 8) + timeout <= now do from = from + HOLD end
    holds = holds:sub(from)
    for at = 1, #holds, HOLD do sum = sum + hits_of(holds, at) end
    limit.holds, limit.sum = holds, sum
  end,
  room = function(limit, _, _, id)
    local _, held = without(limit.holds, id)
    return limit[1] - limit.sum + held
  end,
  take = function(limit, _, t, hits, id)
    if limit.last < t then limit.last = t end
    local others, held = without(limit.holds, id)
    limit.holds = others .. pack('<c8I7I4', id, limit.last, hits)
    limit.sum, limit.changed = limit.sum - held + hits, true
  end,
  refund = function(limit, _, _, hits, id)
    local holds, kept = limit.holds, {}
    local last = #holds - HOLD + 1
    for at = last, 1, -HOLD do
      local held = hits_of(holds, at)
      if hits > 0 and holds:sub(at, at + 7) == id then
        local less = hits < held and hits or held
        hits, limit.sum, limit.changed = hits - less, limit.sum - less, true
        if less < held then table.insert(kept, 1, holds:sub(at, at + 14) .. pack('<I4', held - less)) end
      else
        table.insert(kept, 1, holds:sub(at, at + HOLD - 1))
      end
    end
    if limit.changed then limit.holds = table.concat(kept) end
  end,
  ends = function() return 0 end,
  close = function(limit, t, slack)
    if not limit.changed then return end
    limit.changed = false
    local text = pack('<BI7', LAYOUT, limit.last) .. limit.holds
    return try('SET', limit.key, text, 'PX', ceil((limit.last + limit[2] - t) / 1000) + slack)
  end,
}
