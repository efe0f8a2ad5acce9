"""Sends requests to /json, each over a new connection, until it gets SIGTERM. Then prints how many it sent and how many
had no decision, and the first errors.

Usage: load.py HOST:PORT BODY
"""

import http.client
import signal
import sys
import threading
import time

THREADS, PAUSE_SECONDS, TIMEOUT_SECONDS = 4, 0.05, 10

address, body = sys.argv[1:]
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
sent, errors = [0] * THREADS, []


def send():
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/json", body, {"connection": "close"})
        response = connection.getresponse()
        text = response.read()
        if response.status not in (200, 429):
            errors.append(f"{time.strftime('%X')} status {response.status}: {text[:200]}")
    except (OSError, http.client.HTTPException) as error:
        errors.append(f"{time.strftime('%X')} {error!r}")
    finally:
        connection.close()


def work(thread):
    while not stop.is_set():
        send()
        sent[thread] += 1
        time.sleep(PAUSE_SECONDS)


threads = [threading.Thread(target=work, args=[thread]) for thread in range(THREADS)]
for thread in threads:
    thread.start()
stop.wait()
for thread in threads:
    thread.join()
print(f"{len(errors)} of {sum(sent)} requests failed", *errors[:5], sep="\n")
