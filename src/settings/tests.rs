use std::time::Duration;

use super::table::SETTINGS;
use super::*;
use crate::service::Protocol;

pub fn inputs(env: &[(&str, &str)]) -> Inputs {
    let env = env.iter().map(|&(name, text)| (name.into(), text.into())).collect();
    Inputs { env, ..Inputs::default() }
}

#[test]
fn every_declared_setting_has_a_value_and_a_good_default() {
    let settings = Settings::load(&Inputs::default()).unwrap();
    let names: Vec<_> = settings.list().iter().map(|entry| entry.setting.name).collect();
    let declared: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    assert_eq!(names, declared);
    for setting in SETTINGS.iter() {
        assert!(setting.accepts(&setting.default.into()), "{}", setting.name);
        let (_, name) = setting.name.rsplit_once('.').unwrap();
        assert!(setting.doc.ends_with('.'), "{name} has no sentence: {:?}", setting.doc);
    }
}

#[test]
fn defaults_have_their_types() {
    let settings = Settings::load(&Inputs::default()).unwrap();
    assert_eq!(*settings.grpc.address, "0.0.0.0:8081");
    assert_eq!(*settings.http.address, "0.0.0.0:8080");
    assert_eq!(*settings.debug.address, "127.0.0.1:6070");
    let permissions = |entrance| settings.service_options(entrance).permissions;
    let (grpc, http) = (permissions(Protocol::Grpc), permissions(Protocol::Http));
    assert!(grpc.allow_overrides && http.allow_overrides);
    assert!(grpc.allow_negative_hits && !http.allow_negative_hits);
    assert_eq!(*settings.store.budget, None);
    assert_eq!(*settings.store.memory.max_keys, 10_000_000);
    assert_eq!(settings.grpc_limits().max_message, 1 << 20);
    assert!(settings.rule_files().is_none() && settings.rules.paths.is_empty());
}

#[test]
fn later_layers_win_and_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    std::fs::write(
        &file,
        "[grpc]\naddress = \"127.0.0.1:1\"\nmax_descriptors = 3\n[drain]\ndelay = \"1s\"\n",
    )
    .unwrap();
    let mut inputs = inputs(&[
        ("GRPC_PORT", "2"),
        ("WEIR__GRPC__MAX_DESCRIPTORS", "4"),
        ("WEIR__DRAIN__DELAY", "2s"),
        ("SHADOW_MODE", "T"),
    ]);
    inputs.file = Some(file);
    inputs.flags = vec![("--drain-delay".into(), "drain.delay".into(), "3s".into())];
    let settings = Settings::load(&inputs).unwrap();
    assert_eq!(*settings.grpc.address, "127.0.0.1:2");
    assert_eq!(*settings.grpc.max_descriptors, 4);
    assert_eq!(*settings.drain.delay, Duration::from_secs(3));
    assert!(*settings.response.shadow_mode);
    assert_eq!(settings.grpc.address.origin, "GRPC_PORT");
    assert_eq!(settings.grpc.max_descriptors.origin, "WEIR__GRPC__MAX_DESCRIPTORS");
    assert_eq!(settings.drain.delay.origin, "--drain-delay");
    assert_eq!(settings.http.address.origin, "default");
}

#[test]
fn all_errors_are_reported_at_once() {
    let errors = Settings::load(&inputs(&[
        ("WEIR__GRCP__ADDRESS", "1:2"),
        ("WEIR__STORE__KIND", "disk"),
        ("GRPC_PORT", "99999"),
        ("LOG_LEVEL", "loud"),
        ("RUNTIME_WATCH_ROOT", ""),
    ]))
    .unwrap_err();
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for wanted in [
        "WEIR__GRCP__ADDRESS: there is no setting \"grcp.address\"; did you mean grpc.address?",
        "WEIR__STORE__KIND: store.kind is \"disk\"; write one of memory, redis",
        "GRPC_PORT: it is \"99999\"; write a whole number from 0 to 65535",
        "LOG_LEVEL: it is \"loud\"; \
         write one of panic, fatal, error, warn, warning, info, debug, trace",
        "RUNTIME_WATCH_ROOT: it is \"\"; write true or false",
    ] {
        assert!(messages.iter().any(|t| t == wanted), "{wanted:?} is not among {messages:#?}");
    }
    assert_eq!(messages.len(), 5);
}

