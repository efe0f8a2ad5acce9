"""Answers DNS queries for Services over UDP, in place of CoreDNS.

Usage: dns.py ADDRESS API-SERVER CA CERTIFICATE KEY

NAME.NAMESPACE.svc.cluster.local has the cluster's address of the Service; a headless Service has the addresses of its
ready pods. Only A records exist. Each query asks the API server.
"""

import json
import socket
import socketserver
import ssl
import struct
import sys
import urllib.error
import urllib.request

address, api_server, ca, certificate, key = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(certificate, key)

A, NAME_ERROR, TTL_SECONDS = 1, 3, 5


def get(path):
    with urllib.request.urlopen(api_server + path, context=context, timeout=5) as response:
        return json.load(response)


def addresses_of(labels):
    """Returns the IPv4 addresses of a name; none if there is no such Service."""
    if len(labels) != 5 or labels[2:] != ["svc", "cluster", "local"]:
        return None
    name, namespace = labels[:2]
    try:
        service = get(f"/api/v1/namespaces/{namespace}/services/{name}")
    except urllib.error.HTTPError:
        return None
    if service["spec"]["clusterIP"] != "None":
        return [ip for ip in service["spec"]["clusterIPs"] if ":" not in ip]
    slices = get(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io/service-name={name}"
    )
    endpoints = [endpoint for item in slices["items"] for endpoint in item["endpoints"] or []]
    return [endpoint["addresses"][0] for endpoint in endpoints if endpoint["conditions"]["ready"]]


def answer(query):
    """Returns the answer to a query with one question."""
    labels, position = [], 12
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode().lower())
        position += 1 + length
    (kind,) = struct.unpack_from("!H", query, position + 1)
    question = query[12 : position + 5]

    addresses = addresses_of(labels)
    flags = 0x8580 | (NAME_ERROR if addresses is None else 0)
    records = (addresses or []) if kind == A else []
    answer = query[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0) + question
    for record in records:
        # 0xC00C points to the name in the question.
        answer += struct.pack("!HHHIH", 0xC00C, A, 1, TTL_SECONDS, 4) + socket.inet_aton(record)
    return answer


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        query, listener = self.request
        listener.sendto(answer(query), self.client_address)


socketserver.ThreadingUDPServer((address, 53), Handler).serve_forever()
