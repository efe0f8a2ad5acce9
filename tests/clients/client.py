"""redis-py: calls the commands over both versions of the protocol."""

import sys

import redis

for protocol in (2, 3):
    client = redis.Redis(
        port=int(sys.argv[1]), password="secret", protocol=protocol, decode_responses=True
    )
    assert client.ping()
    user = f"python-{protocol}"
    code, remaining, retry_after, reset_after, name = client.execute_command(
        "WEIR.CHECK", "shop", 3, "user", user
    )
    assert (code, remaining, retry_after, name) == (1, 0, -1, "per-user"), (code, remaining, name)
    denied = client.execute_command("WEIR.CHECK", "shop", 1, "user", user)
    assert denied[:2] == [2, 0] and denied[2] > 0, denied
    assert client.execute_command("CL.THROTTLE", user, 2, 1, 3600) == [0, 3, 2, -1, 3600]

    pipeline = client.pipeline(transaction=False)
    for _ in range(100):
        pipeline.execute_command("CL.THROTTLE", f"{user}-pipelined", 9, 1, 3600)
    limited = [reply[0] for reply in pipeline.execute()]
    assert limited == [0] * 10 + [1] * 90, limited

    try:
        client.get("key")
        raise AssertionError("an unknown command was answered")
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error

try:
    redis.Redis(port=int(sys.argv[1]), password="wrong").ping()
    raise AssertionError("a wrong password was taken")
except redis.AuthenticationError:
    pass
print("good")