#[test]
fn variables_of_kubernetes_services_are_ignored() {
    let settings = Settings::load(&inputs(&[
        ("WEIR_PORT", "tcp://10.0.0.1:8081"),
        ("WEIR_SERVICE_HOST", "10.0.0.1"),
        ("RATELIMIT_PORT", "tcp://10.0.0.2:8081"),
        ("RATELIMIT_SERVICE_HOST", "10.0.0.2"),
        ("REDIS_PORT", "tcp://10.0.0.3:6379"),
        ("REDIS_SERVICE_HOST", "10.0.0.3"),
        ("GRPC_PORT", "tcp://10.0.0.4:8081"),
    ]))
    .unwrap();
    assert_eq!(*settings.grpc.address, "0.0.0.0:8081");
    assert_eq!(*settings.store.kind, StoreKind::Memory);
    assert!(settings.warnings[0].starts_with("GRPC_PORT=tcp://10.0.0.4:8081 is ignored"));
}

#[test]
fn a_runtime_variable_asks_for_the_references_layout() {
    let settings = Settings::load(&inputs(&[("RUNTIME_SUBDIRECTORY", "ratelimit")])).unwrap();
    let files = settings.rule_files().unwrap();
    assert_eq!(files.roots, [PathBuf::from("/srv/runtime_data/current/ratelimit")]);
    assert_eq!(files.prefix.as_deref(), Some("config."));
}

/// Returns the errors in these variables and this flag.
fn errors_of(env: &[(&str, &str)], flag: (&str, &str, &str)) -> Vec<String> {
    let mut inputs = inputs(env);
    inputs.flags = vec![(flag.0.into(), flag.1.into(), flag.2.into())];
    Settings::load(&inputs).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn an_unknown_name_is_an_error_and_changes_no_setting() {
    let address = ("--grpc-address", "grpc.address", "127.0.0.1:1");
    let group = errors_of(&[("WEIR__STORE__MEMORY", "1"), ("WEIR__RULES", "/tmp")], address);
    assert_eq!(group.len(), 2, "{group:?}");
    let wanted = "WEIR__STORE__MEMORY: there is no setting \"store.memory\"; \
                  it is a group: store.memory.max_keys";
    assert_eq!(group[0], wanted);
    let below = errors_of(&[("WEIR__GRPC__ADDRESS__X", "1")], address);
    let wanted = "WEIR__GRPC__ADDRESS__X: there is no setting \"grpc.address.x\"; \
                  did you mean grpc.address?";
    assert_eq!(below, [wanted]);
    let flag = errors_of(&[], ("--set grpc", "grpc", "1"));
    assert!(flag.len() == 1 && flag[0].starts_with("--set grpc: "), "{flag:?}");
}

#[test]
fn errors_in_a_file_have_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.yaml");
    std::fs::write(&file, "grpc: 5\nhttp: { adress: x }\ndrain: { delay: soon }\n").unwrap();
    let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
    let errors = Settings::load(&inputs).unwrap_err();
    let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let file = file.display();
    assert_eq!(messages.len(), 3, "{messages:#?}");
    assert!(
        messages[0].starts_with(&format!("{file}: there is no setting \"grpc\"; it is a group"))
    );
    assert_eq!(
        messages[1],
        format!("{file}: there is no setting \"http.adress\"; did you mean http.address?")
    );
    assert!(
        messages[2].starts_with(&format!("{file}: drain.delay is \"soon\"; ")),
        "{messages:#?}"
    );
}

