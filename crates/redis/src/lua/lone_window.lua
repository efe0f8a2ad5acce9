-- The algorithm fixed_window where a rule has no other limit: its state is the one number of counter.lua. charge.lua
-- calls these functions for what counter.lua does not do, such as to charge several keys all or none.
--
-- Cost     constant
-- Expiry   with the window
local WINDOWS, COUNTS, STATES = 2 ^ 20 - 2, 2 ^ 33, 2 ^ 53
local FIXED_WINDOW, NUMBER = 1, 10
local fixed_window = algorithms[FIXED_WINDOW]

algorithms[NUMBER] = {
  keeps = 'counter',
  answers_looks_if_n_is_zero = true,
  numbers = '<I7I7',
  format = 'I7I4',
  width = 2,
  window_unit = 0,
  settle = fixed_window.settle,
  room = fixed_window.room,
  take = fixed_window.take,
  refund = fixed_window.refund,
  undo = fixed_window.undo,
  ends = fixed_window.ends,
  -- Returns the numbers of a state; 0 where it is of no window and counts nothing; nil where the text is
  -- not a state.
  decode = function(limit, text, t)
    local number, p = tonumber(text), limit[2]
    if not number or number < 0 or number >= STATES or number % 1 > 0 then return end
    local near = floor(t / p)
    if number < COUNTS then return 0 end
    local ahead, count = (floor(number / COUNTS) - 1 - near) % WINDOWS, number % COUNTS
    if ahead >= WINDOWS / 2 then ahead = ahead - WINDOWS end
    return { LAYOUT, (near + ahead) * p, count < MAX_COUNT and count or MAX_COUNT }
  end,
  encode = function(limit, v)
    return (v[2] / limit[2] % WINDOWS + 1) * COUNTS + v[3]
  end,
}
