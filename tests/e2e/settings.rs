//! Settings reach the running service, by weir's own names and by the reference's.

use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use prost_types::value::Kind;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{ask, code, descriptor, request};
use crate::support::http;
use crate::support::weir::{Setup, Weir, serving};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    metadata: { plan: free }
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: cart
    rate_limit: { unit: year, requests_per_unit: 5 }
";

/// Sends requests for one user until it is over the limit; returns the last response.
async fn over(weir: &Weir) -> RateLimitResponse {
    let ann = || request("shop", &[("user", "ann")]);
    ask(weir.grpc, ann()).await.unwrap();
    ask(weir.grpc, ann()).await.unwrap()
}

fn headers(answer: &RateLimitResponse) -> Vec<(&str, &str)> {
    let headers = answer.response_headers_to_add.iter();
    headers.map(|header| (header.key.as_str(), header.value.as_str())).collect()
}

#[tokio::test]
async fn headers_have_limit_remaining_and_reset() {
    let weir = serving(RULES).env("LIMIT_RESPONSE_HEADERS_ENABLED", "true").start();
    let mut both = request("shop", &[("cart", "7")]);
    both.descriptors.push(descriptor(&[("user", "ann")]));
    let answer = ask(weir.grpc, both.clone()).await.unwrap();
    let [limit, remaining, (reset_name, reset)] = headers(&answer)[..] else {
        panic!("{answer:?}")
    };
    assert_eq!((limit, remaining), (("RateLimit-Limit", "1"), ("RateLimit-Remaining", "0")));
    assert_eq!(reset_name, "RateLimit-Reset");
    assert!((1..=31_536_000).contains(&reset.parse::<u64>().unwrap()), "{reset}");

    let answer = ask(weir.grpc, both).await.unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(headers(&answer)[..2], [limit, remaining]);
    let unmatched = ask(weir.grpc, request("shop", &[("other", "x")])).await.unwrap();
    assert_eq!(headers(&unmatched), []);
}

#[tokio::test]
async fn header_names_are_settings() {
    let weir = serving(RULES)
        .env("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
        .env("LIMIT_LIMIT_HEADER", "X-Most")
        .env("LIMIT_REMAINING_HEADER", "X-Left")
        .env("WEIR__RESPONSE__RESET_HEADER", "X-Wait")
        .start();
    let answer = over(&weir).await;
    let names: Vec<_> = headers(&answer).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["X-Most", "X-Left", "X-Wait"]);
}

