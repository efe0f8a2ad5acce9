//! Proxies of a mesh: what Istio generates for them, changed by resources of the examples.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::envoy_filter;
use crate::support::certificates::{Authority, Identity};
use crate::support::{backend::Backend, envoy, yaml};

/// The namespace whose resources apply to all others.
const ROOT_NAMESPACE: &str = "istio-system";

/// The name that the examples give weir.
pub const WEIR_HOST: &str = "weir.ratelimit.svc.cluster.local";

/// The cluster that Istio generates for weir.
pub const WEIR_CLUSTER: &str = "outbound|8081||weir.ratelimit.svc.cluster.local";

/// Reads a file of the example.
pub fn example(file: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/istio");
    fs::read_to_string(directory.join(file)).expect("a file")
}

/// The authority of the mesh's certificates.
pub struct Mesh {
    pub authority: Authority,
}

impl Mesh {
    pub fn new() -> Mesh {
        Mesh { authority: Authority::named("mesh") }
    }

    /// Returns the certificate of a service account, as `namespace/name`.
    pub fn identity(&self, account: &str) -> Identity {
        let (namespace, name) = account.split_once('/').expect("namespace/name");
        let id = format!("spiffe://cluster.local/ns/{namespace}/sa/{name}");
        // The second name is the one that the tests' client expects.
        self.authority.sign(&[&id, crate::support::tls::SERVER_NAME])
    }
}

/// A gateway or sidecar before it starts.
pub struct Proxy {
    namespace: String,
    labels: &'static [(&'static str, &'static str)],
    is_gateway: bool,
    identity: Identity,
    root: String,
    /// The certificate authority in the secret or file that a DestinationRule names.
    pub weir_ca: String,
    config: Value,
    backend: Backend,
}

impl Proxy {
    /// An ingress gateway that finds weir at this address.
    pub fn gateway(mesh: &Mesh, weir: SocketAddr) -> Proxy {
        let account = "istio-system/istio-ingressgateway";
        let backend = Backend::start();
        let to = backend.address;
        let config = include_str!("gateway.yaml");
        let labels = &[("istio", "ingressgateway")];
        Proxy::new(mesh, account, labels, config, weir, to, backend)
    }

    /// The sidecar of the workload `cart`.
    pub fn cart(mesh: &Mesh, weir: SocketAddr) -> Proxy {
        let backend = Backend::start();
        let to = backend.address;
        let config = include_str!("sidecar.yaml");
        Proxy::new(mesh, "shop/cart", &[("app", "cart")], config, weir, to, backend)
    }

    /// The sidecar of weir.
    pub fn weir(mesh: &Mesh, weir: SocketAddr) -> Proxy {
        let labels =
            &[("app.kubernetes.io/name", "weir"), ("app.kubernetes.io/component", "ratelimit")];
        let config = include_str!("sidecar.yaml");
        let mut proxy =
            Proxy::new(mesh, "ratelimit/weir", labels, config, weir, weir, Backend::start());
        // The port is known to be gRPC.
        let options = "typed_extension_protocol_options";
        let clusters = &mut proxy.config["static_resources"]["clusters"];
        clusters[1][options] = clusters[0][options].clone();
        proxy
    }

    fn new(
        mesh: &Mesh,
        account: &str,
        labels: &'static [(&'static str, &'static str)],
        config: &str,
        weir: SocketAddr,
        workload: SocketAddr,
        backend: Backend,
    ) -> Proxy {
        let identity = mesh.identity(account);
        let quoted = |pem: &str| format!("{pem:?}");
        let config = config
            .replace("{weir}", &weir.port().to_string())
            .replace("{backend}", &workload.port().to_string())
            .replace("{cert}", &quoted(&identity.cert))
            .replace("{key}", &quoted(&identity.key))
            .replace("{root}", &quoted(&mesh.authority.pem));
        Proxy {
            namespace: account.split('/').next().expect("a namespace").to_owned(),
            labels,
            is_gateway: labels[0].0 == "istio",
            identity,
            root: mesh.authority.pem.clone(),
            weir_ca: String::new(),
            config: yaml::document(&config),
            backend,
        }
    }

    /// Applies the resources of an example. Returns how many of them are for this proxy.
    pub fn apply(&mut self, file: &str) -> usize {
        self.apply_text(&example(file))
    }

    /// As [`apply`](Self::apply), of a text.
    pub fn apply_text(&mut self, resources: &str) -> usize {
        yaml::documents(resources).iter().filter(|resource| self.apply_one(resource)).count()
    }

