"""What can be asked of a running server."""

import http.client
import json
import socket
import time
from dataclasses import dataclass
from subprocess import Popen

# No start takes this long.
PATIENCE = 60


@dataclass
class Server:
    name: str
    process: Popen
    grpc: str
    http: str = ""
    debug: str = ""

    @property
    def pid(self):
        return self.process.pid

    def resident(self):
        """Bytes of memory it occupies."""
        with open(f"/proc/{self.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.name} has no VmRSS")

    def metric(self, name):
        """The sum of a metric's values."""
        text = get(self.http, "/metrics")[1].decode()
        values = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        found = [float(value) for key, value in values if key.split("{")[0] == name]
        if not found:
            raise RuntimeError(f"{self.name} has no metric {name}")
        return sum(found)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(address, path, body=None):
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request("POST" if body else "GET", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def poll(process, what, test):
    """Tries until `test` holds, a thousand times a second."""
    deadline = time.monotonic() + PATIENCE
    while not test():
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"not {what} within {PATIENCE} s")
        time.sleep(0.001)


def listens(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
        return True
    except ConnectionRefusedError:
        return False


def wait_for_port(process, address):
    poll(process, f"listening on {address}", lambda: listens(address))


def wait_until_ready(server, request=None):
    """Until health says serving and, where a request is given, the service says yes to it."""
    def healthy():
        try:
            return get(server.http, "/healthcheck")[0] == 200
        except (ConnectionError, http.client.HTTPException):
            return False

    poll(server.process, "healthy", healthy)
    wait_for_port(server.process, server.grpc)
    if request is not None:
        status, body = get(server.http, "/json", json.dumps(request))
        if status != 200 or json.loads(body).get("overallCode") != "OK":
            raise RuntimeError(f"the first answer was {status}: {body!r}")
