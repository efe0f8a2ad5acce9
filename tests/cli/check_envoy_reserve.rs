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
                  format: "%CEL('llm' in metadata.filter_metadata && 'estimate' in M && M.estimate >= 1.0 && M.estimate <= 20000.0 ? int(M.estimate) : 4000)%"
              - actions:
                - request_headers: { header_name: x-user, descriptor_key: user } # end
                - request_headers: { header_name: x-id, descriptor_key: request_id }
                - generic_key: { descriptor_key: settle, descriptor_value: "1" }
                apply_on_stream_done: true
                hits_addend:
                  format: "%CEL(has(response.code_details) && response.code_details == 'request_rate_limited' ? '' : (has(response.code) && response.code >= 400 ? 0 : ('llm' in metadata.filter_metadata && 'tokens' in M ? int(M.tokens) : 4000)))%"
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
    let envoy = envoy.replace("M.", "metadata.filter_metadata['llm'].");
    let envoy = envoy.replace("in M ", "in metadata.filter_metadata['llm'] ");
    problems_with_envoy(rules, &envoy)
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
    let message = "this item reserves, but Envoy sends it when the response ends";
    let before = "                hits_addend:\n                  format: \"%CEL('llm'";
    let marked = format!("{DONE}{before}");
    one(RULES, &with(&[(before, &marked)]), "error", message, "true");
    let same = with(&[(before, &marked), (SETTLE, "")]);
    one(RULES_WITHOUT_SETTLE, &same, "error", message, "true");
}

#[test]
fn starts_and_ends_have_the_same_keys() {
    let org = "{ header_name: x-org, descriptor_key: org }";
    let message = "the keys of start and end differ: 'org,request_id,settle' here, 'user,request_id' at the start of \
                   the request (envoy.yaml:20:17)";
    one(RULES, &with(&[(USER_AT_END, org)]), "error", message, "actions");
    let message = "the keys of start and end differ: 'org,request_id' here, 'user,request_id,settle' at the end of \
                   the request (envoy.yaml:25:17)";
    let start = "{ header_name: x-user, descriptor_key: user }\n";
    one(RULES, &with(&[(start, &format!("{org}\n"))]), "error", message, "actions");
    // The end has no id, is in another order, or is that of another rule.
    let id = format!("                - {ID}\n{SETTLE}");
    let message = "the keys of start and end differ: 'user,settle' here";
    one(RULES, &with(&[(&id, SETTLE)]), "error", message, "actions");
    let reversed = format!("{SETTLE}                - {ID}\n");
    let message = "the keys of start and end differ: 'user,settle,request_id' here";
    one(RULES, &with(&[(&id, &reversed)]), "error", message, "actions");
    let both = RULES.replace("domain: llm\ndescriptors:\n", "");
    let both = format!("{RULES}{}", both.replace("key: user", "key: org"));
    let message = "the keys of start and end differ: 'org,request_id,settle' here";
    one(&both, &with(&[(USER_AT_END, org)]), "error", message, "actions");
}

#[test]
fn starts_and_ends_have_the_same_values() {
    let user = "request_headers: { header_name: x-user, descriptor_key: user }";
    let constant =
        |value: &str| format!("generic_key: {{ descriptor_key: user, descriptor_value: {value} }}");
    let start = format!("{user}\n");
    let (ann, bob) = (format!("{}\n", constant("ann")), constant("bob"));
    let end = format!("{user} # end");
    let message = "'user' is 'bob' here, but 'ann' at the start of the request (envoy.yaml:20:17)";
    let at = "generic_key";
    one(RULES, &with(&[(&start, &ann), (&end, &bob)]), "error", message, at);
    none(RULES, &with(&[(&start, &ann), (&end, ann.trim_end())]));
    let message = "'user' is always 'bob' here, but a value of the request at its start";
    one(RULES, &with(&[(&end, &bob)]), "error", message, at);
    // Without `settle`, the check of costs does not report it again.
    let same = with(&[(&end, &bob), (SETTLE, "")]);
    one(RULES_WITHOUT_SETTLE, &same, "error", message, at);
    let message =
        "'user' is the header 'x-customer' here, but 'x-user' at the start of the request";
    let other = end.replace("x-user", "x-customer");
    one(RULES, &with(&[(&end, &other)]), "error", message, "request_headers");
    none(RULES, &with(&[(&end, &end.replace("x-user", "X-User"))]));
}

