-- Writes rows of the table that all replicas share.
--
-- KEYS: the hash of the rows, and the version of the table; in one slot.
-- ARGV: the time in microseconds, or 0 for the server's; then for each row its name, the time at which
--       it was written (16 digits), and that time followed by the row's text. Without a text the row
--       is removed if it was written at that time.
-- Returns the versions before and after.
--
-- A row is written unless the one there is as new. A version is the time of the last write: unlike a
-- count, it does not repeat after a failover or a flush.
local before = redis.call('GET', KEYS[2]) or ''
local changed = false
for i = 2, #ARGV, 3 do
  local name, at, row = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local old = redis.call('HGET', KEYS[1], name)
  local old_at = old and tonumber(string.sub(old, 1, 16)) or -1
  if row == '' then
    if old_at == tonumber(at) then redis.call('HDEL', KEYS[1], name) end
  elseif tonumber(at) > old_at then
    redis.call('HSET', KEYS[1], name, row)
    changed = true
  end
end
if not changed then return {before, before} end
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local after = string.format('%.0f', math.max(now, (tonumber(before) or 0) + 1))
redis.call('SET', KEYS[2], after)
return {before, after}
