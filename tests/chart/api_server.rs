//! A server that answers what Helm asks a cluster while it renders with `--dry-run=server`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Kinds of the server, by the path of their version.
const KINDS: [(&str, &[&str]); 5] = [
    ("/api/v1", &["ConfigMap", "Pod", "Secret", "Service", "ServiceAccount"]),
    ("/apis/apps/v1", &["Deployment"]),
    ("/apis/autoscaling/v2", &["HorizontalPodAutoscaler"]),
    ("/apis/networking.k8s.io/v1", &["NetworkPolicy"]),
    ("/apis/policy/v1", &["PodDisruptionBudget"]),
];

/// Resources by their paths.
type Resources = Mutex<BTreeMap<String, Value>>;

/// Serves until the tests end.
pub struct ApiServer {
    address: SocketAddr,
    resources: Arc<Resources>,
}

impl ApiServer {
    /// Starts a server without resources.
    pub fn start() -> ApiServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            ApiServer { address: listener.local_addr().unwrap(), resources: Arc::default() };
        let resources = Arc::clone(&server.resources);
        std::thread::spawn(move || serve(&listener, &resources));
        server
    }

    /// Adds a resource at a path.
    pub fn add(&self, path: &str, resource: Value) {
        self.resources.lock().unwrap().insert(path.to_owned(), resource);
    }

    /// Returns the arguments with which Helm asks this server.
    pub fn arguments(&self) -> [String; 3] {
        let server = format!("--kube-apiserver=http://{}", self.address);
        ["--dry-run=server".to_owned(), server, "--disable-openapi-validation".to_owned()]
    }
}

fn answer(path: &str, resources: &Resources) -> Option<Value> {
    if let Some(resource) = resources.lock().unwrap().get(path) {
        return Some(resource.clone());
    }
    Some(match path {
        "/version" => json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.0" }),
        "/api" => json!({ "versions": ["v1"] }),
        "/apis" => {
            let versions = KINDS.iter().filter_map(|(path, _)| path.strip_prefix("/apis/"));
            let groups = versions.map(|group_version| {
                let (group, version) = group_version.split_once('/').unwrap();
                let versions = json!({ "groupVersion": group_version, "version": version });
                json!({ "name": group, "versions": [versions] })
            });
            json!({ "groups": groups.collect::<Vec<_>>() })
        }
        _ if path.ends_with("/secrets") => {
            json!({ "kind": "SecretList", "apiVersion": "v1", "items": [] })
        }
        _ => {
            let (path, kinds) = KINDS.iter().find(|(version, _)| *version == path)?;
            let resources = kinds.iter().map(|kind| {
                let name = format!("{}s", kind.to_lowercase());
                json!({ "name": name, "kind": kind, "namespaced": true, "verbs": ["get", "list"] })
            });
            let version = path.trim_start_matches("/apis/").trim_start_matches("/api/");
            json!({ "groupVersion": version, "resources": resources.collect::<Vec<_>>() })
        }
    })
}

fn serve(listener: &TcpListener, resources: &Resources) {
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        let mut request = String::new();
        // An empty line ends the headers.
        while stream.read_line(&mut request).is_ok_and(|len| len > 2) {}
        let path = request.split([' ', '?']).nth(1).unwrap_or_default();
        let found = answer(path, resources);
        let status = if found.is_some() { "200 OK" } else { "404 Not Found" };
        let missing = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 });
        let body = found.unwrap_or(missing).to_string();
        let headers = "Content-Type: application/json\r\nConnection: close";
        let length = body.len();
        let _ = write!(
            stream.get_mut(),
            "HTTP/1.1 {status}\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
    }
}
