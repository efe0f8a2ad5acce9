-- Lists which commands of weir's scripts the ACL of weir's Redis user forbids. examine.rs runs it when weir connects.
-- Changes nothing: no command has an effect where its key does not exist.
--
-- KEYS    1, a key that does not exist, where a proxy routes by it; none elsewhere
-- ARGV    1, that key. On a cluster another node may serve it: commands then fail after the check of permissions
-- Reply   the names of the commands that are not permitted; "key" where the key is not
-- Cost    a command for each
local key, missing, no_key = ARGV[1], {}, nil
for _, command in ipairs({
  { 'time' }, { 'get', key }, { 'set', key, '', 'XX' }, { 'incrby', key, 'x' }, { 'decrby', key, 'x' },
  { 'getrange', key, 0, 0 }, { 'setrange', key, 0, '' }, { 'pexpire', key, 1 }, { 'del', key }, { 'pttl', key },
  { 'hget', key, 'x' }, { 'hscan', key, 0 }, { 'hset', key, 'x', '', 'x' }, { 'hdel', key, 'x' },
}) do
  local reply = redis.pcall(unpack(command))
  local text = type(reply) == 'table' and reply.err or ''
  -- Redis up to 7.0: "can't run this command", "can't access at least one of the keys".
  if text:find('t run this command', 1, true) or text:find('permissions to run', 1, true) then
    missing[#missing + 1] = command[1]
  end
  no_key = no_key or text:find('t access at least', 1, true) or text:find('permissions to access', 1, true)
end
if no_key then missing[#missing + 1] = 'key' end
return missing