    fn apply_one(&mut self, resource: &Value) -> bool {
        let namespace = resource["metadata"]["namespace"].as_str().expect("a namespace");
        let spec = &resource["spec"];
        let is_local = namespace == self.namespace;
        match resource["kind"].as_str() {
            Some("EnvoyFilter") => {
                let labels = &spec["workloadSelector"]["labels"];
                let applies = (is_local || namespace == ROOT_NAMESPACE) && self.has(labels);
                if applies {
                    envoy_filter::apply(resource, &mut self.config, self.is_gateway);
                }
                applies
            }
            Some("DestinationRule") => {
                let selector = &spec["workloadSelector"];
                let applies = match selector.is_null() {
                    // Also those of the namespace of the Service.
                    true => is_local || [ROOT_NAMESPACE, "ratelimit"].contains(&namespace),
                    false => is_local && self.has(&selector["matchLabels"]),
                };
                if applies {
                    assert_eq!(spec["host"], WEIR_HOST);
                    self.connect_over_tls(&spec["trafficPolicy"]["tls"]);
                }
                applies
            }
            Some("PeerAuthentication") => {
                envoy_filter::assert_keys(spec, &["selector", "mtls", "portLevelMtls"]);
                assert_eq!(spec["mtls"], json!({ "mode": "STRICT" }));
                let applies = is_local && self.has(&spec["selector"]["matchLabels"]);
                if applies {
                    self.require_mesh_tls(&spec["portLevelMtls"]);
                }
                applies
            }
            other => panic!("{other:?} is not supported"),
        }
    }

    fn has(&self, labels: &Value) -> bool {
        let labels = labels.as_object().expect("labels");
        let has = |label: (&String, &Value)| {
            self.labels.iter().any(|(n, v)| label.0 == n && label.1 == v)
        };
        labels.iter().all(has)
    }

    /// Sets up connections to weir as a DestinationRule says.
    fn connect_over_tls(&mut self, settings: &Value) {
        let inline = |pem: &str| json!({ "inline_string": pem });
        let fields: Vec<&str> = settings.as_object().unwrap().keys().map(String::as_str).collect();
        let (names, kind, sni, ca, own) = match settings["mode"].as_str() {
            Some("ISTIO_MUTUAL") => {
                assert_eq!(fields, ["mode"]);
                let own = json!([{ "certificate_chain": inline(&self.identity.cert),
                                   "private_key": inline(&self.identity.key) }]);
                let name = "spiffe://cluster.local/ns/ratelimit/sa/weir";
                let sni = format!("outbound_.8081_._.{WEIR_HOST}");
                (json!([name]), "URI", json!(sni), &self.root, own)
            }
            Some("SIMPLE") => {
                // Gateways read secrets; sidecars read files, unless they may read secrets too.
                let ca = if self.is_gateway { "credentialName" } else { "caCertificates" };
                let mut known = [ca, "mode", "sni", "subjectAltNames"];
                known.sort_unstable();
                assert_eq!(fields, known);
                let (names, sni) = (settings["subjectAltNames"].clone(), settings["sni"].clone());
                (names, "DNS", sni, &self.weir_ca, json!([]))
            }
            other => panic!("{other:?} is not supported"),
        };
        let matcher = |name: &Value| json!({ "san_type": kind, "matcher": { "exact": name } });
        let names: Vec<Value> = names.as_array().expect("names").iter().map(matcher).collect();
        let cluster = &mut self.config["static_resources"]["clusters"][0];
        assert_eq!(cluster["name"], WEIR_CLUSTER);
        cluster["transport_socket"] = json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": sni,
                "common_tls_context": {
                    "alpn_protocols": ["h2"],
                    "tls_certificates": own,
                    "validation_context": {
                        "trusted_ca": inline(ca),
                        "match_typed_subject_alt_names": names,
                    },
                },
            },
        });
    }

    /// Removes the filter chains for callers without TLS, except those of permissive ports.
    fn require_mesh_tls(&mut self, ports: &Value) {
        for listener in self.config["static_resources"]["listeners"].as_array_mut().unwrap() {
            let chains = listener["filter_chains"].as_array_mut().unwrap();
            chains.retain(|chain| {
                let port = chain["filter_chain_match"]["destination_port"].to_string();
                let is_permissive = ports[&port]["mode"] == "PERMISSIVE";
                is_permissive || chain["filter_chain_match"]["transport_protocol"] != "raw_buffer"
            });
        }
    }

    /// Returns the ports that accept connections without TLS.
    pub fn plaintext_ports(&self) -> Vec<u64> {
        let chains = self.config["static_resources"]["listeners"][1]["filter_chains"].as_array();
        let chains = chains.unwrap().iter().map(|chain| &chain["filter_chain_match"]);
        let plain = chains.filter(|it| it["transport_protocol"] == "raw_buffer");
        plain.filter_map(|it| it["destination_port"].as_u64()).collect()
    }

    /// Returns the names of the HTTP filters of a listener's first filter chain.
    pub fn http_filters(&self, listener: usize) -> Vec<&str> {
        let listener = &self.config["static_resources"]["listeners"][listener];
        let manager = &listener["filter_chains"][0]["filters"][0]["typed_config"];
        let filters = manager["http_filters"].as_array().unwrap();
        filters.iter().map(|filter| filter["name"].as_str().unwrap()).collect()
    }

    /// Starts Envoy, and waits for this listener.
    pub fn start(self, listener: &str) -> envoy::Envoy {
        let mut config = self.config;
        for listener in config["static_resources"]["listeners"].as_array_mut().unwrap() {
            for chain in listener["filter_chains"].as_array_mut().unwrap() {
                // The test connects to another port.
                if chain["filter_chain_match"]["destination_port"] == 8080 {
                    chain["filter_chain_match"]["destination_port"] = Value::Null;
                }
            }
        }
        // A busy machine may take longer than the examples wait.
        let config = config.to_string().replace(r#""timeout":"0.05s""#, r#""timeout":"10s""#);
        envoy::run(&config, self.backend, listener)
    }
}
