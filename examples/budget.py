"""A budget in a program: reserves what a call may use, and settles what it has used. Needs no library.

With the rule of docs/budgets.md, prints:

HELLO: 2000 tokens, 8000 are left
HELLO: 2500 tokens, 5500 are left
HELLO: 2500 tokens, 3000 are left
HELLO: 2500 tokens, 500 are left
"""

import json
import urllib.error
import urllib.request
import uuid


def budget(step, **fields):
    """Calls weir. Returns its answer, also if it is over the limit."""
    body = json.dumps({"domain": "llm", **fields}).encode()
    url = f"http://localhost:8080/v1/budget/{step}"
    try:
        with urllib.request.urlopen(url, body, timeout=1) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 429:
            return json.load(error)
        raise RuntimeError(f"{step}: {error.read().decode()}") from error


def call_model(user, prompt, max_tokens, model):
    call = {
        "descriptors": [{"entries": [{"key": "user", "value": user}]}],
        "id": str(uuid.uuid4()),
    }
    reserved = budget("reserve", amount=len(prompt) // 4 + max_tokens, **call)
    if reserved["code"] != "OK":
        return f"no budget: {reserved['statuses'][0]['remaining']} tokens are left"
    try:
        answer, used = model(prompt, max_tokens)
    except Exception:
        budget("cancel", **call)
        raise
    settled = budget("settle", amount=used, **call)
    return f"{answer}: {used} tokens, {settled['remaining']} are left"


def model(prompt, max_tokens):
    """Stands in for a model that uses half of what it may."""
    return prompt.upper(), max_tokens // 2


print(call_model("bob", "hello", 4000, model))
print(call_model("bob", "hello", 5000, model))
print(call_model("bob", "hello", 5000, model))
print(call_model("bob", "hello", 5000, model))
