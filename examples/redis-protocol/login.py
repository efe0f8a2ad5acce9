import redis

client = redis.Redis(port=6380)
code, remaining, retry_after_ms, reset_after_ms, limit = client.execute_command(
    "WEIR.CHECK", "shop", 1, "login", "ann"
)
if code == 1:
    print(f"welcome, {remaining} more attempts")
else:
    print(f"try again in {retry_after_ms} ms")
