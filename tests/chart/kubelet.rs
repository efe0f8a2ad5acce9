//! What the kubelet does with a rendered pod: mounts ConfigMaps and secrets as directories, and starts
//! the container. Paths are below a temporary directory, and ports are free ones; nothing else differs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::helm::NAMESPACE;
use crate::manifests::{Manifests, Read};
use crate::support::program::Program;

/// Files by name.
type Files = BTreeMap<String, String>;

/// Collects files.
fn files(of: &[(&str, &str)]) -> Files {
    of.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// The password of the bundled store, whose secret every node has.
pub const STORE_PASSWORD: &str = "p%a\"ss \\ w$o'rd";

/// The pod of weir on a node.
#[derive(Debug)]
pub struct Node {
    directory: TempDir,
    container: Value,
    /// Secrets and ConfigMaps that the release does not contain, by name.
    secrets: BTreeMap<String, Files>,
    config_maps: BTreeMap<String, Files>,
    mounts: Vec<Mount>,
    /// Texts that are replaced in mounted files: addresses that exist in a cluster only.
    addresses: Vec<(String, String)>,
    generation: usize,
}

#[derive(Debug)]
struct Mount {
    path: String,
    volume: Value,
}

/// A started container.
#[derive(Debug)]
pub struct Running {
    pub node: Node,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub debug: SocketAddr,
    pub resp: Option<SocketAddr>,
    program: Program,
}

impl Node {
    /// Takes the pod of weir of a release.
    pub fn new(release: &Manifests) -> Node {
        Node::with_pod(release, release.pod())
    }

    /// Takes the first container of a pod of a release.
    pub fn with_pod(release: &Manifests, pod: &Value) -> Node {
        let container = &pod["containers"].list()[0];
        let mounts = container.get("volumeMounts").into_iter().flat_map(Value::list);
        let claims = release.workload()["spec"].get("volumeClaimTemplates");
        let claims = claims.map_or(&[][..], |claims| claims.list());
        let mounts = mounts.map(|mount| {
            // The kubelet never updates a subPath.
            assert!(mount.get("subPath").is_none(), "{mount}");
            let name = mount["name"].text();
            let claimed = claims.iter().any(|claim| claim["metadata"]["name"] == *name);
            let volume = match claimed {
                true => serde_json::json!({"persistentVolumeClaim": {}}),
                false => pod["volumes"].named(name).clone(),
            };
            Mount { path: mount["mountPath"].text().to_owned(), volume }
        });
        let config_maps = release.of_kind("ConfigMap").map(|map| {
            let data = map["data"].map().iter();
            let data = data.map(|(name, text)| (name.clone(), text.text().to_owned()));
            (map["metadata"]["name"].text().to_owned(), data.collect())
        });
        Node {
            directory: TempDir::with_prefix("weir-chart").unwrap(),
            container: container.clone(),
            secrets: [("weir-valkey".to_owned(), files(&[("password", STORE_PASSWORD)]))].into(),
            config_maps: config_maps.collect(),
            mounts: mounts.collect(),
            addresses: Vec::new(),
            generation: 0,
        }
    }

    pub fn secret(mut self, name: &str, of: &[(&str, &str)]) -> Node {
        self.secrets.insert(name.to_owned(), files(of));
        self
    }

    pub fn config_map(mut self, name: &str, of: &[(&str, &str)]) -> Node {
        self.set_config_map(name, of);
        self
    }

    /// Changes a ConfigMap, whose mount follows with the next [`mount`](Self::mount).
    pub fn set_config_map(&mut self, name: &str, of: &[(&str, &str)]) {
        self.config_maps.insert(name.to_owned(), files(of));
    }

    /// Replaces an address of the cluster in the mounted files, which must have it.
    pub fn address(mut self, of_cluster: &str, here: &str) -> Node {
        self.addresses.push((of_cluster.to_owned(), here.to_owned()));
        self
    }

    /// Returns the path of a file of the container on this machine.
    pub fn path(&self, of_container: &str) -> PathBuf {
        self.directory.path().join(of_container.trim_start_matches('/'))
    }

    /// Mounts all volumes, or mounts their changed content: a new directory each, to which `..data` is
    /// switched by a rename, as the kubelet does.
    pub fn mount(&mut self) {
        self.generation += 1;
        let mut replaced = vec![false; self.addresses.len()];
        for mount in &self.mounts {
            let directory = self.path(&mount.path);
            fs::create_dir_all(&directory).unwrap();
            let Some(files) = self.content(&mount.volume) else { continue };
            let version = format!("..2026_01_01_{:02}", self.generation);
            fs::create_dir(directory.join(&version)).unwrap();
            for (name, text) in &files {
                let mut text = self.rewrite(text);
                for (done, (from, to)) in replaced.iter_mut().zip(&self.addresses) {
                    *done |= text.contains(from);
                    text = text.replace(from, to);
                }
                fs::write(directory.join(&version).join(name), text).unwrap();
                let link = directory.join(name);
                if !link.is_symlink() {
                    symlink(Path::new("..data").join(name), link).unwrap();
                }
            }
            let data = directory.join("..data");
            let old = fs::read_link(&data).ok();
            symlink(&version, directory.join("..data_tmp")).unwrap();
            fs::rename(directory.join("..data_tmp"), &data).unwrap();
            if let Some(old) = old {
                fs::remove_dir_all(directory.join(old)).unwrap();
            }
        }
        assert!(
            replaced.iter().all(|&done| done),
            "{:?} in the files: {replaced:?}",
            self.addresses
        );
    }

    /// Returns the files of a volume, or none for one that is not made from files.
    fn content(&self, volume: &Value) -> Option<Files> {
        let (kind, source, all) = if let Some(map) = volume.get("configMap") {
            let name = map["name"].text();
            ("ConfigMap", map, self.config_maps.get(name).ok_or(name))
        } else if let Some(secret) = volume.get("secret") {
            let name = secret["secretName"].text();
            ("Secret", secret, self.secrets.get(name).ok_or(name))
        } else {
            let is_empty = ["emptyDir", "persistentVolumeClaim"];
            let is_empty = is_empty.iter().any(|kind| volume.get(*kind).is_some());
            assert!(is_empty, "a volume of another kind: {volume}");
            return None;
        };
        let all = all.unwrap_or_else(|name| panic!("no {kind} {name}: the pod would not start"));
        let Some(items) = source.get("items") else { return Some(all.clone()) };
        let items = items.list().iter().map(|item| {
            let key = item["key"].text();
            let text = all.get(key).unwrap_or_else(|| panic!("no {key} in {kind}: {volume}"));
            (item["path"].text().to_owned(), text.clone())
        });
        Some(items.collect())
    }

    /// Puts the paths of mounts below the temporary directory.
    fn rewrite(&self, text: &str) -> String {
        let mut paths: Vec<&str> = self.mounts.iter().map(|mount| mount.path.as_str()).collect();
        // The longest first: one mount may be below another.
        paths.sort_by_key(|path| std::cmp::Reverse(path.len()));
        let (mut rest, mut rewritten) = (text, String::new());
        while let Some(next) = rest.chars().next() {
            if paths.iter().any(|path| rest.starts_with(path)) {
                let path = paths.iter().find(|path| rest.starts_with(**path)).unwrap();
                rewritten += self.path(path).to_str().unwrap();
                rest = &rest[path.len()..];
            } else {
                rewritten.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
        rewritten
    }

    /// Returns the words of the container's command on this machine.
    pub fn words(&self) -> Vec<String> {
        let text = |value: &Value| self.rewrite(value.text());
        let words = ["command", "args"].map(|key| self.container.get(key));
        words.into_iter().flatten().flat_map(Value::list).map(text).collect()
    }

    /// Returns the container's command on this machine, with further arguments.
    fn command(&self, further: &[&str]) -> Command {
        let mut command = self.binary(&self.words());
        command.args(further);
        command
    }

    /// Returns a command of the image, which has nothing but weir.
    fn binary(&self, words: &[String]) -> Command {
        assert_eq!(words[0], "/bin/weir", "{words:?}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(&words[1..]).env_clear().current_dir(self.directory.path());
        let variables = self.container.get("env").map(Value::list).into_iter().flatten();
        for variable in variables {
            let value = match variable.get("value") {
                Some(value) => self.rewrite(value.text()),
                None => {
                    let key = &variable["valueFrom"]["secretKeyRef"];
                    self.secrets[key["name"].text()][key["key"].text()].clone()
                }
            };
            command.env(variable["name"].text(), value);
        }
        command
    }

    /// Returns every setting of the container as weir understands it, such as `"2"` of
    /// `store.replicas`. Panics if weir refuses one.
    pub fn settings(&mut self) -> BTreeMap<String, String> {
        self.mount();
        let output = self.command(&["--print-settings"]).output().unwrap();
        assert!(output.status.success(), "weir refuses its settings: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let settings = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(" = ")?;
            let value = value.rsplit_once("  # ").map_or(value, |(value, _)| value);
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        });
        settings.collect()
    }

    /// Starts the container, and waits until it listens.
    pub fn start(mut self) -> Running {
        self.mount();
        let mut free_ports: Vec<String> = Vec::new();
        let ports = self.container["ports"].list();
        let serves_resp = ports.iter().any(|port| port["name"] == "resp");
        let addresses =
            ["grpc.address", "http.address", "debug.address", "metrics.prometheus.address"];
        for setting in addresses.into_iter().chain(serves_resp.then_some("resp.address")) {
            free_ports.extend(["--set".to_owned(), format!("{setting}=127.0.0.1:0")]);
        }
        let free_ports: Vec<&str> = free_ports.iter().map(String::as_str).collect();
        let mut program = Program::start("weir", &mut self.command(&free_ports));
        let mut listens = |what: &str| -> SocketAddr {
            let rest = program.until_said(&format!("Listening for {what} on '"));
            let rest = rest.unwrap_or_else(|output| panic!("weir ended:\n{output}"));
            // In JSON, more follows on the line.
            let address = rest.split('\'').next().unwrap_or_default();
            address.parse().unwrap_or_else(|e| panic!("{rest}: {e}"))
        };
        let (grpc, http, debug) = (listens("gRPC"), listens("HTTP"), listens("debug"));
        let resp = serves_resp.then(|| listens("RESP"));
        Running { node: self, grpc, http, debug, resp, program }
    }
}

impl Running {
    pub fn said(&self) -> String {
        self.program.said()
    }

    /// Waits until the log contains `what`.
    pub fn until_said(&mut self, what: &str) {
        if let Err(output) = self.program.until_said(what) {
            panic!("weir ended without {what:?}:\n{output}");
        }
    }

    /// Runs the command of an exec probe.
    pub fn exec_probe(&self, probe: &str) -> Output {
        let words = self.node.container[probe]["exec"]["command"].list();
        let mut replaced = 0;
        let ports = [(8080, self.http), (6070, self.debug)];
        let words = words.iter().map(|word| {
            let mut word = word.text().to_owned();
            for (of_container, here) in ports {
                let from = format!("{}:{of_container}", Ipv4Addr::LOCALHOST);
                replaced += usize::from(word.contains(&from));
                word = word.replace(&from, &here.to_string());
            }
            word
        });
        let words: Vec<String> = words.collect();
        assert_eq!(replaced, 1, "the port of the probe: {words:?}");
        self.node.binary(&words).output().unwrap()
    }

    /// Runs the pod of `helm test`, which has the address of the Service, to its end.
    pub fn helm_test(&self, release: &Manifests) -> Output {
        let mut node = Node::with_pod(release, &release.find("Pod/weir-test")["spec"]);
        node.secrets.clone_from(&self.node.secrets);
        node.mount();
        // That of the Service, or of the headless one, whose ports are those of the pods.
        let ports = release.get("Service")["spec"]["ports"].list();
        let of_cluster = match ports.iter().find(|port| port["name"] == "http") {
            Some(port) => format!("://weir.{NAMESPACE}.svc:{}/", port["port"]),
            None => format!("://weir-headless.{NAMESPACE}.svc:8080/"),
        };
        let command = node.command(&[]);
        let arguments = command.get_args().map(|it| it.to_str().unwrap().to_owned());
        let arguments: Vec<String> =
            ["/bin/weir".to_owned()].into_iter().chain(arguments).collect();
        assert!(arguments.iter().any(|it| it.contains(&of_cluster)), "{of_cluster}: {arguments:?}");
        let here = format!("://{}/", self.http);
        let words = arguments.iter().map(|it| it.replace(&of_cluster, &here));
        node.binary(&words.collect::<Vec<_>>()).output().unwrap()
    }

    pub fn runs(&mut self) -> bool {
        self.program.runs()
    }

    /// Kills the container, and starts another one with the same volumes.
    pub fn restart(mut self) -> Running {
        self.program.kill();
        self.node.start()
    }

    /// Ends the container as the kubelet does, and starts another one with the same volumes.
    pub fn replace(mut self) -> Running {
        self.program.signal("TERM");
        assert!(self.program.wait_until_ended().success());
        self.node.start()
    }
}