#[test]
fn errors_of_syntax_name_the_place_and_do_not_quote_the_file() {
    for (name, text, wanted) in [
        ("toml", "[store.redis]\npassword = hunter2\n", "at line 2, column 12: "),
        ("toml", "[store.redis]\npassword hunter2\n", "at line 2, column "),
        ("toml", "password = \"hunter2\n", "at line 1, column "),
        ("toml", "hunter2 = 1\nhunter2 = 2\n", "at line 2, column 1: duplicate key"),
        ("toml", "password = 'hunter2' hunter2\n", "at line 1, column "),
        ("toml", "a = \"hunter2\\q\"\n", "at line 1, column "),
        ("toml", "a = 99999999999999999999 # hunter2\n", "it cannot be parsed"),
        ("yaml", "store:\n  password: \"hunter2\n", "at byte "),
        ("yaml", "store: @hunter2\n", "line 1 column 8"),
        ("yaml", "store: [hunter2\n", "line "),
        ("yaml", "hunter2: 1\nhunter2: 2\n", "YAML parse error at byte "),
        ("yaml", "store: *hunter2\n", "line "),
        ("yaml", "hunter2\n", "it cannot be parsed"),
        ("yaml", "? [hunter2]\n: 1\n", "it cannot be parsed"),
        ("yaml", "a: hunter2\n---\nb: 1\n", "it cannot be parsed"),
        ("yaml", "a: !!float hunter2\n", ""),
        ("yaml", "store: { redis: { password: [hunter2] } }\n", "store.redis.password is \"***\""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("weir.{name}"));
        std::fs::write(&file, text).unwrap();
        let errors = Settings::load(&Inputs { file: Some(file), ..Inputs::default() }).unwrap_err();
        let messages: String = errors.iter().map(ToString::to_string).collect();
        assert!(!messages.contains("hunter2") && messages.contains(wanted), "{text:?}: {messages}");
        assert!(!messages.contains('\n'), "{messages}");
    }
}

#[test]
fn an_empty_host_means_all_addresses() {
    let settings =
        Settings::load(&inputs(&[("HOST", ""), ("GRPC_HOST", ""), ("DEBUG_HOST", "")])).unwrap();
    assert_eq!(*settings.grpc.address, ":8081");
    assert_eq!(*settings.http.address, ":8080");
    assert_eq!(*settings.debug.address, ":6070");
    let settings = Settings::load(&inputs(&[("WEIR__GRPC__ADDRESS", ":8081")])).unwrap();
    assert_eq!(*settings.grpc.address, ":8081");
    let port = [("WEIR__GRPC__ADDRESS", ":8081"), ("GRPC_PORT", "9")];
    assert_eq!(*Settings::load(&inputs(&port)).unwrap().grpc.address, ":8081");
}

#[test]
fn debug_is_on_loopback_unless_it_is_opened() {
    let debug = |env: &[(&str, &str)]| {
        let settings = Settings::load(&inputs(env)).unwrap();
        (settings.debug.address.clone(), settings.debug.address.is_default())
    };
    let address = |address: &str, default| (address.to_owned(), default);
    assert_eq!(debug(&[]), address("127.0.0.1:6070", true));
    assert_eq!(debug(&[("DEBUG_PORT", "7000")]), address("0.0.0.0:7000", false));
    assert_eq!(debug(&[("DEBUG_HOST", "10.0.0.5")]), address("10.0.0.5:6070", false));
    let both = [("DEBUG_PORT", "7000"), ("DEBUG_HOST", "::1")];
    assert_eq!(debug(&both), address("[::1]:7000", false));
    // Kubernetes' variable for a Service does not open it.
    assert_eq!(debug(&[("DEBUG_PORT", "tcp://10.0.0.1:1")]), address("127.0.0.1:6070", true));
    assert_eq!(debug(&[("WEIR__DEBUG__ADDRESS", ":1")]), address(":1", false));
}

#[test]
fn a_debug_port_keeps_the_host_of_a_settings_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("weir.toml");
    std::fs::write(&file, "[debug]\naddress = \"127.0.0.1:6070\"\n").unwrap();
    let inputs = Inputs { file: Some(file), ..inputs(&[("DEBUG_PORT", "7000")]) };
    assert_eq!(*Settings::load(&inputs).unwrap().debug.address, "127.0.0.1:7000");
}

