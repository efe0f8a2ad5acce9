-- What the algorithms share. This file, those of the algorithms that a call needs, and charge.lua make a
-- script.
local call, try, read, pack = redis.call, redis.pcall, struct.unpack, struct.pack
local floor, ceil = math.floor, math.ceil
-- The version of the layout of states, the largest count, the first error, a day.
local LAYOUT, MOST, ERROR, DAY = 1, 2 ^ 32 - 1, 2 ^ 32 - 16, 86400000000

-- The longest expiry, in milliseconds: a thousand years. Every rule's period is shorter; only a token
-- bucket that was filled by another rule may take longer, without a bound, and not every server reads
-- numbers of fifteen digits and more as integers.
local LONGEST = 1000 * 365 * 86400000

-- Redis's message for the first error that has no number of its own.
local reason

local function failed(reply)
  local text = reply.err
  if text:find('WRONGTYPE', 1, true) then return ERROR + 1 end
  if text:find('OOM', 1, true) then return ERROR + 3 end
  if text:find('READONLY', 1, true) then return ERROR + 4 end
  reason = reason or text
  return ERROR + 5
end

local algorithms, sliding_log = {}, nil
-- Whether a state was moved because the clock stepped back by more than a period: it is written even
-- where nothing is charged, or it would deny until the clock reaches the old time.
local moved
