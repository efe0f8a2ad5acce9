-- Charges keys of any rule: the end of the general script, which script.rs joins (prelude.lua, algorithms, rules.lua,
-- this file). All limits of a rule are one state under one key; hits are charged to all of them or none.
--
-- KEYS    for each entry (the charges of one key) its key, then the key of its holds (requests in flight, by id) if the
--         rule has hold ids, then that of its record (hits reserved under an id); on a cluster all of one slot
-- ARGV    1, a call with rules and entries. Layouts of all that is read, written, replied: codec.rs, packed formats
-- Cost    two commands per key, one where nothing is charged; see the algorithms
-- Expiry  when the state means the same as no state, rounded up
-- Entries are charged all or none; a quota outside the call passes (quotas deny only if all of a request do).
local TOGETHER, QUOTA_PASSES = 1, 2
local how
how, at = read('B', args, at)
local together, quota_passes = how % 2 >= TOGETHER, how >= QUOTA_PASSES

local out = { pack('<I7', t) }
local key_at = 0

-- Each of the following operations returns an error, whether all hits were admitted, whether the state changed, and
-- whether it may need a later expiry.

-- Takes hits a number of times. Returns also whether an enforcing limit denied some, other than one of hits in flight.
local function take(rule, v, hits, times, id)
  local fits, all, log, denied = {}, times, rule.log, false
  for i = 1, #rule do
    local limit = rule[i]
    local room, fit = limit.room(limit, v, t, id), 0
    if hits == 0 then
      -- A look: denied above the limit where denied hits are charged, else at the limit.
      if room >= (limit.counts_denied and 0 or 1) then fit = times end
      if limit.denies_looks then fit = 0 end
    elseif room >= hits and not limit.never then
      fit = floor(room / hits)
    end
    fits[i] = fit
    if fit < times and not limit.shadow then
      if fit < all then all = fit end
      denied = denied or not limit.algorithm.alone
    end
  end
  if log then
    local taken = all * hits < log.stamps and all * hits or log.stamps
    for i = 1, #rule do
      local limit = rule[i]
      if limit.log then limit.blocked = limit.algorithm.blocks(limit, v, hits, hits > 0 and taken or 0) end
    end
    if log.broken then return INVALID end
  end
  if hits == 0 then return nil, all == times end

  local changed, grows = false, false
  for i = 1, #rule do
    local limit, fit = rule[i], fits[i]
    -- A limit in shadow mode takes what it would have admitted.
    local charged = fit < all and fit or all
    if limit.counts_denied then charged = times end
    if charged > 0 then
      grows = limit.take(limit, v, t, charged * hits, id) or grows
      changed = true
    end
    if limit.strict and (fit < all or fit < times and (limit.counts_denied or fit <= all)) then
      changed, grows = true, true
      limit.algorithm.deny(limit, v, t)
    end
  end
  if log and all > 0 then
    local err = sliding_log.take(log, v, all * hits)
    if err then return err end
    changed, grows = true, true
  end
  return nil, all == times, changed, grows, denied
end

-- Whether the key of an entry is banned. The reply about a log describes the state before the call.
local function banned(rule, v)
  local ban = rule.ban
  if not ban or not ban.algorithm.is_banned(ban, v, t) then return false end
  for i = 1, #rule do
    if rule[i].log then rule[i].room(rule[i], v, t) end
  end
  return true
end

-- Takes hits a number of times of a rule with a ban, which may begin within them: at once those that fit, which come
-- first, and each of the others by itself.
local function take_each(rule, v, hits, times, id)
  local part, changed, grows, err, admitted, changes, grow, denied = times, false, false
  for i = 1, times > 1 and #rule or 0 do
    local limit = rule[i]
    local fit = hits > 0 and not limit.shadow and floor(limit.room(limit, v, t, id) / hits) or times
    if fit < part then part = fit > 0 and fit or 1 end
  end
  while times > 0 do
    if banned(rule, v) then return nil, false, changed, grows end
    err, admitted, changes, grow, denied = take(rule, v, hits, part, id)
    if err then return err end
    local strikes = denied and hits > 0 and rule.ban.algorithm.strike(rule.ban, v, t)
    changed, grows = changed or changes or strikes, grows or grow or strikes
    times, part = times - part, 1
  end
  return nil, admitted, changed, grows
end

-- Returns the hits that an UPTO takes. Where a limit denies `least`, that.
local function granted(rule, v, least, more, share, id)
  for i = 1, #rule do
    local limit = rule[i]
    local room = limit.room(limit, v, t, id)
    if not limit.shadow then
      if limit.never or room < 0 then room = 0 end
      if room < least then return least end
      local part = floor((room - least) / share)
      if part < share then part = 0 end
      if part < more then more = part end
    end
  end
  return least + more