/// The filter's items as those of the route.
fn of_route() -> String {
    let (before, rest) = ENVOY.split_once("              rate_limits:\n").unwrap();
    let (items, rest) = rest.split_once("              rate_limit_service:\n").unwrap();
    let items = items.replace("              - actions", "                    - actions");
    let items = items.replace("\n                ", "\n                      ");
    let items = items
        .trim_end_matches("                ")
        .replace("                          - actions", "                    - actions");
    let (rest, _) = rest.split_once("                route:").unwrap();
    format!(
        "{before}              rate_limit_service:\n{rest}                route:\n                  cluster: model\n\
         \x20                 timeout: 300s\n                  rate_limits:\n{items}"
    )
}

#[test]
fn hits_that_envoy_ignores_are_errors() {
    let found = findings(RULES, &of_route());
    assert_eq!(found.len(), 2, "{found:#?}");
    for (severity, message, at) in found {
        assert_eq!(severity, "error");
        assert!(message.starts_with("Envoy ignores `hits_addend` on routes"), "{message}");
        assert!(at.starts_with("format"), "{at}");
    }
}

const ESTIMATE: &str = "'llm' in metadata.filter_metadata && 'estimate' in M && M.estimate >= 1.0 && \
                        M.estimate <= 20000.0 ? int(M.estimate) : 4000";

/// Returns a configuration with a format for the estimate at the start.
fn estimate(format: &str) -> String {
    with(&[(&format!("%CEL({ESTIMATE})%"), format)])
}

#[test]
fn expressions_that_can_fail() {
    let message = "the expression fails where `request.headers['content-length']` is absent: Envoy then sends no \
                   start, and the request passes unreserved";
    let length = "%CEL(int(request.headers['content-length']) <= 9000 ? int(request.headers['content-length']) : 1)%";
    one(RULES, &estimate(length), "warning", message, "\"%CEL(int");
    let message = "the expression fails where `metadata.filter_metadata['llm'].estimate` is absent";
    let unchecked = ESTIMATE.replace("'estimate' in M && ", "");
    one(RULES, &estimate(&format!("%CEL({unchecked})%")), "warning", message, "\"%CEL(");
    let message = "the expression fails where `response.code` is absent: Envoy then sends no end, and what is \
                   reserved stays charged";
    one(RULES, &with(&[("has(response.code) && ", "")]), "warning", message, "\"%CEL(has");
    let message =
        "the expression fails where a client sends no number in `request.headers['x-max']`";
    let header = "%CEL('x-max' in request.headers ? int(request.headers['x-max']) : 4000)%";
    one(RULES, &estimate(header), "warning", message, "\"%CEL(");
}