#[test]
fn the_references_directories_are_below_the_root() {
    let selection = |watch_root| {
        let env = [
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "/ratelimit"),
            ("RUNTIME_APPDIRECTORY", "/config"),
            ("RUNTIME_WATCH_ROOT", watch_root),
        ];
        Settings::load(&inputs(&env)).unwrap().rule_files().unwrap()
    };
    assert_eq!(selection("true").roots, [PathBuf::from("/data/ratelimit")]);
    assert_eq!(selection("true").prefix.as_deref(), Some("config."));
    assert_eq!(selection("false").roots, [PathBuf::from("/data/ratelimit/config")]);
}

#[test]
fn naming_redis_makes_it_the_store_and_reports_its_errors_with_all_others() {
    let redis = [("BACKEND_TYPE", "redis"), ("REDIS_AUTH", "hunter2"), ("REDIS_TLS", "maybe")];
    let errors = Settings::load(&inputs(&redis)).unwrap_err();
    let messages: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["REDIS_TLS: it is \"maybe\"; write true or false"]);
    let memory = [("REDIS_URL", "redis:6379"), ("WEIR__STORE__KIND", "memory")];
    assert_eq!(*Settings::load(&inputs(&memory)).unwrap().store.kind, StoreKind::Memory);
    assert!(Settings::load(&inputs(&[("REDIS_AUTH", ""), ("BACKEND_TYPE", "")])).is_ok());
}

#[test]
fn variables_that_are_dangerous_to_ignore_are_refused() {
    for (name, text) in [
        ("BACKEND_TYPE", "memcache"),
        ("GRPC_UDS", "/run/weir.sock"),
        ("GRPC_SERVER_USE_TLS", "true"),
    ] {
        let errors = Settings::load(&inputs(&[(name, text)])).unwrap_err();
        assert!(errors.len() == 1 && errors[0].origin == name, "{errors:?}");
    }
    assert!(
        Settings::load(&inputs(&[("GRPC_SERVER_USE_TLS", "false")])).unwrap().warnings.is_empty()
    );
}

#[test]
fn unused_variables_cause_a_warning() {
    let warnings = |env: &[(&str, &str)]| Settings::load(&inputs(env)).unwrap().warnings;
    let memcache = "no effect: only BACKEND_TYPE=memcache, which is not supported, uses it";
    for (backend, kind) in [("redis", StoreKind::Redis), ("", StoreKind::Memory)] {
        let env = [("BACKEND_TYPE", backend), ("MEMCACHE_HOST_PORT", "cache:11211")];
        assert_eq!(*Settings::load(&inputs(&env)).unwrap().store.kind, kind);
        assert_eq!(warnings(&env), [format!("MEMCACHE_HOST_PORT has {memcache}")]);
    }
    // As the reference's docker-compose file has it.
    let compose = [
        ("MEMCACHE_HOST_PORT", "memcached:11211"),
        ("MEMCACHE_MAX_IDLE_CONNS", "2"),
        ("MEMCACHE_TLS", "false"),
    ];
    let names = "MEMCACHE_HOST_PORT, MEMCACHE_MAX_IDLE_CONNS have";
    assert_eq!(warnings(&compose), [format!("{names} {memcache}")]);
    let tls = "no effect: only GRPC_SERVER_USE_TLS=true, which is not supported yet, uses it";
    let certificate = [("GRPC_SERVER_TLS_CERT", "/cert"), ("GRPC_SERVER_USE_TLS", "false")];
    assert_eq!(warnings(&certificate), [format!("GRPC_SERVER_TLS_CERT has {tls}")]);
    // The reference must still be able to read it.
    let bad = Settings::load(&inputs(&[("MEMCACHE_MAX_IDLE_CONNS", "many")])).unwrap_err();
    assert_eq!(bad[0].origin, "MEMCACHE_MAX_IDLE_CONNS");
}

