"""Runs the pods of an API server as processes of this machine, in place of a kubelet.

Usage: kubelet.py DIRECTORY API-SERVER CA CERTIFICATE KEY IMAGES

IMAGES is a JSON file: for each part of an image's name its `entrypoint`, and its `programs`: paths of the container, with the file of
this machine that each is.

Each pod has a network namespace with an address of its own. Each container sees this machine's file system, with
volumes and programs above; what it writes is lost with it. It starts with the variables, arguments, user and files that
its pod has in the API server, and its probes for readiness are honoured. Limits of memory and CPU, other probes and
security contexts are ignored.
"""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from urllib.parse import urlsplit

directory, api_server, ca, certificate, key, images = sys.argv[1:]
directory = Path(directory)
IMAGES = json.loads(Path(images).read_text())
NODE, NODE_ADDRESS = "node-1", "10.201.0.1"
MERGE_PATCH, JSON = "application/strategic-merge-patch+json", "application/json"

tls = ssl.create_default_context(cafile=ca)
tls.load_cert_chain(certificate, key)
local = threading.local()


class NotFound(Exception):
    pass


def api(method, path, body=None, content_type=JSON):
    """Sends a request to the API server, on a connection of the thread. Returns the answer."""
    connection = getattr(local, "connection", None)
    if not connection:
        address = urlsplit(api_server)
        connection = local.connection = http.client.HTTPSConnection(address.hostname, address.port, context=tls, timeout=10)
    try:
        connection.request(method, path, body and json.dumps(body), {"content-type": content_type})
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException) as error:
        # The API server restarts, for example.
        connection.close()
        raise OSError(f"{method} {path}: {error}") from error
    if response.status == 404:
        raise NotFound(path)
    if response.status >= 300:
        raise OSError(f"{method} {path}: {answer.get('message')}")
    return answer


def field(pod, container, source):
    """Returns the text of a `fieldRef` or `resourceFieldRef`."""
    if resource := source.get("resourceFieldRef"):
        return {"cpu": "1", "memory": str(1 << 30)}[resource["resource"].split(".")[1]]
    path = source["fieldRef"]["fieldPath"]
    status = {"hostIP": NODE_ADDRESS, "podIP": pod.address, "podIPs": pod.address}
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
        return pod.resource["metadata"].get(match[1], {}).get(match[2], "")
    group, name = path.split(".")
    if group == "status":
        return status[name]
    value = pod.resource[group].get(name, "")
    if isinstance(value, dict):
        return "\n".join(f"{key}={json.dumps(text)}" for key, text in sorted(value.items()))
    return value


