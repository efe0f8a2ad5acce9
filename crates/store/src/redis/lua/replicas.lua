-- Announces a replica among those that share this Redis, or withdraws it.
--
-- KEYS: the hash of the replicas: by the id of each, when its announcement expires. Beside these, `since` is
--       the time at which the hash was made, and `count` the time of the last count and the count.
-- ARGV: the id; the time in microseconds, or 0 for the server's; for how many milliseconds the
--       announcement counts, or 0 to withdraw it.
-- Returns the number of replicas, and the age of the hash in milliseconds.
--
-- Replicas are counted once a second, and when one joins or leaves, so that N replicas that announce
-- themselves each second cost N short calls and not N squared reads.
local hash, id, now, milliseconds = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if milliseconds == 0 then
  redis.call('HDEL', hash, id, 'count')
  return {0, 0}
end
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local function text(number) return string.format('%.0f', number) end

local joined = redis.call('HSET', hash, id, text(now + milliseconds * 1000)) == 1
redis.call('PEXPIRE', hash, milliseconds)
local since = tonumber(redis.call('HGET', hash, 'since') or '')
if not since then
  since = now
  redis.call('HSET', hash, 'since', text(now))
end
local age = math.max(0, math.floor((now - since) / 1000))

local counted, count = string.match(redis.call('HGET', hash, 'count') or '', '^(%d+) (%d+)$')
if counted and not joined and math.abs(now - tonumber(counted)) < 1000000 then
  return {tonumber(count), age}
end
count = 0
-- A scan may return a field twice.
local names, cursor = {}, '0'
repeat
  local part = redis.call('HSCAN', hash, cursor, 'COUNT', 100)
  cursor = part[1]
  for i = 1, #part[2], 2 do
    local name, expires = part[2][i], tonumber(part[2][i + 1])
    if name ~= 'since' and name ~= 'count' and names[name] == nil then
      names[name] = expires ~= nil and expires > now
      if names[name] then count = count + 1 end
    end
  end
until cursor == '0'
for name, announced in pairs(names) do
  if not announced then redis.call('HDEL', hash, name) end
end
redis.call('HSET', hash, 'count', text(now) .. ' ' .. count)
return {count, age}