#[tokio::test]
async fn headers_have_the_policies_of_all_limits_and_the_unix_time_of_the_reset() {
    let rules = "\
domain: shop
descriptors:
  - key: user
    rate_limits:
      - { unit: year, unit_multiplier: 2, requests_per_unit: 9 }
      - { unit: year, requests_per_unit: 2 }
";
    let weir = serving(rules)
        .env("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
        .env("WEIR__RESPONSE__RESET", "unix")
        .env("WEIR__RESPONSE__RATELIMIT_FIELDS", "true")
        .start();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    let answer = ask(weir.grpc, request("shop", &[("user", "ann")])).await.unwrap();
    let after = now();
    let [limit, remaining, (_, reset), policy, (_, shown)] = headers(&answer)[..] else {
        panic!("{answer:?}")
    };
    assert_eq!((limit, remaining), (("RateLimit-Limit", "2"), ("RateLimit-Remaining", "1")));
    let policies = r#""default";q=9;w=63072000, "default-2";q=2;w=31536000"#;
    assert_eq!(policy, ("RateLimit-Policy", policies));
    let seconds = shown.strip_prefix(r#""default-2";r=1;t="#).expect(shown);
    let seconds: u64 = seconds.parse().unwrap();
    // Both are rounded up.
    let resets = before + seconds - 1..=after + seconds + 1;
    assert!(resets.contains(&reset.parse().unwrap()), "{reset}: {resets:?}");

    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    let before = now();
    let json = http::post(weir.http, "/json", body).body;
    assert!(json.contains(&policies.replace('"', r#"\""#)), "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let headers = json["responseHeadersToAdd"].as_array().unwrap();
    let reset = headers.iter().find(|header| header["key"] == "RateLimit-Reset").unwrap();
    assert!(reset["value"].as_str().unwrap().parse::<u64>().unwrap() >= before, "{reset}");
}

#[tokio::test]
async fn shadow_mode_allows_everything_and_reports_the_real_decision() {
    let weir = serving(RULES).env("SHADOW_MODE", "true").start();
    let answer = over(&weir).await;
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.statuses[0].code(), Code::OverLimit);
    assert_eq!(weir.metric("weir_global_shadow_mode_total"), 1);
}

#[tokio::test]
async fn quota_mode_denies_only_if_all_quotas_are_over() {
    let weir = serving(RULES).env("QUOTA_MODE", "true").start();
    assert_eq!(over(&weir).await.overall_code(), Code::OverLimit);
    let mut two = request("shop", &[("user", "ann")]);
    two.descriptors.push(descriptor(&[("cart", "7")]));
    let answer = ask(weir.grpc, two).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.statuses[0].code(), Code::OverLimit);
}

#[tokio::test]
async fn dynamic_metadata_has_the_request_and_the_rules_metadata() {
    let weir = serving(RULES).env("RESPONSE_DYNAMIC_METADATA", "true").start();
    let mut asked = request("shop", &[("user", "ann")]);
    asked.hits_addend = 1;
    let metadata_fields = ask(weir.grpc, asked).await.unwrap().dynamic_metadata.unwrap().fields;
    let kind = |name: &str| metadata_fields[name].kind.clone().unwrap();
    assert_eq!(kind("domain"), Kind::StringValue("shop".into()));
    assert_eq!(kind("hitsAddend"), Kind::NumberValue(1.0));
    let Kind::StructValue(metadata) = kind("metadata") else { panic!("{metadata_fields:?}") };
    assert_eq!(metadata.fields["plan"].kind, Some(Kind::StringValue("free".into())));
    let Kind::ListValue(descriptors) = kind("descriptors") else { panic!("{metadata_fields:?}") };
    assert!(format!("{descriptors:?}").contains("user=ann"), "{descriptors:?}");
}

#[tokio::test]
async fn request_limits_are_settings() {
    let weir = serving(RULES)
        .env("WEIR__GRPC__MAX_DESCRIPTORS", "1")
        .env("WEIR__GRPC__MAX_MESSAGE", "100")
        .start();
    let mut two = request("shop", &[("user", "ann")]);
    two.descriptors.push(descriptor(&[("cart", "7")]));
    let refused = ask(weir.grpc, two).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    let long = request("shop", &[("user", &"x".repeat(100))]);
    assert_eq!(ask(weir.grpc, long).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
}

#[tokio::test]
async fn overrides_and_negative_hits_can_be_refused() {
    let weir = serving(RULES)
        .env("WEIR__GRPC__ALLOW_OVERRIDES", "false")
        .env("WEIR__GRPC__ALLOW_NEGATIVE_HITS", "false")
        .start();
    let mut limit = request("shop", &[("user", "ann")]);
    limit.descriptors[0].limit =
        Some(RateLimitOverride { requests_per_unit: 9, unit: 1, unit_multiplier: None });
    let mut negative = request("shop", &[("user", "ann")]);
    negative.descriptors[0].is_negative_hits = true;
    for (request, setting) in [(limit, "allow_overrides"), (negative, "allow_negative_hits")] {
        let refused = ask(weir.grpc, request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains(setting), "{refused:?}");
    }
}

#[tokio::test]
async fn each_entrance_has_its_own_permissions() {
    let limit = r#""limit":{"requestsPerUnit":9,"unit":"MINUTE"}"#;
    let refund = r#""isNegativeHits":true"#;
    let post = |weir: &Weir, extra: &str| {
        let descriptor = format!(r#"{{"entries":[{{"key":"user","value":"ann"}}],{extra}}}"#);
        let body = format!(r#"{{"domain":"shop","descriptors":[{descriptor}]}}"#);
        let answer = http::post(weir.http, "/json", body);
        (answer.status, answer.body)
    };
    let mut negative = request("shop", &[("user", "ann")]);
    negative.descriptors[0].is_negative_hits = true;

    let weir = serving(RULES).start();
    assert_eq!(post(&weir, limit).0, 200);
    let off = "descriptor 0: is_negative_hits is disabled (setting http.allow_negative_hits)\n";
    assert_eq!(post(&weir, refund), (400, off.to_owned()));
    assert_eq!(code(weir.grpc, negative.clone()).await, Code::Ok);
    assert_eq!(weir.metric(r#"weir_requests_total{outcome="invalid"}"#), 1);

    let weir = serving(RULES)
        .env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true")
        .env("WEIR__HTTP__ALLOW_OVERRIDES", "false")
        .env("WEIR__GRPC__ALLOW_NEGATIVE_HITS", "false")
        .start();
    assert_eq!(post(&weir, refund).0, 200);
    let off = "descriptor 0: limit overrides are disabled (setting http.allow_overrides)\n";
    assert_eq!(post(&weir, limit), (400, off.to_owned()));
    let refused = ask(weir.grpc, negative).await.unwrap_err();
    assert!(refused.message().contains("setting grpc.allow_negative_hits"), "{refused:?}");
}

#[test]
fn an_address_without_a_host_is_all_addresses() {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};

    let weir = serving(RULES)
        .arg("--grpc-address")
        .arg(":0")
        .env("WEIR__DEBUG__ADDRESS", ":0")
        .env("HOST", "")
        .env("PORT", "0")
        .start_as_it_is();
    for place in [weir.grpc, weir.http, weir.debug] {
        let port = place.port();
        assert!(place.ip().is_unspecified(), "{place}");
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
    }
}

/// The reference's layout: a root with the rules in a subdirectory.
fn runtime() -> Setup {
    let domain = |name: &str| RULES.replace("shop", name);
    let setup = Setup::new()
        .file("root/ratelimit/config/shop.yaml", &domain("shop"))
        .file("root/ratelimit/config/deep/no-extension", &domain("deep"))
        .file("root/ratelimit/config.flat.yaml", &domain("flat"))
        .file("root/ratelimit/other/other.yaml", &domain("other"))
        .file("root/ratelimit/config/.hidden.yaml", &domain("hidden"))
        .arg("serve");
    let root = setup.path("root");
    setup.env("RUNTIME_ROOT", root).env("RUNTIME_SUBDIRECTORY", "ratelimit")
}

/// Returns the domains that have active rules.
fn domains(weir: &Weir) -> Vec<String> {
    let rules = http::get(weir.debug, "/rlconfig").body;
    let users = rules.lines().filter_map(|line| line.split_once(".user:"));
    let mut domains: Vec<_> = users.map(|(domain, _)| domain.to_owned()).collect();
    domains.sort();
    domains
}

#[test]
fn the_references_runtime_directories_are_found() {
    assert_eq!(domains(&runtime().start()), ["deep", "flat", "shop"]);
    let directory = runtime().env("RUNTIME_WATCH_ROOT", "false");
    assert_eq!(domains(&directory.start()), ["deep", "shop"]);
    let app = runtime().env("RUNTIME_WATCH_ROOT", "false").env("RUNTIME_APPDIRECTORY", "other");
    assert_eq!(domains(&app.start()), ["other"]);
    let dots = runtime().env("RUNTIME_IGNOREDOTFILES", "false");
    assert_eq!(domains(&dots.start()), ["deep", "flat", "hidden", "shop"]);
}

#[tokio::test]
async fn several_files_may_add_to_one_domain_if_enabled() {
    let twice = || {
        let setup = Setup::new()
            .file("rules/a.yaml", RULES)
            .file("rules/b.yaml", &RULES.replace("user", "more").replace("cart", "shelf"));
        let rules = setup.path("rules");
        setup.arg("serve").env("WEIR__RULES__PATHS", rules)
    };
    let mut refusing = twice().start_unhealthy();
    refusing.until_said("duplicate domain 'shop'").unwrap();

    let weir = twice().env("MERGE_DOMAIN_CONFIG", "true").start();
    for key in ["user", "more"] {
        assert_eq!(code(weir.grpc, request("shop", &[(key, "x")])).await, Code::Ok);
        assert_eq!(code(weir.grpc, request("shop", &[(key, "x")])).await, Code::OverLimit);
    }
}

#[test]
fn hosts_and_ports_are_those_of_the_references_variables() {
    // Another process may take the ports in the meantime: then others are tried.
    let started = (0..10).find_map(|_| {
        let free: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<_> = free.iter().map(|f| f.local_addr().unwrap().port()).collect();
        drop(free);
        let setup = serving(RULES)
            .env("GRPC_HOST", "127.0.0.1")
            .env("GRPC_PORT", ports[0].to_string())
            .env("HOST", "127.0.0.1")
            .env("PORT", ports[1].to_string())
            .env("DEBUG_HOST", "127.0.0.1")
            .env("DEBUG_PORT", ports[2].to_string());
        setup.try_start().ok().map(|weir| (weir, ports))
    });
    let (weir, ports) = started.expect("one of ten tries finds its ports free");
    assert_eq!([weir.grpc, weir.http, weir.debug].map(|at| at.port()), ports[..]);
}

#[test]
fn all_errors_are_reported_at_once_with_exit_code_64() {
    let (status, output) = serving(RULES)
        .env("GRPC_PORT", "99999")
        .env("WEIR__STORE__KIND", "paper")
        .env("WEIR__DRAIN__DELEY", "1s")
        .env("SHADOW_MODE", "maybe")
        .run();
    assert_eq!(status.code(), Some(64));
    for wanted in ["GRPC_PORT: ", "WEIR__STORE__KIND: ", "WEIR__DRAIN__DELEY: ", "SHADOW_MODE: "] {
        assert!(output.contains(wanted), "{wanted:?} is not in:\n{output}");
    }
    assert!(output.contains("did you mean drain.delay?"), "{output}");
}

#[test]
fn a_failed_start_reports_the_cause() {
    let (status, output) = Setup::new().arg("serve").run();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(output.contains("--rules"), "{output}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let any = "127.0.0.1:0";
    for place in ["grpc", "http", "debug"] {
        let mut setup = serving(RULES);
        for other in ["grpc", "http", "debug"] {
            setup = setup.arg(&format!("--{other}-address"));
            setup = setup.arg(if other == place { &taken } else { any });
        }
        let (status, output) = setup.run();
        assert_eq!(status.code(), Some(1), "{output}");
        assert!(output.contains(&format!("{place}.address")), "{output}");
    }
}

#[test]
fn flags_override_variables_and_files_and_are_printed_with_their_origin() {
    let (status, output) = Setup::new()
        .file("weir.toml", "[drain]\ndelay = \"1s\"\ntimeout = \"20s\"\n[log]\nlevel = \"warn\"\n")
        .env("WEIR__DRAIN__DELAY", "3s")
        .env("WEIR__LOG__LEVEL", "error")
        .arg("serve")
        .arg("--print-settings")
        .arg("--settings")
        .arg("weir.toml")
        .arg("--log-level")
        .arg("debug")
        .run();
    assert_eq!(status.code(), Some(0), "{output}");
    for wanted in [
        "drain.delay = \"3s\"  # WEIR__DRAIN__DELAY",
        "drain.timeout = \"20s\"  # weir.toml:3:11",
        "log.level = \"debug\"  # --log-level",
        "grpc.address = \":8081\"  # default",
    ] {
        assert!(output.contains(wanted), "{wanted:?} is not in:\n{output}");
    }
}

#[test]
fn a_copy_named_ratelimit_is_a_drop_in() {
    // Images of the reference pass the program's own path as an argument.
    let setup = Setup::new().file("root/config/shop.yaml", RULES).named("ratelimit");
    let (root, itself) = (setup.path("root"), setup.path("ratelimit"));
    let any = "127.0.0.1:0";
    let weir = setup
        .arg(itself.to_str().unwrap())
        .env("RUNTIME_ROOT", root)
        .env("WEIR__GRPC__ADDRESS", any)
        .env("WEIR__HTTP__ADDRESS", any)
        .env("WEIR__DEBUG__ADDRESS", any)
        .start_as_it_is();
    assert_eq!(domains(&weir), ["shop"]);
    weir.has_said(" WARN Listening for gRPC on '");
}

#[test]
fn a_path_with_a_comma_is_one_path() {
    let setup = Setup::new().file("a,b.yaml", RULES).arg("serve").arg("--rules").arg("a,b.yaml");
    assert_eq!(domains(&setup.start()), ["shop"]);
    let (status, output) = Setup::new()
        .arg("serve")
        .arg("--print-settings")
        .arg("--rules")
        .arg("a,b.yaml")
        .arg("c.yaml")
        .run();
    assert_eq!(status.code(), Some(0), "{output}");
    assert!(output.contains("rules.paths = [\"a,b.yaml\", \"c.yaml\"]  # --rules"), "{output}");
}

#[test]
fn a_closed_pipe_ends_the_printing_of_settings() {
    for arguments in [&["serve", "--print-settings"][..], &["settings"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(arguments)
            .env_clear()
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(ended.stderr, b"");
    }
}

#[test]
fn printed_settings_are_a_settings_file() {
    let (status, example) = Setup::new().arg("settings").run();
    assert_eq!(status.code(), Some(0));
    // The test support adds a prefix to each line.
    assert!(example.contains("[drain]"), "{example}");
    assert!(example.contains("delay = \"5s\""), "{example}");
}

#[test]
fn variables_without_effect_are_named_at_the_start() {
    let weir = serving(RULES)
        .env("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true")
        .env("GRPC_PORT", "tcp://10.0.0.1:8081")
        .start();
    let output = weir.said();
    let ignored = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT has no effect: ";
    assert!(output.contains(ignored), "{output}");
    assert!(output.contains("GRPC_PORT=tcp://10.0.0.1:8081 is ignored"), "{output}");
}

#[test]
fn redis_is_printed_with_its_origin_and_without_passwords() {
    let (status, output) = serving(RULES)
        .arg("--print-settings")
        .env("REDIS_URL", "redis://ann:hunter2@redis:6379")
        .env("REDIS_SENTINEL_AUTH", "hunter2")
        .env("REDIS_PERSECOND", "true")
        .run();
    assert_eq!(status.code(), Some(0), "{output}");
    for wanted in [
        "store.kind = \"redis\"  # REDIS_URL, REDIS_PERSECOND, REDIS_SENTINEL_AUTH",
        "store.redis.url = \"redis://***@redis:6379\"  # REDIS_URL",
        "store.redis.sentinel.password = \"***\"  # REDIS_SENTINEL_AUTH",
        "store.redis.per_second.url = \"/var/run/nutcracker/ratelimitpersecond.sock\"  \
         # REDIS_PERSECOND",
    ] {
        assert!(output.contains(wanted), "{wanted:?} is not in:\n{output}");
    }
    assert!(!output.contains("hunter2"), "{output}");
}

#[test]
fn errors_about_redis_are_reported_with_all_others() {
    let (status, output) =
        serving(RULES).env("REDIS_URL", "http://ann:hunter2@redis").env("PORT", "x").run();
    assert_eq!(status.code(), Some(64), "{output}");
    assert!(output.contains("REDIS_URL: store.redis.url has \"http://***@redis\""), "{output}");
    assert!(output.contains("PORT: it is \"x\""), "{output}");
    assert!(!output.contains("hunter2"), "{output}");
}

#[test]
fn memory_may_be_chosen_although_redis_is_named() {
    let weir =
        serving(RULES).env("REDIS_URL", "redis:1").env("WEIR__STORE__KIND", "memory").start();
    let output = weir.said();
    let wanted = "as WEIR__STORE__KIND sets store.kind: REDIS_URL has no effect";
    assert!(output.contains(wanted), "{output}");
}