class Pod:
    def __init__(self, resource, number):
        self.resource = resource
        self.namespace, self.name = resource["metadata"]["namespace"], resource["metadata"]["name"]
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.directory = directory / f"{self.namespace}_{self.name}"
        self.number = number
        # Also the name of its network namespace.
        self.address = f"10.202.{number // 250}.{number % 250 + 1}"
        self.volumes, self.processes = {}, {}
        self.is_stopping, self.status = False, None

    def run(self):
        """Runs the pod until it is deleted."""
        try:
            self.directory.mkdir()
            self.make_network()
            self.patch_status(False, "Pending")
            self.wait_for_volumes()
            for container in self.resource["spec"].get("initContainers", []):
                if container.get("restartPolicy") == "Always":
                    self.start(container)
                    while not self.is_stopping and not is_ready(container.get("startupProbe"), container, self.address):
                        time.sleep(0.2)
                elif status := self.start(container).wait():
                    raise OSError(f"the container {container['name']} ended with status {status}")
            for container in self.resource["spec"]["containers"]:
                self.start(container)
            while not self.is_stopping:
                if self.watch():
                    break
                time.sleep(0.3)
        except Exception:
            with open(directory / f"{self.namespace}_{self.name}.log", "a") as log:
                log.write(f"{traceback.format_exc()}\n")

    def make_network(self):
        """Makes a namespace that reaches others through this one: no bridge, so that the rules for Services are met."""
        host = f"pod-{self.number}"
        run("ip", "netns", "add", self.address)
        run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", self.address)
        run("ip", "link", "set", host, "up")
        run("ip", "route", "add", self.address, "dev", host)
        for command in (
            "link set lo up",
            f"address add {self.address}/32 dev eth0",
            "link set eth0 up",
            f"route add {NODE_ADDRESS} dev eth0",
            f"route add default via {NODE_ADDRESS}",
        ):
            run("ip", "-n", self.address, *command.split())
        # As containerd does.
        run("nsenter", f"--net=/run/netns/{self.address}", "sysctl", "-q", "-w", "net.ipv4.ip_unprivileged_port_start=0")

    def wait_for_volumes(self):
        while not self.is_stopping:
            try:
                return self.write_volumes()
            except (OSError, NotFound):
                time.sleep(0.3)

    def write_volumes(self):
        """Writes the files of the volumes, and of those that changed again."""
        for volume in self.resource["spec"].get("volumes", []):
            target = self.directory / "volumes" / volume["name"]
            files = self.files_of(volume)
            if files != self.volumes.get(volume["name"], ...):
                self.volumes[volume["name"]] = files
                if files is None:
                    target.mkdir(parents=True, exist_ok=True)
                    target.chmod(0o777)
                else:
                    write_at_once(target, files)

    def files_of(self, volume):
        """Returns the files of a volume; none for one that the container writes."""
        if "projected" in volume:
            files = {}
            for source in volume["projected"]["sources"]:
                files.update(self.files_of(source))
            return files
        for kind, group, name in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
            if source := volume.get(kind):
                return self.files_of_resource(group, source.get(name) or source["name"], source)
        if source := volume.get("serviceAccountToken"):
            return self.token(source)
        if source := volume.get("downwardAPI"):
            return {item["path"]: field(self, None, item).encode() for item in source["items"]}
        return None

    def files_of_resource(self, group, name, source):
        try:
            resource = api("GET", f"/api/v1/namespaces/{self.namespace}/{group}/{name}")
        except NotFound:
            if source.get("optional"):
                return {}
            raise
        data = {key: text.encode() for key, text in (resource.get("data") or {}).items()}
        if group == "secrets":
            data = {key: base64.b64decode(text) for key, text in data.items()}
        if items := source.get("items"):
            return {item["path"]: data[item["key"]] for item in items}
        return data

    def token(self, source):
        """Returns a token of the pod's account, which lasts longer than the pod."""
        last = self.volumes.setdefault("token " + source["path"], {})
        if not last:
            account = self.resource["spec"]["serviceAccountName"]
            spec = {"expirationSeconds": 86400, "audiences": [source["audience"]] if "audience" in source else []}
            path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
            last[source["path"]] = api("POST", path, {"spec": spec})["status"]["token"].encode()
        return last

    def start(self, container):
        image = next((image for name, image in IMAGES.items() if name in container["image"]), None)
        if image is None:
            raise OSError(f"no program for the image {container['image']}")
        # An API server that is reached by its address, whatever the Service has.
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
        environment |= {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        for variable in container.get("env", []):
            if source := variable.get("valueFrom"):
                value = field(self, container, source)
            else:
                value = expanded(variable.get("value", ""), environment)
            environment[variable["name"]] = value
        command = container.get("command") or image["entrypoint"]
        command = [expanded(word, environment) for word in [*command, *container.get("args", image.get("arguments", []))]]

        root = self.directory / container["name"]
        script = [f"mount -t tmpfs tmpfs {root}", f"cd {root}", "mkdir upper work root"]
        script += ["mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root"]
        script += [f"mount --rbind /{name} root/{name}" for name in ("proc", "dev", "sys")]
        # Envoy's memory for hot restarts has one name in all pods.
        script += ["mount -t tmpfs -o mode=1777 tmpfs root/dev/shm", "chmod 1777 root/tmp"]
        # Mounted, not linked: users of pods cannot reach all directories.
        for path, program in image.get("programs", {}).items():
            script += [f"chroot root mkdir -p {os.path.dirname(path)}", f"chroot root touch {path}"]
            script += [f'mount --bind {program} "root$(chroot root realpath {path})"']
        mounts = [(mount["mountPath"], self.directory / "volumes" / mount["name"]) for mount in container["volumeMounts"]] \
            if "volumeMounts" in container else []
        (self.directory / "resolv.conf").write_text(
            f"nameserver {NODE_ADDRESS}\nsearch {self.namespace}.svc.cluster.local svc.cluster.local cluster.local\n"
            "options ndots:5\n"
        )
        (self.directory / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        for name in ("resolv.conf", "hosts"):
            script.append(f"mount --bind {self.directory / name} root/etc/{name}")
        for path, source in mounts:
            # Links such as /var/run would lead out of it.
            script += [f"chroot root mkdir -p {path}", f'mount --bind {source} "root$(chroot root realpath {path})"']
        security = {**self.resource["spec"].get("securityContext", {}), **container.get("securityContext", {})}
        user = f"{security.get('runAsUser', 0)}:{security.get('runAsGroup', security.get('runAsUser', 0))}"
        script.append(f'exec nsenter --net=/run/netns/{self.address} chroot --userspec={user} --groups= root "$@"')
        root.mkdir(parents=True, exist_ok=True)
        log = open(directory / f"{self.namespace}_{self.name}_{container['name']}.log", "ab")
        # Envoy opens /dev/stdout again, as another user.
        os.chmod(log.name, 0o666)
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", "\n".join(script), "sh", *command],
            cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )
        log.close()
        self.processes[container["name"]] = process, container
        return process

    def watch(self):
        """Restarts containers that ended, renews files, and reports whether the pod is ready. Returns whether it is done."""
        policy = self.resource["spec"].get("restartPolicy", "Always")
        names = {container["name"] for container in self.resource["spec"]["containers"]}
        ended = {name: process.poll() for name, (process, _) in self.processes.items()}
        if policy != "Always" and all(ended[name] is not None for name in names):
            succeeded = not any(ended[name] for name in names)
            self.patch_status(False, "Succeeded" if succeeded else "Failed")
            return True
        for name, (_, container) in list(self.processes.items()):
            if ended[name] is not None and (name in names and policy == "Always" or container.get("restartPolicy") == "Always"):
                time.sleep(1)
                self.start(container)
        try:
            self.write_volumes()
        except (NotFound, OSError):
            pass
        is_up = all(status is None for name, status in ended.items() if name in names)
        self.patch_status(
            is_up and all(is_ready(container.get("readinessProbe"), container, self.address) for _, container in self.processes.values()),
            "Running",
        )
        return False

    def patch_status(self, ready, phase):
        if self.status == (ready, phase) or self.is_stopping:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = str(ready)
        status = {
            "phase": phase, "hostIP": NODE_ADDRESS, "podIP": self.address, "podIPs": [{"ip": self.address}], "startTime": now,
            "conditions": [
                {"type": kind, "status": "True" if kind in ("PodScheduled", "Initialized") else condition, "lastTransitionTime": now}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
        }
        status["containerStatuses"] = [
            {
                "name": container["name"], "image": container["image"], "imageID": "", "ready": ready, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in self.resource["spec"]["containers"]
        ]
        if phase == "Pending":
            del status["containerStatuses"]
            del status["podIP"], status["podIPs"]
        try:
            api("PATCH", self.path + "/status", {"status": status}, MERGE_PATCH)
            self.status = ready, phase
        except (OSError, NotFound):
            # It is tried again.
            pass

    def stop(self):
        """Ends the containers, and removes the pod from the API server."""
        self.is_stopping = True
        for process, _ in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + float(os.environ.get("GRACE_SECONDS", 10))
        for process, _ in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        try:
            api("DELETE", self.path + "?gracePeriodSeconds=0")
        except NotFound:
            pass
        subprocess.run(["ip", "netns", "delete", self.address], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)


def write_at_once(target, files):
    """Writes all files of a volume as the kubelet does: readers see all of the old or all of the new ones."""
    target.mkdir(parents=True, exist_ok=True)
    data = target / f"..{time.time_ns()}"
    for name, text in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(text)
    data.mkdir(exist_ok=True)
    old = target / "..data"
    previous = os.readlink(old) if old.is_symlink() else None
    (target / "..new").symlink_to(data.name)
    os.replace(target / "..new", old)
    tops = {name.split("/")[0] for name in files}
    for top in tops:
        if not (target / top).is_symlink():
            (target / top).symlink_to(f"..data/{top}")
    for entry in target.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if previous:
        shutil.rmtree(target / previous)


def expanded(text, environment):
    return re.sub(r"\$\(([^)]+)\)", lambda match: environment.get(match[1], match[0]), text)


def is_ready(probe, container, address):
    if not probe:
        return True
    (kind, place) = next((kind, probe[kind]) for kind in ("httpGet", "tcpSocket", "grpc", "exec") if kind in probe)
    if kind == "exec":
        return True
    port = place["port"]
    if isinstance(port, str):
        port = next(entry["containerPort"] for entry in container["ports"] if entry.get("name") == port)
    try:
        if kind != "httpGet":
            socket.create_connection((address, port), 1).close()
            return True
        connection = http.client.HTTPConnection(address, port, timeout=probe.get("timeoutSeconds", 1))
        connection.request("GET", place.get("path", "/"))
        status = connection.getresponse().status
        connection.close()
        return status < 400
    except (OSError, http.client.HTTPException):
        return False


def run(*command):
    subprocess.run(command, check=True)


def register_node():
    api("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})
    resources = {"cpu": "64", "memory": "64Gi", "pods": "250", "ephemeral-storage": "64Gi"}
    status = {
        "addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Started", "message": ""}],
        "capacity": resources,
        "allocatable": resources,
    }
    api("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, MERGE_PATCH)


def renew_lease():
    """Reports that the node still works, without which its pods are moved away."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    while True:
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            api("PATCH", f"{leases}/{NODE}", {"spec": spec}, MERGE_PATCH)
        except NotFound:
            try:
                api("POST", leases, {"metadata": {"name": NODE}, "spec": spec})
            except (OSError, NotFound):
                pass
        except OSError:
            pass
        time.sleep(10)


def main():
    directory.mkdir(parents=True, exist_ok=True)
    register_node()
    threading.Thread(target=renew_lease, daemon=True).start()
    pods, number = {}, 1
    while True:
        try:
            resources = api("GET", "/api/v1/pods")["items"]
        except OSError:
            time.sleep(0.5)
            continue
        seen = set()
        for resource in resources:
            metadata = resource["metadata"]
            uid = metadata["uid"]
            seen.add(uid)
            try:
                if "deletionTimestamp" in metadata:
                    if uid not in pods:
                        api("DELETE", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0")
                    elif not pods[uid].is_stopping:
                        pods[uid].is_stopping = True
                        threading.Thread(target=pods[uid].stop, daemon=True).start()
                elif uid not in pods and resource["spec"].get("nodeName"):
                    number += 1
                    pods[uid] = Pod(resource, number)
                    threading.Thread(target=pods[uid].run, daemon=True).start()
            except (OSError, NotFound) as error:
                print(f"{metadata['namespace']}/{metadata['name']}: {error}", flush=True)
        for uid in set(pods) - seen:
            if not pods[uid].is_stopping:
                pods[uid].is_stopping = True
                threading.Thread(target=pods[uid].stop, daemon=True).start()
            del pods[uid]
        time.sleep(0.3)


main()