#[test]
fn variables_without_effect_are_checked_and_named() {
    let settings = Settings::load(&inputs(&[
        ("GRPC_MAX_CONNECTION_AGE", "1h"),
        ("USE_STATSD", "false"),
        ("USE_PROMETHEUS", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("CACHE_KEY_PREFIX", "x"),
        ("GRPC_SERVER_TLS_CA_CERT", "/no/such/variable"),
    ]))
    .unwrap();
    let names = "GRPC_MAX_CONNECTION_AGE, USE_PROMETHEUS, OTEL_EXPORTER_OTLP_ENDPOINT";
    assert_eq!(settings.warnings, [format!("{names} are set but not effective yet")]);
    for (name, text, shown) in [
        ("GRPC_MAX_CONNECTION_AGE", "10", "10"),
        ("EXTRA_TAGS", "a", "a"),
        ("STATSD_PORT", "x", "x"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:hunter2:x", "***"),
    ] {
        let errors = Settings::load(&inputs(&[(name, text)])).unwrap_err();
        assert_eq!(errors[0].origin, name);
        assert_eq!(errors[0].message, format!("it is {shown:?}"));
    }
}

#[test]
fn one_way_to_send_metrics_is_accepted() {
    let two = [("USE_STATSD", "true"), ("USE_PROMETHEUS", "1")];
    let errors = Settings::load(&inputs(&two)).unwrap_err();
    assert_eq!(errors[0].origin, "USE_STATSD, USE_PROMETHEUS");
    let none = [("USE_STATSD", "true"), ("USE_PROMETHEUS", "1"), ("DISABLE_STATS", "true")];
    assert!(Settings::load(&inputs(&none)).is_ok());
}

#[test]
fn health_waits_for_rules_unless_configured_otherwise() {
    let required = |env: &[(&str, &str)]| {
        let settings = Settings::load(&inputs(env)).unwrap();
        (settings.requires_rules(), *settings.health.require_domain)
    };
    let force = ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true");
    let healthy = |text| ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", text);
    assert_eq!(required(&[]), (true, false));
    assert_eq!(required(&[force]), (false, false));
    assert_eq!(required(&[force, healthy("true")]), (false, true));
    // As in the reference, which listens only once there are rules.
    assert_eq!(required(&[healthy("false")]), (true, false));
    assert_eq!(required(&[("WEIR__HEALTH__REQUIRE_RULES", "false")]), (false, false));
}

#[test]
fn the_references_variables_name_a_management_server() {
    assert!(Settings::load(&inputs(&[("CONFIG_TYPE", "FILE")])).unwrap().xds_options().is_none());
    let xds = |env: &[(&str, &str)]| {
        let source = [("CONFIG_TYPE", "GRPC_XDS_SOTW")];
        Settings::load(&inputs(&[&source, env].concat())).unwrap().xds_options().unwrap()
    };
    let default = xds(&[]);
    assert_eq!((default.url.as_str(), default.node_id.as_str()), ("localhost:18000", "default"));
    assert!(!default.delta && !default.tls.enabled && default.tls.ca.is_none());
    assert_eq!(default.max_message, 64 << 20);
    let all = xds(&[
        ("CONFIG_GRPC_XDS_NODE_ID", "edge"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a=b,skipped,team=x"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "xds:1"),
        ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:x,team:y"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/cert"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/ca"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.infra"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "2s"),
        ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1m"),
        ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5"),
        ("XDS_CLIENT_BACKOFF_JITTER", "F"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0x100"),
        ("WEIR__RULES__XDS__MODE", "delta"),
    ]);
    assert_eq!((all.url.as_str(), all.node_id.as_str(), all.delta), ("xds:1", "edge", true));
    assert_eq!(all.node_metadata, ["zone=a=b", "skipped", "team=x"]);
    assert_eq!(all.headers, ["authorization:x", "team:y"]);
    assert_eq!((all.backoff_min.as_secs(), all.backoff_max.as_secs()), (2, 60));
    assert!(!all.backoff_jitter && all.tls.enabled);
    assert_eq!(all.max_message, 256);
    let file = |path: &Option<PathBuf>| path.as_ref().unwrap().display().to_string();
    let files = [&all.tls.cert, &all.tls.key, &all.tls.ca].map(file);
    assert_eq!(
        (files.join(" ").as_str(), all.tls.server_name.as_str()),
        ("/cert /key /ca", "xds.infra")
    );
    // The default of gRPC.
    assert_eq!(xds(&[("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0")]).max_message, 4 << 20);
}

#[test]
fn request_headers_are_masked() {
    let headers = [("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:hunter2")];
    let settings = Settings::load(&inputs(&headers)).unwrap();
    assert_eq!(settings.rules.xds.headers.shown, "[\"***\"]");
}