end

-- Charges hits to the limits whose bits are set, whatever they say.
local function add(rule, v, hits, limits, id)
  local changed, grows = false, false
  for i = 1, #rule do
    local limit = rule[i]
    -- The reply about the log describes the state before the call.
    if limit.log then limit.room(limit, v, t) end
    if limits % 2 > 0 and hits > 0 then
      local counts_denied = limit.counts_denied
      limit.counts_denied = true
      grows = limit.take(limit, v, t, hits, id) or grows
      limit.counts_denied = counts_denied
      changed = changed or limit.algorithm.width > 0
    end
    limits = floor(limits / 2)
  end
  return rule.log and rule.log.broken and INVALID, true, changed, grows
end

-- Refunds hits to every limit; in a rule with a concurrency limit, only to that.
local function refund(rule, v, hits, id)
  local changed, grows = false, false
  for i = 1, #rule do
    local limit = rule[i]
    local algorithm = limit.algorithm
    -- The reply about the log describes the state before the call.
    if limit.log then limit.room(limit, v, t) end
    if algorithm.alone or not rule.alone then
      grows = algorithm.refund(limit, v, t, hits, id) or grows
      changed = changed or algorithm.width > 0
    end
  end
  local log = rule.log
  if log and not rule.alone then
    local newest = sliding_log.refund(log, v, hits)
    if log.broken then return INVALID end
    for i = 1, #rule do
      if rule[i].log then rule[i].blocked = newest end
    end
    changed = true
  end
  return nil, true, changed, grows
end

-- Undoes a charge by the limits with windows whose bits are set: it becomes as if it had not been made.
local function undo(rule, v, hits, taken, limits)
  local changed = false
  for i = 1, #rule do
    local limit = rule[i]
    -- The reply about the log describes the state before the call.
    if limit.log then limit.room(limit, v, t) end
    local undo = limit.algorithm.undo
    if limits % 2 > 0 and undo then
      undo(limit, v, t, hits, taken)
      changed = true
    end
    limits = floor(limits / 2)
  end
  return rule.log and rule.log.broken and INVALID, true, changed
end

