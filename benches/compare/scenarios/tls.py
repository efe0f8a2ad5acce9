"""Cost of TLS: of a connection, with RSA-2048 and P-256 certificates, and of a decision.

Server and client share one core. A connection has one request, and TLS sessions are not resumed.
"""

import subprocess
from statistics import median

import rules
from lab import ratio

KEYS = {"RSA-2048": ["rsa:2048"], "P-256": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]}
CONFIG = """\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = weir
[extensions]
basicConstraints = critical, CA:FALSE
subjectAltName = IP:127.0.0.1
"""


def run(lab, results):
    certificates = {name: certificate(lab, name, key) for name, key in KEYS.items()}
    with lab.weir(rules.one()) as plain, \
            lab.weir(rules.one(), settings=listens(certificates["RSA-2048"])) as rsa, \
            lab.weir(rules.one(), settings=listens(certificates["P-256"])) as ecdsa:
        for server, name in ((rsa, "RSA-2048"), (ecdsa, "P-256")):
            server.ca = certificates[name][0]
        servers = {"plain": plain, "RSA-2048": rsa, "P-256": ecdsa}
        connections(lab, results, servers)
        for concurrency in (1, 16):
            decisions(lab, results, servers, concurrency)


def certificate(lab, name, key):
    """Creates a self-signed certificate. Returns the paths of the certificate and its key."""
    config = lab.directory / "openssl.cnf"
    config.write_text(CONFIG)
    cert, private = lab.directory / f"{name}.pem", lab.directory / f"{name}-key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-config", config,
               "-newkey", *key, "-keyout", private, "-out", cert]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cert, private


def listens(files):
    cert, key = files
    return ["grpc.tls.enabled=true", f"grpc.tls.cert={cert}", f"grpc.tls.key={key}"]


def connections(lab, results, servers):
    count = 500 if lab.quick else 2000
    runs = {name: lambda s=s: lab.load(s, reconnect=True, requests=count, concurrency=1, warmup=0,
                                       seconds=600) for name, s in servers.items()}
    figures = lab.rounds("one connection per request", runs, cost)
    plain = median(cpu for cpu, _ in figures["plain"])
    for name in KEYS:
        cpu, wait = (median(of) for of in zip(*figures[name]))
        results.add(f"one connection, {name}", cpu, "µs",
                    note=f"CPU of weir; without TLS {plain:.0f}; p50 of the client {wait:.0f}")


def cost(report):
    return report["cpu"][0], report["latency_us"]["p50"]


def decisions(lab, results, servers, concurrency):
    load = {"keys": 1000, "concurrency": concurrency, **lab.duration}
    title = f"{concurrency} in flight"
    runs = {name: lambda s=s: lab.load(s, **load) for name, s in servers.items() if name != "RSA-2048"}
    figures = lab.rounds(title, runs, lambda report: report["cpu"][0])
    costs = ", ".join(f"{name} {median(of):.2f}" for name, of in figures.items())
    results.add(f"{title}: TLS / plain", ratio(figures, "P-256", "plain"), note=f"µs: {costs}")
