-- Writes rows of the table that all replicas of weir share: the controls (blocks, allows, limits) of operators.
--
-- KEYS: the hash of the rows, and the version of the table; in one slot.
-- ARGV: the time in microseconds, or 0 for the server's; then for each row its name, the time at which
--       it was written, 1 if the change is made now, and its text, a control in JSON. Without a text the
--       row is removed if it was written at that time.
-- Returns the versions before and after, and 1 if a new row was written at a later time than its own.
--
-- A row is 16 digits of its time, and its text. It is written unless the one there is as new. A new row
-- replaces a later one, and comes after it. A version is the time of the last write: unlike a count, it
-- does not repeat after a failover or a flush.
local MAX_AT = 2 ^ 53 - 1
local before = redis.call('GET', KEYS[2]) or ''
local changed, moved = false, 0
for i = 2, #ARGV, 4 do
  local name, at, is_new, text = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2] == '1', ARGV[i + 3]
  local old = redis.call('HGET', KEYS[1], name)
  local old_at = old and tonumber(string.sub(old, 1, 16)) or -1
  if is_new and at <= old_at and old_at < MAX_AT then at, moved = old_at + 1, 1 end
  if text == '' then
    if old_at == at then redis.call('HDEL', KEYS[1], name) end
  elseif at > old_at then
    redis.call('HSET', KEYS[1], name, string.format('%016.0f', at) .. text)
    changed = true
  end
end
if not changed then return {before, before, 0} end
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local after = string.format('%.0f', math.max(now, (tonumber(before) or 0) + 1))
redis.call('SET', KEYS[2], after)
return {before, after, moved}
