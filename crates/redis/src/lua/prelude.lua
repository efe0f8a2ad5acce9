-- Names that the scripts share. script.rs joins this file, those of the algorithms that a call needs, rules.lua, and
-- charge.lua or reserve.lua to one script; or this file and windows.lua or lone_reserve.lua.
--
-- Numbers shared with weir have the same names as in codec/numbers.rs, and a test compares them. Names that
-- are rarely needed are declared where they are used: everything else is created at each call.
local call, try, read, pack = redis.call, redis.pcall, struct.unpack, struct.pack
local floor, ceil = math.floor, math.ceil
-- The layout of states, the largest count, the failure of an invalid state.
local LAYOUT, MAX_COUNT, INVALID = 1, 2 ^ 32 - 1, 2 ^ 32 - 16 + 2

-- The longest expiry, in milliseconds: a thousand years. No rule counts for longer, but a token bucket may need longer
-- to refill after its amount was lowered. Not every server accepts integers of fifteen digits and more.
local MAX_EXPIRY = 1000 * 365 * 86400000

-- Redis's message for the first error that has no number of its own.
local reason

local function failed(reply)
  local FAILURES, WRONG_TYPE, OTHER = 2 ^ 32 - 16, 1, 5
  local text = reply.err
  if text:find('WRONGTYPE', 1, true) then return FAILURES + WRONG_TYPE end
  reason = reason or text
  return FAILURES + OTHER
end

local algorithms, sliding_log = {}, nil
-- Whether the times in a state were set back because the clock stepped back by more than a period, or to before a ban
-- began. It is written even if nothing is charged, or it would deny until the clock reaches the old time.
local moved
