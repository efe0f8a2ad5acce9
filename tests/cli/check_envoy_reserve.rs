//! `weir check --envoy`: what it finds in items that reserve hits and settle them.

use crate::support::program::problems_with_envoy;

const RULES: &str = "\
domain: llm
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 100000 }
    reserve: { id: request_id, settle: settle, estimate: 4000, at_most: 20000, timeout: 10m }
";

/// A configuration that reserves and settles as it should.
const ENVOY: &str = r#"static_resources:
  listeners:
  - filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          http_filters:
          - name: envoy.filters.http.header_mutation
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
              mutations:
                request_mutations:
                - append: { header: { key: x-id, value: "%UNIQUE_ID%" }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: llm
              rate_limits:
              - actions:
                - request_headers: { header_name: x-user, descriptor_key: user }
                - request_headers: { header_name: x-id, descriptor_key: request_id }
                hits_addend:
                  format: "%BYTES_RECEIVED%"
              - actions:
                - request_headers: { header_name: x-user, descriptor_key: user } # end
                - request_headers: { header_name: x-id, descriptor_key: request_id }
                - generic_key: { descriptor_key: settle, descriptor_value: "1" }
                apply_on_stream_done: true
                hits_addend:
                  format: "%BYTES_SENT%"
              rate_limit_service:
                transport_api_version: V3
                grpc_service: { envoy_grpc: { cluster_name: weir } }
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: { prefix: / }
                route: { cluster: model, timeout: 300s }
"#;

/// Rules without `settle`: start and end send the same descriptor.
const RULES_WITHOUT_SETTLE: &str = "\
domain: llm
descriptors:
  - key: user
    descriptors:
      - key: request_id
        rate_limit: { unit: day, requests_per_unit: 100000 }
        reserve: { id: request_id, estimate: 4000, at_most: 20000 }
";

const SETTLE: &str =
    "                - generic_key: { descriptor_key: settle, descriptor_value: \"1\" }\n";
const DONE: &str = "                apply_on_stream_done: true\n";
const USER_AT_END: &str = "{ header_name: x-user, descriptor_key: user } # end";
const ID: &str = "request_headers: { header_name: x-id, descriptor_key: request_id }";

/// A configuration in which the first of these is the second, each of its places.
fn with(changes: &[(&str, &str)]) -> String {
    let change = |envoy: String, (old, new): &(&str, &str)| {
        assert!(envoy.contains(old), "{old}");
        envoy.replace(old, new)
    };
    changes.iter().fold(ENVOY.to_owned(), change)
}

/// The findings about a configuration: severity, message, and the text that it is about.
fn findings(rules: &str, envoy: &str) -> Vec<(String, String, String)> {
    problems_with_envoy(rules, envoy)
        .iter()
        .map(|problem| {
            let text = |key: &str| problem[key].as_str().unwrap().to_owned();
            let number = |key: &str| usize::try_from(problem[key].as_u64().unwrap()).unwrap();
            assert_eq!(text("file"), "envoy.yaml", "{problem}");
            let line = envoy.lines().nth(number("line") - 1).unwrap();
            (text("severity"), text("message"), line[number("column") - 1..].to_owned())
        })
        .collect()
}

/// Requires one finding, whose message and text start like this.
#[track_caller]
fn one(rules: &str, envoy: &str, severity: &str, message: &str, at: &str) {
    let found = findings(rules, envoy);
    let [(found_severity, found_message, found_at)] = found.as_slice() else {
        panic!("{found:#?}\n{envoy}");
    };
    assert_eq!(found_severity, severity, "{found_message}");
    assert!(found_message.starts_with(message), "{found_message}");
    assert!(found_at.starts_with(at), "{found_at}");
}

#[track_caller]
fn none(rules: &str, envoy: &str) {
    assert_eq!(findings(rules, envoy), [], "{envoy}");
}

#[test]
fn items_that_reserve_and_settle_have_no_findings() {
    none(RULES, ENVOY);
    none(RULES_WITHOUT_SETTLE, &with(&[(SETTLE, "")]));
}

#[test]
fn starts_and_ends_are_marked() {
    let message = "this item settles, but Envoy sends it at the start of the request";
    one(RULES, &with(&[(DONE, "")]), "error", message, "actions");
    let same = with(&[(DONE, ""), (SETTLE, "")]);
    one(RULES_WITHOUT_SETTLE, &same, "error", message, "actions");
}

/// Requires that start and end differ, and shows how.
#[track_caller]
fn differ(rules: &str, envoy: &str, sent: &str, wanted: &str) {
    let message = format!(
        "the entries of start and end differ: '{sent}' here, '{wanted}' at the start of the request \
         (envoy.yaml:20:17): what is reserved is not settled"
    );
    one(rules, envoy, "error", &message, "actions");
}

#[test]
fn starts_and_ends_have_the_same_keys() {
    let org = "{ header_name: x-org, descriptor_key: org }";
    let (start, end) =
        ("user=<x-user>,request_id=<x-id>", "user=<x-user>,request_id=<x-id>,settle=1");
    let of_org = "org=<x-org>,request_id=<x-id>,settle=1";
    differ(RULES, &with(&[(USER_AT_END, org)]), of_org, start);
    // The end has no id, no mark, is in another order, or is that of another rule.
    let id = format!("                - {ID}\n{SETTLE}");
    differ(RULES, &with(&[(&id, SETTLE)]), "user=<x-user>,settle=1", start);
    differ(RULES, &with(&[(SETTLE, "")]), start, start);
    let reversed = format!("{SETTLE}                - {ID}\n");
    differ(RULES, &with(&[(&id, &reversed)]), "user=<x-user>,settle=1,request_id=<x-id>", start);
    let both = RULES.replace("domain: llm\ndescriptors:\n", "");
    let both = format!("{RULES}{}", both.replace("key: user", "key: org"));
    differ(&both, &with(&[(USER_AT_END, org)]), of_org, start);
    differ(RULES_WITHOUT_SETTLE, &with(&[]), end, start);
}

#[test]
fn starts_and_ends_have_the_same_values() {
    let user = "request_headers: { header_name: x-user, descriptor_key: user }";
    let constant =
        |value: &str| format!("generic_key: {{ descriptor_key: user, descriptor_value: {value} }}");
    let start = format!("{user}\n");
    let (ann, bob) = (format!("{}\n", constant("ann")), constant("bob"));
    let end = format!("{user} # end");
    let (asked, sent) = ("user=<x-user>,request_id=<x-id>", "user=bob,request_id=<x-id>,settle=1");
    let of_ann = "user=ann,request_id=<x-id>";
    differ(RULES, &with(&[(&start, &ann), (&end, &bob)]), sent, of_ann);
    none(RULES, &with(&[(&start, &ann), (&end, ann.trim_end())]));
    differ(RULES, &with(&[(&end, &bob)]), sent, asked);
    // Without `settle`, the check of costs does not report it again.
    let same = with(&[(&end, &bob), (SETTLE, "")]);
    differ(RULES_WITHOUT_SETTLE, &same, "user=bob,request_id=<x-id>", asked);
    let other = end.replace("x-user", "x-customer");
    let sent = "user=<x-customer>,request_id=<x-id>,settle=1";
    differ(RULES, &with(&[(&end, &other)]), sent, asked);
    none(RULES, &with(&[(&end, &end.replace("x-user", "X-User"))]));
}

#[test]
fn items_of_several_rules_are_told_apart() {
    let org = "\
\x20 - key: org
    rate_limit: { unit: day, requests_per_unit: 9000000 }
    reserve: { id: request_id, settle: end }
";
    let item = |entries: &str, at_end: &str| {
        format!(
            "              - actions:\n                - {entries}\n                - {ID}\n{at_end}"
        )
    };
    let of_org = "request_headers: { header_name: x-org, descriptor_key: org }";
    let mark = SETTLE.replace("settle", "end");
    let items = format!("{}{}", item(of_org, ""), item(of_org, &format!("{mark}{DONE}")));
    let service = "              rate_limit_service:\n";
    let both = with(&[(service, &format!("{items}{service}"))]);
    none(&format!("{RULES}{org}"), &both);
    let marked = both.replace(&mark, SETTLE);
    let found = findings(&format!("{RULES}{org}"), &marked);
    assert!(
        found.len() == 1 && found[0].1.contains("'org=<x-org>,request_id=<x-id>,settle=1'"),
        "{found:?}"
    );
}

#[test]
fn ids_that_clients_choose() {
    let chosen = "a client can choose the id of its reservations: ";
    let mutation = "append: { header: { key: x-id, value: \"%UNIQUE_ID%\" }, append_action: \
                    OVERWRITE_IF_EXISTS_OR_ADD }";
    let message =
        format!("{chosen}no `header_mutation` before the rate limit overwrites the header 'x-id'");
    for other in [
        "remove: x-other".to_owned(),
        mutation.replace(", append_action: OVERWRITE_IF_EXISTS_OR_ADD", ""),
        mutation.replace("x-id", "x-ids"),
        mutation.replace("%UNIQUE_ID%", "%REQ(x-a)%"),
        mutation.replace("%UNIQUE_ID%", "%STREAM_ID%"),
    ] {
        one(RULES, &with(&[(mutation, &other)]), "warning", &message, "request_headers");
    }
    let request_id = ID.replace("x-id", "x-request-id");
    let message = format!("{chosen}Envoy keeps the 'x-request-id' that it sends");
    one(RULES, &with(&[(ID, &request_id)]), "warning", &message, "request_headers");
    let filters = "          http_filters:\n";
    let edge = format!("          use_remote_address: true\n{filters}");
    none(RULES, &with(&[(ID, &request_id), (filters, &edge)]));
    let query = ID.replace("request_headers", "query_parameters");
    let query = query.replace("header_name", "query_parameter_name");
    let message = format!("{chosen}it is a query parameter");
    one(RULES, &with(&[(ID, &query)]), "warning", &message, "query_parameters");
    let written = "generic_key: { descriptor_key: request_id, descriptor_value: \"%UNIQUE_ID%\" }";
    let message = "all requests have the same id: Envoy sends '%UNIQUE_ID%' as it is written";
    one(RULES, &with(&[(ID, written)]), "warning", message, "generic_key");
}

#[test]
fn ids_that_the_filters_of_a_route_set() {
    let mutation = "{ header: { key: x-id, value: \"%UNIQUE_ID%\" }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }";
    let none_here = format!("- append: {mutation}");
    let route = "                route: {";
    let per_route = format!(
        "                typed_per_filter_config: {{ envoy.filters.http.header_mutation: {{ mutations: {{ \
         request_mutations: [{{ append: {mutation} }}] }} }} }}\n{route}"
    );
    none(RULES, &with(&[(&none_here, "- remove: x-id"), (route, &per_route)]));
    let early = format!(
        "          early_header_mutation_extensions: [{{ name: early, typed_config: {{ mutations: [{{ append: \
         {mutation} }}] }} }}]\n          http_filters:\n"
    );
    none(RULES, &with(&[(&none_here, "- remove: x-id"), ("          http_filters:\n", &early)]));
}

#[test]
fn what_gateways_generate_is_checked_too() {
    let (key, id) = ("rule-0-match-0", "rule-0-match-1");
    let rules = RULES_WITHOUT_SETTLE.replace("user", key).replace("request_id", id);
    let action = |header: &str, key: &str| {
        format!(r#"{{"requestHeaders":{{"headerName":"{header}","descriptorKey":"{key}"}}}}"#)
    };
    let actions = format!("[{},{}]", action("x-user", key), action("x-request-id", id));
    let envoy = format!(
        r#"{{"staticResources":{{"listeners":[{{"filterChains":[{{"filters":[{{"typedConfig":{{
        "@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "useRemoteAddress":true,"httpFilters":[{{"name":"envoy.filters.http.ratelimit","typedConfig":{{
            "@type":"type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit","domain":"llm"}}}}],
        "routeConfig":{{"virtualHosts":[{{"routes":[{{"route":{{"cluster":"a"}},
            "typedPerFilterConfig":{{"envoy.filters.http.ratelimit":{{
            "@type":"type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
            "rateLimits":[{{"actions":{actions},"hitsAddend":{{"number":"0"}}}},
            {{"actions":{actions},"applyOnStreamDone":true,"hitsAddend":{{"format":
            "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%"}}}}]}}}}}}]}}]}}}}}}]}}]}}]}}}}"#
    );
    none(&rules, &envoy);
    let inside = envoy.replace("\"useRemoteAddress\":true,", "");
    let message = "a client can choose the id of its reservations: Envoy keeps the 'x-request-id'";
    one(&rules, &inside, "warning", message, "{\"requestHeaders");
    let other = envoy.replacen("x-user", "x-other", 1);
    let found = findings(&rules, &other);
    assert!(found.len() == 1 && found[0].1.contains("start and end differ"), "{found:#?}");
}