#[test]
fn estimates_without_a_bound() {
    let message = "the estimate `metadata.filter_metadata['llm'].estimate` has no upper bound";
    let unbounded = ESTIMATE.replace(" && M.estimate <= 20000.0", "");
    one(RULES, &estimate(&format!("%CEL({unbounded})%")), "warning", message, "\"%CEL(");
    let message = "the estimate `metadata.filter_metadata['llm'].estimate` has no lower bound";
    let negative = ESTIMATE.replace(" && M.estimate >= 1.0", "");
    one(RULES, &estimate(&format!("%CEL({negative})%")), "warning", message, "\"%CEL(");
    let message =
        "the estimate has no bound: where %DYNAMIC_METADATA(…% is no number from 0 to 1000000000";
    one(RULES, &estimate("%DYNAMIC_METADATA(llm:estimate)%"), "warning", message, "\"%DYN");
    none(RULES, &estimate("%BYTES_RECEIVED%"));
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
fn errors_that_nothing_settles() {
    let (before, rest) = ENVOY.split_once("%CEL(has").unwrap();
    let (_, rest) = rest.split_once(")%").unwrap();
    let metadata = format!("{before}%DYNAMIC_METADATA(llm:tokens)%{rest}");
    let message = "nothing settles what errors reserve: they have no %DYNAMIC_METADATA(…%";
    one(RULES, &metadata, "warning", message, "\"%DYNAMIC_METADATA(");
    let bytes = format!("{before}%BYTES_SENT%{rest}");
    none(RULES, &bytes);
    let (before, rest) = ENVOY
        .split_once(&format!(
            "              - actions:\n                - request_headers: {USER_AT_END}"
        ))
        .unwrap();
    let (_, rest) = rest.split_once("              rate_limit_service:").unwrap();
    let alone = format!("{before}              rate_limit_service:{rest}");
    one(RULES, &alone, "warning", "Envoy does not settle what this item reserves", "actions");
    one(
        RULES_WITHOUT_SETTLE,
        &alone,
        "warning",
        "Envoy does not settle what this item reserves",
        "actions",
    );
    let (before, rest) = ENVOY.split_once("              - actions:\n").unwrap();
    let (_, rest) = rest.split_once("              - actions:\n").unwrap();
    let ends = format!("{before}              - actions:\n{rest}");
    one(RULES, &ends, "warning", "nothing reserves what this item settles", "actions");
}

#[test]
fn calls_that_are_repeated() {
    let cluster = "{ cluster_name: weir }";
    let own = "{ cluster_name: weir, retry_policy: { num_retries: 2 } }";
    let message = "`retry_policy`: Envoy repeats its calls to weir";
    one(RULES, &with(&[(cluster, own)]), "warning", message, "{ num_retries: 2 }");
    let clusters = "  clusters: [{ name: weir, typed_extension_protocol_options: { http: { retry_policy: \
                    { num_retries: 2 } } } }]\n";
    let message = "`retry_policy` of the cluster 'weir'";
    one(RULES, &format!("{ENVOY}{clusters}"), "warning", message, "{ envoy_grpc:");
    none(RULES, &format!("{ENVOY}{}", clusters.replace("name: weir", "name: model")));
}

#[test]
fn requests_that_last_longer_than_their_reservation() {
    let timeout = "timeout: 300s";
    let message = "requests may last 601s here, but what they reserve can be settled for 600s";
    one(RULES, &with(&[(timeout, "timeout: 601s")]), "warning", message, "601s");
    let message = "requests may last as long as they like here";
    one(RULES, &with(&[(timeout, "timeout: 0s")]), "warning", message, "0s");
    let stream = "timeout: 0s, max_stream_duration: { max_stream_duration: 600s }";
    none(RULES, &with(&[(timeout, stream)]));
    // Envoy's default is 15 s.
    none(RULES, &with(&[(", timeout: 300s", "")]));
    let short = RULES.replace("10m", "10s");
    let message = "requests may last 15s here";
    one(&short, &with(&[(", timeout: 300s", "")]), "warning", message, "match");
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
    let message = "nothing settles what errors reserve";
    one(&rules, &envoy, "warning", message, "\"%DYNAMIC_METADATA(");
    let inside = envoy.replace("\"useRemoteAddress\":true,", "");
    let found = findings(&rules, &inside);
    let chosen = found.iter().filter(|(_, message, _)| message.contains("can choose the id"));
    assert_eq!((found.len(), chosen.count()), (2, 1), "{found:#?}");
}

/// An EnvoyFilter that adds a filter with these items.
fn istio(items: &str) -> String {
    let items = items.lines().map(|line| format!("          {line}\n")).collect::<String>();
    format!(
        "\
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{ name: budget }}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.ratelimit
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
          domain: llm
          rate_limits:
{items}"
    )
}

#[test]
fn patches_of_istio_are_checked_too() {
    let user = "request_headers: { header_name: x-user, descriptor_key: user }";
    let id = ID.replace("x-id", "x-request-id");
    let items = |at_end: &str, id: &str| {
        format!(
            "- actions: [{{ {user} }}, {{ {id} }}]\n\
             - actions: [{{ {at_end} }}, {{ {id} }}, {{ generic_key: {{ descriptor_key: settle, descriptor_value: a }} }}]\n  \
             apply_on_stream_done: true"
        )
    };
    // What the gateway does with x-request-id is not in the file.
    none(RULES, &istio(&items(user, &id)));
    let org = user.replace("descriptor_key: user", "descriptor_key: org");
    let message = "the keys of start and end differ: 'org,request_id,settle' here";
    one(RULES, &istio(&items(&org, &id)), "error", message, "actions");
    let message = "a client can choose the id of its reservations: no `header_mutation`";
    one(RULES, &istio(&items(user, ID)), "warning", message, "{ request_headers");
}
