//! What `weir check --envoy` says about filters is what Envoy does.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::backend::Backend;
use crate::support::weir::{Weir, serving};
use crate::support::{PATIENCE, envoy, http, wait_for};

const RULES: &str = "\
domain: d
descriptors:
  - { key: generic_key, value: all, rate: 9/year }
  - { key: generic_key, value: none, rate: 0/year }
  - { key: header_match, value: all, rate: 9/year }
  - { key: client, rate: 9/year }
";

fn generic_key(value: &str) -> Value {
    json!({ "generic_key": { "descriptor_value": value } })
}

fn http2() -> Value {
    json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": { "http2_protocol_options": {} },
    } })
}

fn cluster(name: &str, address: SocketAddr, options: &Value) -> Value {
    let address = json!({ "address": "127.0.0.1", "port_value": address.port() });
    let endpoint = json!({ "endpoint": { "address": { "socket_address": address } } });
    json!({
        "name": name,
        "connect_timeout": "5s",
        "typed_extension_protocol_options": options,
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
    })
}

/// A configuration with these network filters on one listener.
fn config(filters: &Value, weir: &Value, backend: SocketAddr) -> String {
    let any = json!({ "socket_address": { "address": "127.0.0.1", "port_value": 0 } });
    let listener =
        json!({ "name": "in", "address": any, "filter_chains": [{ "filters": filters }] });
    let backend = cluster("backend", backend, &json!({}));
    json!({
        "admin": { "address": any },
        "static_resources": { "listeners": [listener], "clusters": [weir, backend] },
    })
    .to_string()
}

/// A filter of this type for the domain `d`, with further fields.
fn rate_limit(kind: &str, fields: &Value) -> Value {
    let mut filter = json!({
        "@type": format!("type.googleapis.com/envoy.extensions.filters.{kind}.v3.RateLimit"),
        "domain": "d",
        "timeout": "10s",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": { "envoy_grpc": { "cluster_name": "weir" } },
        },
    });
    let fields = fields.as_object().unwrap().clone();
    filter.as_object_mut().unwrap().extend(fields);
    filter
}

/// The network filters of an HTTP listener with this rate-limit filter, and these items on its route.
fn http_filters(fields: &Value, items: &Value) -> Value {
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let route = json!({ "cluster": "backend", "rate_limits": items });
    let host = json!({
        "name": "all",
        "domains": ["*"],
        "routes": [{ "match": { "prefix": "/" }, "route": route }],
    });
    let kind = "network.http_connection_manager.v3.HttpConnectionManager";
    json!([{ "name": "http", "typed_config": {
        "@type": format!("type.googleapis.com/envoy.extensions.filters.{kind}"),
        "stat_prefix": "in",
        "route_config": { "virtual_hosts": [host] },
        "http_filters": [
            { "name": "limit", "typed_config": rate_limit("http.ratelimit", fields) },
            { "name": "router", "typed_config": { "@type": router } },
        ],
    } }])
}

struct Tested {
    envoy: envoy::Envoy,
    weir: Weir,
    /// The messages about the configuration.
    found: Vec<String>,
}

impl Tested {
    fn new(filters: &Value, options: &Value) -> Tested {
        let (weir, backend) = (serving(RULES).start(), Backend::start());
        let config = config(filters, &cluster("weir", weir.grpc, options), backend.address);
        let found = found(&config);
        Tested { envoy: envoy::run(&config, backend, "in"), weir, found }
    }

    fn status(&self, headers: &[(&str, &str)]) -> u16 {
        http::get_with(self.envoy.address, "/", headers).status
    }

