-- Writes what a replica of weir publishes once a second for the others, its text: the lists of its top keys.
--
-- KEYS: a hash with the time at which each replica's text expires, by its id, and the `secret` they hash values with;
--       the text, in the same slot.
-- ARGV: the id; the time in microseconds, or 0 for the server's; for how many milliseconds the text is kept;
--       the secret with which it was made; the text.
-- Returns the secret of all replicas. If it is another one, the text is not written.
--
-- A replica that is new removes the ids whose texts have expired, so that those of restarts do not add up.
local hash, text = KEYS[1], KEYS[2]
local id, now, milliseconds, secret = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local shared = redis.call('HGET', hash, 'secret')
if not shared then
  shared = secret
  redis.call('HSET', hash, 'secret', secret)
end
redis.call('PEXPIRE', hash, milliseconds)
if shared ~= secret then return shared end
redis.call('SET', text, ARGV[5], 'PX', milliseconds)
if redis.call('HSET', hash, id, string.format('%.0f', now + milliseconds * 1000)) == 0 then
  return shared
end
local cursor = '0'
repeat
  local part = redis.call('HSCAN', hash, cursor, 'COUNT', 100)
  cursor = part[1]
  for i = 1, #part[2], 2 do
    local name, expires = part[2][i], tonumber(part[2][i + 1])
    if name ~= 'secret' and (expires == nil or expires <= now) then
      redis.call('HDEL', hash, name)
    end
  end
until cursor == '0'
return shared
