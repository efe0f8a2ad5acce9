-- What the algorithms share. This, the algorithms that a call needs and charge.lua make a script.
local call, try, read, pack = redis.call, redis.pcall, struct.unpack, struct.pack
local floor, ceil = math.floor, math.ceil
-- The layout of states, the most a count can be, the first of the errors, a day.
local LAYOUT, MOST, ERROR, DAY = 1, 2 ^ 32 - 1, 2 ^ 32 - 16, 86400000000

-- No state is kept for longer, in milliseconds: a thousand years. What a rule may count is over by then;
-- only what a rule of another amount left in a token bucket may take longer, and as long as it likes:
-- numbers of fifteen digits and more are not whole numbers to every server.
local LONGEST = 1000 * 365 * 86400000

-- Of the first error that has no number of its own, what Redis says.
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
-- where nothing is charged, or it would block until the clock is there again.
local moved