    fn hits(&self, rule: &str) -> u64 {
        self.weir.metric(&format!(r#"weir_rule_hits_total{{domain="d",rule="{rule}"}}"#))
    }

    fn has(&self, text: &str) -> bool {
        self.found.iter().any(|message| message.contains(text))
    }
}

/// Runs `weir check --envoy`, and returns its messages but those about rules that nothing asks for.
fn found(config: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    fs::write(directory.path().join("envoy.json"), config).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", "rules.yaml", "--envoy", "envoy.json", "--output", "json"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = report["problems"].as_array().unwrap().iter();
    let of_envoy = problems.filter(|problem| problem["file"] == "envoy.json");
    let shown = |problem: &Value| {
        format!(
            "{}: {}",
            problem["severity"].as_str().unwrap(),
            problem["message"].as_str().unwrap()
        )
    };
    of_envoy.map(shown).collect()
}

#[test]
fn without_http2_weir_is_not_asked() {
    let items = json!([{ "actions": [generic_key("none")] }]);
    let filters = http_filters(&json!({}), &items);
    let downstream = http2().to_string().replace("explicit_http", "use_downstream_protocol");
    let message = "error: the cluster 'weir' does not use HTTP/2, which gRPC needs: Envoy gets no answer from weir, and \
                   limits nothing";
    for options in [json!({}), downstream.parse().unwrap()] {
        let broken = Tested::new(&filters, &options);
        assert_eq!(broken.found, [message]);
        assert_eq!((broken.status(&[]), broken.hits("generic_key_none")), (200, 0));
    }
    let right = Tested::new(&filters, &http2());
    assert_eq!((right.status(&[]), right.found.len()), (429, 0));
}

#[test]
fn an_item_that_a_route_has_twice_is_charged_twice() {
    let item = json!({ "actions": [generic_key("all")] });
    let other = json!({ "actions": [generic_key("none")], "hits_addend": { "number": 0 } });
    let twice = Tested::new(&http_filters(&json!({}), &json!([item, item])), &http2());
    assert_eq!((twice.status(&[]), twice.hits("generic_key_all")), (200, 2));
    assert_eq!(
        twice.found,
        ["warning: this descriptor is sent twice, so each request is charged twice"]
    );
    // A look, and what is charged at the end, are something else.
    let mut end = item.clone();
    end["apply_on_stream_done"] = true.into();
    let items = json!({ "rate_limits": [other, item, end] });
    assert_eq!(
        found(&config(&http_filters(&items, &json!([])), &cluster("weir", any(), &http2()), any())),
        [""; 0]
    );
}

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

#[test]
fn without_a_number_of_hits_a_request_passes_unasked() {
    let asking = |format: &str| {
        let item = json!({ "actions": [generic_key("all")], "hits_addend": { "format": format } });
        let items = json!({ "rate_limits": [item] });
        Tested::new(&http_filters(&items, &json!([])), &http2())
    };
    let header = asking("%REQ(x-cost)%");
    assert!(header.has("Envoy ignores this item where `hits_addend` has no number"));
    for cost in [&[("x-cost", "2")][..], &[], &[("x-cost", "many")], &[("x-cost", "-1")]] {
        assert_eq!(header.status(cost), 200);
    }
    assert_eq!(header.hits("generic_key_all"), 2);
    // The advice.
    let with_default =
        asking("%CEL('x-cost' in request.headers ? request.headers['x-cost'] : '1')%");
    assert_eq!(with_default.found, [""; 0]);
    for cost in [&[("x-cost", "2")][..], &[]] {
        assert_eq!(with_default.status(cost), 200);
    }
    assert_eq!(with_default.hits("generic_key_all"), 3);
}

#[test]
fn statuses_below_400_deny_nothing_or_are_ignored() {
    let items = json!([{ "actions": [generic_key("none")] }]);
    for (status, sent, is_warned) in [("OK", 429, true), ("Found", 429, true), ("503", 503, false)]
    {
        let status = json!({ "code": status.parse::<u16>().map_or(status.into(), Value::from) });
        let tested =
            Tested::new(&http_filters(&json!({ "rate_limited_status": status }), &items), &http2());
        assert_eq!(tested.status(&[]), sent, "{status}");
        assert_eq!(tested.has("Envoy sends 429 instead of the status"), is_warned, "{status}");
    }
    // Nobody listens there.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answer = |fields: &Value| {
        let backend = Backend::start();
        let weir = cluster("weir", dead, &http2());
        let config = config(&http_filters(fields, &items), &weir, backend.address);
        let envoy = envoy::run(&config, backend, "in");
        (http::get(envoy.address, "/").status, found(&config))
    };
    let (status, found) =
        answer(&json!({ "failure_mode_deny": true, "status_on_error": { "code": "OK" } }));
    let passing = "warning: requests that are denied without an answer get the status OK";
    assert_eq!((status, found), (200, vec![passing.to_owned()]));
    for (deny, percent, wanted) in [(true, 0, 200), (false, 100, 500)] {
        let value = json!({ "numerator": percent, "denominator": "HUNDRED" });
        let share = json!({ "default_value": value, "runtime_key": "share" });
        let (status, found) =
            answer(&json!({ "failure_mode_deny": deny, "failure_mode_deny_percent": share }));
        assert_eq!(status, wanted, "{deny} {percent}");
        let message =
            "warning: Envoy ignores `failure_mode_deny` beside `failure_mode_deny_percent`";
        assert_eq!(found, [message]);
    }
}

#[test]
fn the_tcp_filter_asks_once_a_connection() {
    let entry = json!({ "key": "client", "value": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%" });
    let filters = |descriptors: &Value| {
        let fields = json!({ "stat_prefix": "tcp", "descriptors": descriptors });
        json!([
            { "name": "limit", "typed_config": rate_limit("network.ratelimit", &fields) },
            { "name": "tcp", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": "tcp",
                "cluster": "backend",
            } },
        ])
    };
    let item = json!({ "entries": [entry] });
    let tested = Tested::new(&filters(&json!([item, item])), &http2());
    assert_eq!((tested.status(&[]), tested.hits("client")), (200, 2));
    assert_eq!(
        tested.found,
        ["warning: this descriptor is sent twice, so each request is charged twice"]
    );
    let broken = config(&filters(&json!([item])), &cluster("weir", any(), &json!({})), any());
    assert!(found(&broken)[0].starts_with("error: the cluster 'weir' does not use HTTP/2"));
}

#[test]
fn the_thrift_filter_ignores_descriptor_keys() {
    let mut named = generic_key("all");
    named["generic_key"]["descriptor_key"] = "client".into();
    let header = json!({ "name": "h", "present_match": false });
    let matched = json!({ "header_value_match": {
        "descriptor_key": "client", "descriptor_value": "all", "headers": [header],
    } });
    let items = json!([{ "actions": [named] }, { "actions": [matched] }]);
    let thrift = |items: &Value| {
        let route = json!({ "cluster": "backend", "rate_limits": items });
        let limit = rate_limit("network.thrift_proxy.filters.ratelimit", &json!({}));
        json!([{ "name": "thrift", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
            "stat_prefix": "thrift",
            "transport": "FRAMED",
            "protocol": "BINARY",
            "route_config": { "name": "all", "routes": [{ "match": { "method_name": "" }, "route": route }] },
            "thrift_filters": [
                { "name": "envoy.filters.thrift.rate_limit", "typed_config": limit },
                { "name": "envoy.filters.thrift.router", "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.thrift_proxy.router.v3.Router",
                } },
            ],
        } }])
    };
    let tested = Tested::new(&thrift(&items), &http2());
    let ignored = |sent: &str| {
        format!("warning: Envoy's Thrift filter ignores `descriptor_key`: it sends '{sent}'")
    };
    assert_eq!(tested.found, [ignored("generic_key"), ignored("header_match")]);
    // A call of the method `a` without arguments, in a frame.
    let call = b"\x00\x00\x00\x0e\x80\x01\x00\x01\x00\x00\x00\x01a\x00\x00\x00\x01\x00";
    let mut socket = TcpStream::connect(tested.envoy.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(call).unwrap();
    wait_for("the filter asks", || (tested.hits("generic_key_all") == 1).then_some(()));
    assert_eq!((tested.hits("header_match_all"), tested.hits("client")), (1, 0));
    drop(socket);
    // Rules that it reaches are compared, as are descriptors without one.
    let other = json!([{ "actions": [generic_key("other"), { "remote_address": {} }] }]);
    let other = config(&thrift(&other), &cluster("weir", any(), &http2()), any());
    let none = "warning: no rule of the domain 'd' matches 'generic_key=other,remote_address=…'";
    assert_eq!(found(&other), [none]);
    let broken = config(&thrift(&items), &cluster("weir", any(), &json!({})), any());
    assert!(found(&broken).iter().any(|found| found.contains("does not use HTTP/2")));
}
