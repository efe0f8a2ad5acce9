mod disk;
mod docs;
mod errors;
mod tls;
mod variables;

use std::sync::Arc;
use std::time::Duration;

use super::table::SETTINGS;
use super::*;
use crate::rls::service::Protocol;
use weir_common::clock::ManualClock;

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
    assert_eq!(*settings.grpc.address, ":8081");
    assert_eq!(*settings.http.address, ":8080");
    assert_eq!(*settings.debug.address, "127.0.0.1:6070");
    let clock = Arc::new(ManualClock::new(0));
    let permissions = |entrance| settings.service_options(entrance, clock.clone()).permissions;
    let (grpc, http) = (permissions(Protocol::Grpc), permissions(Protocol::Http));
    assert!(grpc.allow_overrides && http.allow_overrides);
    assert!(grpc.allow_negative_hits && !http.allow_negative_hits);
    assert_eq!(*settings.store.budget, None);
    assert_eq!(*settings.store.memory.max_keys, 10_000_000);
    assert_eq!(settings.grpc_limits().max_message, 1 << 20);
    assert!(settings.rule_files().is_none() && settings.rules.paths.is_empty());
}

#[test]
fn values_of_files_are_what_they_are_elsewhere_and_numbers_are_decimal() {
    let yaml = "\
grpc:
  max_descriptors: 010
  max_streams: 0x10
  allow_overrides: off
  max_message: 1e3
http: {max_connections: \"0x11\", address: &here ':1', json_errors: !!str detailed}
resp: {max_connections: +12, address: *here}
rules: {paths: [a, 1.50, yes, 'x, y', 2001-12-14]}
metrics: {max_series: 5.0}
drain: {delay: 1s}
";
    let toml = "\
grpc = { max_descriptors = 1_0, max_streams = 0x1_0, allow_overrides = false, max_message = 1e3 }
http = { max_connections = \"0x11\", address = ':1' }
resp = { max_connections = 12, address = ':1' }
rules = { paths = ['a', 1.50, 'yes', 'x, y', 2001-12-14] }
metrics.max_series = 5
drain.delay = '1s'
";
    let dir = tempfile::tempdir().unwrap();
    for (name, text, place) in [("weir.yaml", yaml, "2:20"), ("weir.toml", toml, "1:28")] {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
        let settings = Settings::load(&inputs).unwrap_or_else(|errors| panic!("{errors:?}"));
        let origin = format!("{}:{place}", file.display());
        assert_eq!(settings.grpc.max_descriptors.origin, origin);
        assert_eq!((*settings.grpc.max_descriptors, *settings.grpc.max_streams), (10, 16));
        assert_eq!((*settings.grpc.allow_overrides, *settings.grpc.max_message), (false, 1_000));
        assert_eq!((*settings.http.max_connections, *settings.resp.max_connections), (17, 12));
        assert_eq!(
            (&**settings.http.address, settings.resp.address.as_deref()),
            (":1", Some(":1"))
        );
        let paths = settings.rules.paths.iter().map(|path| path.to_str().unwrap());
        assert_eq!(paths.collect::<Vec<_>>(), ["a", "1.5", "yes", "x, y", "2001-12-14"]);
        assert_eq!((*settings.metrics.max_series, settings.drain.delay.as_secs()), (5, 1));
    }
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
fn an_empty_host_means_all_addresses() {
    let settings =
        Settings::load(&inputs(&[("HOST", ""), ("GRPC_HOST", ""), ("DEBUG_HOST", "")])).unwrap();
    assert_eq!(*settings.grpc.address, ":8081");
    assert_eq!(*settings.http.address, ":8080");
    assert_eq!(*settings.debug.address, ":6070");
    let settings = Settings::load(&inputs(&[("WEIR__GRPC__ADDRESS", ":8081")])).unwrap();
    assert_eq!(*settings.grpc.address, ":8081");
    // In the reference 0.0.0.0 is all addresses of both families; here those of IPv4.
    let both = [("GRPC_HOST", "0.0.0.0"), ("WEIR__HTTP__ADDRESS", "0.0.0.0:8080")];
    let settings = Settings::load(&inputs(&both)).unwrap();
    assert_eq!(*settings.grpc.address, ":8081");
    assert_eq!(*settings.http.address, "0.0.0.0:8080");
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
    assert_eq!(debug(&[("DEBUG_PORT", "7000")]), address(":7000", false));
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
