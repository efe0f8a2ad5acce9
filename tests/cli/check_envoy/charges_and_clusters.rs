//! What is charged twice or not at all, and clusters without HTTP/2. tests/e2e/envoy_filters.rs shows that Envoy does so.

use super::*;

const TWICE: &str = "this descriptor is sent twice, so each request is charged twice";

/// How often a configuration charges a descriptor twice.
fn twice(envoy: &str) -> usize {
    warnings(envoy).iter().filter(|found| *found == TWICE).count()
}

#[test]
fn descriptors_that_are_sent_twice() {
    let user = rate_limits(&[&[USER]]);
    let both = route(&format!("{user}, include_vh_rate_limits: true"));
    assert_eq!(twice(&envoy(FILTER, &user, &both)), 1);
    assert_eq!(twice(&envoy(FILTER, &user, &route(&user))), 0, "the route replaces its host");
    // Two routes, of which a request takes one.
    let one = envoy(FILTER, "", &route(&user));
    let (_, other) = one.split_once("routes:\n").unwrap();
    assert_eq!(twice(&format!("{one}{other}")), 0);
    // Other entries, or another order of them.
    assert_eq!(twice(&envoy(FILTER, "", &route(&rate_limits(&[&[API, USER], &[USER, API]])))), 0);
    for (more, times) in [
        ("", 1),
        (", disable_key: a", 0),
        (", limit: { dynamic_metadata: { metadata_key: { key: k } } }", 0),
        (", hits_addend: { number: 0 }", 0),
        (", hits_addend: { number: 2 }", 1),
        (", apply_on_stream_done: true", 0),
    ] {
        let items =
            format!("rate_limits: [{{ actions: [{USER}] }}, {{ actions: [{USER}]{more} }}]");
        let of_filter = format!("{FILTER}\n{items}");
        assert_eq!(twice(&envoy(&of_filter, "", "route: { cluster: b }")), times, "{more}");
    }
    let filter = "- name: again\n  typed_config: { \"@type\": \
                  type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: shop }\n";
    let twice_installed = |filter: &str| {
        let indented: String = filter.lines().map(|line| format!("{:18}{line}\n", "")).collect();
        let before = "                route_config:\n";
        twice(&one.replace(before, &format!("{indented}{before}")))
    };
    assert_eq!(twice_installed(filter), 1);
    assert_eq!(twice_installed(&filter.replace("domain: shop", "domain: shop, stage: 1")), 0);
    assert_eq!(twice_installed(&filter.replace("domain: shop", "domain: other")), 0);
}

#[test]
fn hits_that_may_have_no_number() {
    let message = "Envoy ignores this item where `hits_addend` has no number, and does not ask weir if no other item \
                   is left";
    for (hits, is_warned) in [
        ("{ format: '%REQ(x-cost)%' }", true),
        ("{ format: '%DYNAMIC_METADATA(a:b)%' }", true),
        ("{ format: '%BYTES_RECEIVED%' }", false),
        ("{ format: \"%CEL(has(request.path) ? 2 : 1)%\" }", false),
        ("{ number: 3 }", false),
        // At the end there is nothing to ask.
        ("{ format: '%RESP(x-cost)%' }, apply_on_stream_done: true", false),
    ] {
        let items = format!("rate_limits: [{{ actions: [{USER}], hits_addend: {hits} }}]");
        let found = warnings(&envoy(&format!("{FILTER}\n{items}"), "", "route: { cluster: b }"));
        assert_eq!(found.iter().any(|found| found == message), is_warned, "{hits}: {found:?}");
    }
}

#[test]
fn clusters_without_http2_are_errors() {
    let service = "rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: \
                   weir } } }";
    let all = envoy(
        &format!("{FILTER}\n{service}"),
        "",
        &route(&rate_limits(&[&[USER], &[API, METHOD]])),
    );
    let options = "typed_extension_protocol_options: { envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { \
                   explicit_http_config: ";
    let downstream = options.replace("explicit_http_config", "use_downstream_protocol_config");
    for (cluster, is_error) in [
        ("name: other".to_owned(), false),
        ("name: weir, weight: 1".to_owned(), false),
        ("name: weir".to_owned(), true),
        ("name: weir, http2_protocol_options: {}".to_owned(), false),
        (format!("name: weir, {options} {{ http2_protocol_options: {{}} }} }} }}"), false),
        (format!("name: weir, {options} {{ http_protocol_options: {{}} }} }} }}"), true),
        (format!("name: weir, {downstream} {{ http2_protocol_options: {{}} }} }} }}"), true),
    ] {
        let found = warnings(&format!("{all}  clusters: [{{ {cluster} }}]\n"));
        let message = "the cluster 'weir' does not use HTTP/2, which gRPC needs: Envoy gets no answer from weir, and \
                       limits nothing";
        assert_eq!(found, [message][..usize::from(is_error)], "{cluster}");
    }
    // At each filter, also in a dump, whose clusters have types.
    let dump = format!(
        "{all}---\n{all}---\n'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: weir\n"
    );
    assert_eq!(warnings(&dump).len(), 2);
}
