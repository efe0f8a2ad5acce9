//! The reference's variables.

use std::path::PathBuf;

use super::*;
use weir_client::tls::{ClientFiles, PemFile};

#[test]
fn variables_of_kubernetes_services_are_ignored() {
    let settings = Settings::load(&inputs(&[
        ("WEIR_PORT", "tcp://10.0.0.1:8081"),
        ("WEIR_SERVICE_HOST", "10.0.0.1"),
        ("RATELIMIT_PORT", "tcp://10.0.0.2:8081"),
        ("RATELIMIT_SERVICE_HOST", "10.0.0.2"),
        ("REDIS_PORT", "tcp://10.0.0.3:6379"),
        ("REDIS_SERVICE_HOST", "10.0.0.3"),
        ("REDIS_PORT_6379_TCP_PORT", "6379"),
        ("GRPC_PORT", "tcp://10.0.0.4:8081"),
    ]))
    .unwrap();
    assert_eq!(*settings.grpc.address, ":8081");
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
fn variables_that_are_dangerous_to_ignore_are_rejected() {
    let errors = Settings::load(&inputs(&[("BACKEND_TYPE", "memcache")])).unwrap_err();
    assert!(errors.len() == 1 && errors[0].origin == "BACKEND_TYPE", "{errors:?}");
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
}

#[test]
fn every_variable_that_the_reference_has_or_had_has_an_effect_or_a_warning() {
    for name in [
        "ENABLE_NEGATIVE_HITS",
        "GRPC_MAX_CONCURRENT_STREAMS",
        "MAX_CONCURRENT_REQUESTS",
        "MAX_SLEEPING_ROUTINES",
        "REDIS_POOL_ON_EMPTY_WAIT_DURATION",
        "REQUEST_TIMEOUT",
    ] {
        let warned = Settings::load(&inputs(&[(name, "1")])).unwrap().warnings;
        assert!(warned.len() == 1 && warned[0].starts_with(name), "{name}: {warned:?}");
    }
    let settings = Settings::load(&inputs(&[("SANITIZE_DESCRIPTOR_METRIC_DOTS", "true")])).unwrap();
    assert!(*settings.metrics.replace_dots && settings.rule_options().replace_dots);
    assert_eq!(settings.warnings, [""; 0]);
    assert!(!Settings::load(&inputs(&[])).unwrap().rule_options().replace_dots);
}

#[test]
fn variables_without_effect_are_named_and_others_checked() {
    let settings = Settings::load(&inputs(&[
        ("USE_STATSD", "false"),
        ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "true"),
        ("CACHE_KEY_PREFIX", "x"),
        ("GRPC_SERVER_TLS_CA_CERT", "/no/such/variable"),
    ]))
    .unwrap();
    let warning = "OTEL_EXPORTER_OTLP_TRACES_INSECURE has no effect: ";
    assert!(matches!(&settings.warnings[..], [one] if one.starts_with(warning)));
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
fn unknown_variables_of_the_reference_share_a_line() {
    let settings = Settings::load(&inputs(&[
        ("REDIS_POOL_SIZ", "9"),
        ("LIMIT_NEW_HEADER", "x"),
        ("RUNTIME_EMPTY", ""),
        ("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "true"),
        ("REDIS_PORT_6379_TCP_ADDR", "10.0.0.3"),
        ("REDIS_SERVICE_PORT_REDIS", "6379"),
        ("HOME", "/root"),
    ]))
    .unwrap();
    let [line] = &*settings.warnings else { panic!("{:?}", settings.warnings) };
    assert!(
        line.starts_with("REDIS_POOL_SIZ, LIMIT_NEW_HEADER have no effect: weir does not know")
    );
    assert_eq!(*settings.store.kind, StoreKind::Redis, "a known variable names it");
}

#[test]
fn variables_of_the_sdks_have_a_warning_if_weir_does_something_else() {
    let warnings = |name, text| Settings::load(&inputs(&[(name, text)])).unwrap().warnings;
    for (name, text) in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_SDK_DISABLED", "True"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_EXPORTER", "Jaeger"),
        ("OTEL_TRACES_EXPORTER", "logging"),
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ("OTEL_PROPAGATORS", "tracecontext,jaeger"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "false"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "100"),
        ("OTEL_LOGS_EXPORTER", "otlp"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "100"),
    ] {
        let warnings = warnings(name, text);
        let [warning] = warnings.as_slice() else { panic!("{name}: {warnings:?}") };
        assert!(warning.starts_with(name), "{warning}");
    }
    for (name, text) in [
        ("OTEL_SDK_DISABLED", "false"),
        ("OTEL_SDK_DISABLED", "False"),
        ("OTEL_TRACES_EXPORTER", "otlp"),
        ("OTEL_TRACES_EXPORTER", "OTLP"),
        ("OTEL_TRACES_EXPORTER", ""),
        ("OTEL_PROPAGATORS", "tracecontext, baggage"),
        ("OTEL_PROPAGATORS", "b3multi"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "100"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "100"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
        ("OTEL_SERVICE_NAME", "limits"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ] {
        assert_eq!(warnings(name, text), [""; 0], "{name}");
    }
}

#[test]
fn variables_of_the_sdks_are_compared_with_the_settings() {
    let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
    let traces_by_grpc = ("TRACING_EXPORTER_PROTOCOL", "grpc");
    let collector = ("OTEL_EXPORTER_OTLP_ENDPOINT", "HTTPS://collector:4317");
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4317");
    for (env, warnings) in [
        (&[protocol, traces_by_grpc][..], 0),
        (&[protocol], 1),
        (&[insecure, collector], 1),
        (&[insecure, collector, traces], 0),
        (&[("OTEL_EXPORTER_OTLP_INSECURE", "false"), collector], 0),
    ] {
        let found = Settings::load(&inputs(env)).unwrap().warnings;
        assert_eq!(found.len(), warnings, "{env:?}: {found:?}");
        assert!(found.iter().all(|warning| warning.starts_with(env[0].0)), "{found:?}");
    }
}

#[test]
fn variables_of_the_sdks_set_what_settings_and_the_references_variables_do_not() {
    let ours = ("WEIR__TRACING__SERVICE_NAME", "ours");
    let (reference, sdk) = (("TRACING_SERVICE_NAME", "RateLimit"), ("OTEL_SERVICE_NAME", "sdk"));
    for (env, name) in [
        (&[][..], "RateLimit"),
        (&[sdk], "sdk"),
        (&[sdk, reference], "RateLimit"),
        (&[sdk, reference, ours], "ours"),
    ] {
        let settings = Settings::load(&inputs(env)).unwrap();
        assert_eq!(*settings.tracing.service_name, name, "{env:?}");
        assert_eq!(settings.tracing.service_name.is_default(), env.is_empty());
    }
}

#[test]
fn no_variable_of_the_sdks_turns_traces_on() {
    use crate::settings::reference::variables::VARIABLES;

    let names = VARIABLES.iter().map(|variable| variable.name);
    let names = names.filter(|name| name.starts_with("OTEL_"));
    let env = names.map(|name| match name {
        "OTEL_SDK_DISABLED" => (name, "false"),
        "OTEL_EXPORTER_OTLP_COMPRESSION" => (name, "gzip"),
        "OTEL_EXPORTER_OTLP_HEADERS" => (name, "a=b"),
        name if name.ends_with("_EXPORTER") => (name, "otlp"),
        name if name.ends_with("_ENDPOINT") => (name, "http://localhost:4318"),
        name if name.ends_with("TIMEOUT") || name.ends_with("INTERVAL") => (name, "1000"),
        name => (name, "1"),
    });
    let env: Vec<_> = env.collect();
    let settings = Settings::load(&inputs(&env)).unwrap();
    assert!(settings.otlp_options().is_none());
}

#[test]
fn the_variable_of_all_signals_has_a_path_added_for_http() {
    let url = |env: &[(&str, &str)]| {
        let env = [&[("TRACING_ENABLED", "true")], env].concat();
        let options = Settings::load(&inputs(&env)).unwrap().otlp_options().unwrap();
        options.url.expose().to_owned()
    };
    let grpc = ("TRACING_EXPORTER_PROTOCOL", "grpc");
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/");
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/a");
    let ours = ("WEIR__TRACING__ENDPOINT", "http://w:1/b");
    for (env, wanted) in [
        (&[][..], "http://localhost:4318/v1/traces"),
        (&[grpc], "http://localhost:4317"),
        (&[all], "http://c:1/v1/traces"),
        (&[all, grpc], "http://c:1/"),
        (&[all, traces], "http://t:1/a"),
        (&[all, traces, ours], "http://w:1/b"),
    ] {
        assert_eq!(url(env), wanted, "{env:?}");
    }
}

#[test]
fn metrics_are_sent_to_statsd_if_it_is_asked_for() {
    let enabled = |env: &[(&str, &str)]| {
        let metrics = Settings::load(&inputs(env)).unwrap().metrics;
        (*metrics.statsd.enabled, *metrics.dogstatsd.enabled)
    };
    let (host, port) = (("STATSD_HOST", "metrics"), ("STATSD_PORT", "0x10"));
    let dog = ("USE_DOG_STATSD", "true");
    assert_eq!(enabled(&[]), (false, false));
    assert_eq!(enabled(&[("USE_STATSD", "true")]), (true, false));
    assert_eq!(enabled(&[host]), (true, false));
    assert_eq!(enabled(&[port]), (true, false));
    assert_eq!(enabled(&[("STATSD_PORT", "tcp://10.0.0.1:8125")]), (false, false));
    assert_eq!(enabled(&[host, ("USE_STATSD", "false")]), (false, false));
    assert_eq!(enabled(&[host, dog]), (false, true));
    assert_eq!(enabled(&[host, dog, ("USE_STATSD", "t"), ("USE_PROMETHEUS", "1")]), (true, true));
    let address = |env: &[(&str, &str)]| {
        Settings::load(&inputs(env)).unwrap().metrics.statsd.address.to_string()
    };
    assert_eq!(address(&[]), "localhost:8125");
    assert_eq!(address(&[host]), "metrics:8125");
    assert_eq!(address(&[host, port]), "metrics:16");
    for (name, text) in [("STATS_FLUSH_INTERVAL", "0s"), ("WEIR__METRICS__TAGS", "a:b,c")] {
        let errors = Settings::load(&inputs(&[(name, text)])).unwrap_err();
        assert!(errors.len() == 1 && errors[0].origin == name, "{errors:?}");
    }
}

#[test]
fn statsd_and_dogstatsd_have_their_options() {
    use weir_telemetry::statsd::{Dialect, StatsdProtocol};

    let options = |env: &[(&str, &str)]| {
        let common = [("STATSD_HOST", "a"), ("EXTRA_TAGS", "k:v"), ("STATS_FLUSH_INTERVAL", "1s")];
        Settings::load(&inputs(&[&common, env].concat())).unwrap().statsd_options()
    };
    let [statsd] = &options(&[])[..] else { panic!("one") };
    assert_eq!((statsd.address.as_str(), statsd.protocol), ("a:8125", StatsdProtocol::Tcp));
    assert_eq!((statsd.interval.as_secs(), statsd.statistics.tags.suffix()), (1, ".__k=v"));
    let mogrifier = [
        ("USE_DOG_STATSD", "1"),
        ("USE_DOG_STATSD_MOGRIFIERS", "B,A"),
        ("DOG_STATSD_MOGRIFIER_A_PATTERN", "a,b"),
        ("DOG_STATSD_MOGRIFIER_A_NAME", "n"),
        ("DOG_STATSD_MOGRIFIER_B_PATTERN", "b"),
        ("DOG_STATSD_MOGRIFIER_B_NAME", "n"),
        ("DOG_STATSD_MOGRIFIER_B_TAGS", "t:$1,u:x"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1"),
    ];
    let [dog] = &options(&mogrifier)[..] else { panic!("one") };
    assert_eq!((dog.address.as_str(), dog.protocol), ("a:8125", StatsdProtocol::Udp));
    assert!(matches!(&dog.dialect, Dialect::DogStatsD(mogrifiers) if mogrifiers.len() == 2));
    assert!(dog.statistics.local_cache && !dog.replaces_tag_characters);
    let replaced = options(&[("WEIR__METRICS__STATSD__REPLACE_TAG_CHARACTERS", "true")]);
    assert!(replaced[0].replaces_tag_characters);
    let both = [&mogrifier[..], &[("USE_STATSD", "true"), ("STATSD_PROTOCOL", "udp")]].concat();
    assert_eq!(options(&both).len(), 2);
    assert_eq!(options(&both)[0].protocol, StatsdProtocol::Udp);
    let disabled = [&both[..], &[("DISABLE_STATS", "true")]].concat();
    assert!(options(&disabled).is_empty());
}

#[test]
fn use_prometheus_listens_unless_stats_are_disabled() {
    let address = |env: &[(&str, &str)]| {
        let prometheus = Settings::load(&inputs(env)).unwrap().metrics.prometheus;
        prometheus.address.clone().unwrap_or_default()
    };
    let (on, at) = (("USE_PROMETHEUS", "true"), ("PROMETHEUS_ADDR", "127.0.0.1:9102"));
    assert_eq!(address(&[]), "");
    assert_eq!(address(&[at]), "", "the address alone opens nothing, as in the reference");
    assert_eq!(address(&[on]), ":9090");
    assert_eq!(address(&[on, at]), "127.0.0.1:9102");
    assert_eq!(address(&[on, at, ("DISABLE_STATS", "true")]), "");
    let own = ("WEIR__METRICS__PROMETHEUS__ADDRESS", ":1");
    assert_eq!(address(&[on, at, own]), ":1");
    assert_eq!(address(&[("USE_PROMETHEUS", "false"), own]), ":1");
    let error = Settings::load(&inputs(&[on, ("PROMETHEUS_ADDR", "9102")])).unwrap_err();
    assert_eq!(error[0].origin, "PROMETHEUS_ADDR");
}

#[test]
fn the_references_variables_name_a_management_server() {
    assert!(Settings::load(&inputs(&[("CONFIG_TYPE", "FILE")])).unwrap().xds_options().is_none());
    let xds = |env: &[(&str, &str)]| {
        let source = [("CONFIG_TYPE", "GRPC_XDS_SOTW")];
        Settings::load(&inputs(&[&source, env].concat())).unwrap().xds_options().unwrap()
    };
    let default = xds(&[]);
    assert_eq!((default.url.expose(), default.node_id.as_str()), ("localhost:18000", "default"));
    assert!(!default.tls.enabled);
    assert_eq!(*default.tls.certificates.files(), ClientFiles::default());
    assert_eq!(default.max_message, 16 << 20);
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
    ]);
    assert_eq!((all.url.expose(), all.node_id.as_str()), ("xds:1", "edge"));
    assert_eq!(all.node_metadata, ["zone=a=b", "skipped", "team=x"]);
    assert_eq!(all.headers, ["authorization:x", "team:y"]);
    assert_eq!((all.backoff_min.as_secs(), all.backoff_max.as_secs()), (2, 60));
    assert!(!all.backoff_jitter && all.tls.enabled);
    assert_eq!(all.max_message, 256);
    let file = |file: &Option<PemFile>| file.as_ref().unwrap().path.display().to_string();
    let ClientFiles { ca, cert, key } = all.tls.certificates.files();
    let files = [cert, key, ca].map(file);
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

#[test]
fn connections_age_and_health_follows_redis_as_the_variables_say() {
    let settings = Settings::load(&inputs(&[
        ("GRPC_MAX_CONNECTION_AGE", "2h45m"),
        ("GRPC_MAX_CONNECTION_AGE_GRACE", "0"),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "T"),
        ("REDIS_URL", "redis:6379"),
    ]))
    .unwrap();
    let limits = settings.grpc_limits();
    assert_eq!(limits.max_age, Duration::from_secs(9_900));
    assert_eq!(limits.max_age_grace, Duration::MAX);
    assert!(*settings.health.follow_store && settings.warnings.is_empty());
}
