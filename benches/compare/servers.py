"""Running servers: memory, metrics, readiness."""

import http.client
import json
import socket
import time
from dataclasses import dataclass
from subprocess import Popen

# How long a server may take to start, in seconds.
START_TIMEOUT = 60


@dataclass
class Server:
    name: str
    process: Popen
    grpc: str
    http: str = ""
    debug: str = ""
    # The certificate to trust, for gRPC over TLS.
    ca: str = ""

    @property
    def pid(self):
        return self.process.pid

    def resident(self):
        """Returns the resident memory in bytes."""
        with open(f"/proc/{self.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.name} has no VmRSS")

    def page_faults(self):
        """Returns how many pages the system has mapped without reading a disk."""
        with open(f"/proc/{self.pid}/stat") as file:
            return int(file.read().rsplit(")", 1)[1].split()[7])

    def metric(self, name):
        """Returns the sum of the values of a metric."""
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
    """Returns the status and the body of a response."""
    connection = http.client.HTTPConnection(address, timeout=START_TIMEOUT)
    try:
        connection.request("POST" if body else "GET", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def poll(process, what, test):
    """Polls `test` a thousand times per second until it holds."""
    deadline = time.monotonic() + START_TIMEOUT
    while not test():
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"not {what} within {START_TIMEOUT} s")
        time.sleep(0.001)


def listens(address):
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=START_TIMEOUT).close()
        return True
    except ConnectionRefusedError:
        return False


def wait_for_port(process, address):
    poll(process, f"listening on {address}", lambda: listens(address))


def wait_until_ready(server, request=None):
    """Waits until health reports serving and, if a request is given, the service allows it."""
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
            raise RuntimeError(f"the first response was {status}: {body!r}")