-- For entries that are charged together: what to write where the call is denied, newest last; whether it is; and what
-- its quotas say.
local saved, denied, quotas, quotas_denied = {}, false, 0, 0
local remember, decide
if together then
  remember = function(key)
    if not key then return end
    local text, ttl = try('GET', key), try('PTTL', key)
    if type(text) == 'table' then return failed(text) end
    if type(ttl) == 'table' then return failed(ttl) end
    saved[#saved + 1] = { key, text, ttl }
  end

  -- Counts an entry, admitted or failed, in its role.
  decide = function(role, err, admitted)
    local ENFORCED, QUOTA = 0, 1
    -- What a failure means: a denial in the entry's role, or of the request.
    local ROLES, FAILURE_DENIES_ENTRY, FAILURE_DENIES_REQUEST = 4, 1, 2
    if err then
      local meaning = floor(role / ROLES)
      admitted = meaning < FAILURE_DENIES_ENTRY
      denied = denied or meaning == FAILURE_DENIES_REQUEST
    end
    role = role % ROLES
    if role == ENFORCED then
      denied = denied or not admitted
    elseif role == QUOTA then
      quotas = quotas + 1
      if not admitted then quotas_denied = quotas_denied + 1 end
    end
  end
end

-- The record before, and its key, of an entry whose operation is on a reservation.
local record, record_key

-- Makes the next run of an entry; nothing after an error. Returns what its operation returns.
local function run(rule, key, state, v, err)
  local TAKE, UNDO, ADD, UPTO, RESERVE, RESERVATIONS = 0, 2, 3, 4, 5, 15
  local op, hits, times, id
  op, hits, times, at = read('<BI4I4', args, at)
  if rule.holds then id, at = read('c8', args, at) end
  if op == TAKE then
    if err or hits == 0 and not together and not rule.log then return err, true end
    if rule.ban then return take_each(rule, v, hits, times, id) end
    return take(rule, v, hits, times, id)
  elseif op == UPTO then
    local more, share
    more, share, at = read('<I4I4', args, at)
    if err then return err, true end
    if not banned(rule, v) then hits = granted(rule, v, hits, more, share, id) end
    err = rule.log and rule.log.broken and INVALID
    if err or hits == 0 then return err, true end
    if rule.ban then return take_each(rule, v, hits, times, id) end
    return take(rule, v, hits, times, id)
  elseif op == ADD then
    local limits
    limits, at = read('<I2', args, at)
    if err then return err end
    return add(rule, v, hits, limits, id)
  elseif op >= RESERVE then
    local otherwise, least, more, timeout, admitted, changed, grows
    key_at = key_at + 1
    record_key = KEYS[key_at]
    otherwise, least, more, timeout, at = read('<BI4I4I4', args, at)
    if together and not err then err = remember(record_key) end
    if err then return err end
    local make = algorithms[RESERVATIONS].make
    err, record, admitted, changed, grows =
      make(record_key, key .. ':reset', rule, v, t, slack, op, hits, otherwise, least, more, timeout, state)
    return err, admitted, changed, grows
  end
  local taken, limits, changed, grows, _
  if op == UNDO then taken, limits, at = read('<I7I2', args, at) end
  if err then return err end
  if op == UNDO then
    err, _, changed = undo(rule, v, hits, taken, limits)
  else
    err, _, changed, grows = refund(rule, v, hits * times, id)
  end
  -- Without a state there is nothing to refund.
  if state == '' then return err, true end
  return err, true, changed, grows
end

-- Adds the states of an entry before the call, and its record, to the reply.
local function reply(rule, state)
  out[#out + 1] = pack('<I4', #state)
  out[#out + 1] = state
  if rule.holds then
    local held = rule.holds.was
    out[#out + 1] = pack('<I4', #held)
    out[#out + 1] = held
  end
  if record then
    out[#out + 1] = pack('<I4', #record)
    out[#out + 1] = record
  end
  if not rule.log then return end
  for i = 1, #rule do
    local limit = rule[i]
    if limit.log then out[#out + 1] = pack('<I7I7', limit.used, limit.blocked or 0) end
  end
end

-- Makes one entry by `run`; nothing is replied where a call that was denied is made `again`.
local function entry(run, again)
  local rule, role, runs, holds_key
  rule, role, runs, at = read('<I4BB', args, at)
  rule, key_at = rules[rule + 1], key_at + 1
  local key, holds = KEYS[key_at], rule.holds
  if holds then
    key_at = key_at + 1
    holds_key = KEYS[key_at]
  end
  moved = false
  local err, state, v = open(rule, key, holds_key)
  if together and not err and not again then err = remember(key) or remember(holds_key) end
  local admitted, changed, grows = true, moved and not again, moved
  record = nil
  for _ = 1, runs do
    local all, changes, grow
    err, all, changes, grow = run(rule, key, state, v, err)
    admitted, changed, grows = admitted and all, changed or changes, grows or grow
  end
  if not err and changed and rule.width > 1 then
    err = close(rule, key, state, v, grows)
    -- Hits that are not charged must not be returned.
    if err and record then try('DEL', record_key) end
  end
  if not err and holds then
    local set = holds.algorithm.close(holds, t, slack)
    if set and set.err then err = failed(set) end
  end
  if again then return end
  if err then
    out[#out + 1] = pack('<I4', err)
  else
    reply(rule, state)
  end
  if together then decide(role, err, admitted) end
end

local first = at
while at <= #args do entry(run, false) end

if together and (denied or quotas > 0 and quotas == quotas_denied and not quota_passes) then
  for i = #saved, 1, -1 do
    local key, text, ttl = unpack(saved[i])
    local done
    if not text then
      done = try('DEL', key)
    elseif ttl >= 0 then
      done = try('SET', key, text, 'PX', ttl > 0 and ttl or 1)
    else
      done = try('SET', key, text)
    end
    if type(done) == 'table' and done.err then failed(done) end
  end

  -- Makes the next run of an entry if it is made even if the call is denied.
  local function run_again(rule, key, state, v, err)
    local TAKE, UPTO, RESERVE, OR_RESERVE, OR_LEAVE, RESERVATIONS = 0, 4, 5, 2, 3, 15
    local start, op, hits, _ = at, nil, nil, nil
    op, hits, _, at = read('<BI4I4', args, at)
    if rule.holds then at = at + 8 end
    if op == TAKE then return err end
    if op == UPTO then
      at = at + 8
      return err
    elseif op < RESERVE then
      at = start
      return run(rule, key, state, v, err)
    end
    local otherwise, admitted, changed, grows = read('B', args, at), nil, nil, nil
    at, key_at = at + 13, key_at + 1
    record_key = KEYS[key_at]
    if err or op == RESERVE then return err end
    -- What settles must not reserve, and leaves a record that has lapsed: the clock may step back.
    if otherwise == OR_RESERVE then otherwise = OR_LEAVE end
    local make = algorithms[RESERVATIONS].make
    err, record, admitted, changed, grows =
      make(record_key, key .. ':reset', rule, v, t, slack, op, hits, otherwise, 0, 0, 0, state)
    return err, admitted, changed, grows
  end
  at, key_at = first, 0
  while at <= #args do entry(run_again, true) end
end

out[#out + 1] = reason
return table.concat(out)
