use super::*;

#[test]
fn all_errors_are_reported_at_once() {
    let errors = Settings::load(&inputs(&[
        ("WEIR__GRCP__ADDRESS", "1:2"),
        ("WEIR__STORE__KIND", "disks"),
        ("GRPC_PORT", "99999"),
        ("LOG_LEVEL", "loud"),
        ("RUNTIME_WATCH_ROOT", ""),
        ("WEIR__HTTP__METRICS", "none"),
    ]))
    .unwrap_err();
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    for wanted in [
        "WEIR__GRCP__ADDRESS: there is no setting \"grcp.address\"; did you mean grpc.address?",
        "WEIR__STORE__KIND: store.kind is \"disks\"; write one of memory, disk, redis",
        "GRPC_PORT: it is \"99999\"; write a whole number from 0 to 65535",
        "LOG_LEVEL: it is \"loud\"; \
         write one of panic, fatal, error, warn, warning, info, debug, trace; \
         and library=level for libraries, with commas between them: info,h2=debug",
        "RUNTIME_WATCH_ROOT: it is \"\"; write true or false",
        "WEIR__HTTP__METRICS: http.metrics is \"none\"; write true or false",
    ] {
        assert!(messages.iter().any(|t| t == wanted), "{wanted:?} is not among {messages:#?}");
    }
    assert_eq!(messages.len(), 6);
}

#[test]
fn every_duration_has_a_maximum() {
    use crate::settings::format::FormatKind;
    use crate::settings::table::SETTINGS;
    use weir_common::duration::MAX_DURATION;

    let mut durations = 0;
    for setting in SETTINGS.iter() {
        if !matches!(setting.kind, FormatKind::Duration | FormatKind::AutoOrDuration) {
            continue;
        }
        durations += 1;
        let variable = format!("WEIR__{}", setting.name.to_uppercase().replace('.', "__"));
        let errors = Settings::load(&inputs(&[(&variable, "200000000000000d")])).unwrap_err();
        let maximum = format!("up to {MAX_DURATION}");
        assert!(errors.iter().any(|it| it.to_string().contains(&maximum)), "{errors:?}");
    }
    assert!(durations > 12, "{durations}");
}

#[test]
fn long_values_are_shortened_in_errors() {
    let errors = Settings::load(&inputs(&[("WEIR__GRPC__ADDRESS", &"ä".repeat(1 << 20))]));
    let error = errors.unwrap_err()[0].to_string();
    assert!(error.contains("grpc.address is \"ää") && error.contains("ä…\"; write "), "{error}");
    assert!(error.len() < 500, "{error}");
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
        messages[0]
            .starts_with(&format!("{file}:1:1: there is no setting \"grpc\"; it is a group"))
    );
    assert_eq!(
        messages[1],
        format!("{file}:2:9: there is no setting \"http.adress\"; did you mean http.address?")
    );
    assert!(
        messages[2].starts_with(&format!("{file}:3:17: drain.delay is \"soon\"; ")),
        "{messages:#?}"
    );
}

#[test]
fn errors_of_syntax_name_the_place_and_do_not_quote_the_file() {
    for (name, text, wanted) in [
        ("toml", "[store.redis]\npassword = hunter2\n", ":2:12: invalid TOML: "),
        ("toml", "[store.redis]\npassword hunter2\n", ":2:"),
        ("toml", "password = \"hunter2\n", ":1:"),
        ("toml", "ä = 1\nab = 2 \nab = 'hunter2'\n", ":3:1: \"ab\" is there twice; remove one"),
        (
            "toml",
            "[store]\nredis.url = 'a'\nredis.url = 'hunter2'\n",
            ":3:7: \"store.redis.url\" is there twice; remove one",
        ),
        ("toml", "password = 'hunter2' hunter2\n", ":1:"),
        ("toml", "a = \"hunter2\\q\"\n", ":1:"),
        ("toml", "a = 99999999999999999999 # hunter2\n", ":1:1: there is no setting \"a\""),
        ("toml", "a = 1 b\nb = hunter2\n", ":2:5: "),
        ("yaml", "store:\n  password: \"hunter2\n", ":3:1: invalid YAML: "),
        ("yaml", "store: @hunter2\n", ":1:8: invalid YAML: "),
        ("yaml", "store: [hunter2\n", ":1:8: invalid YAML: "),
        (
            "yaml",
            "grpc:\n  a: hunter2\n  a: hunter2\n",
            ":3:3: \"grpc.a\" is there twice, first at 2:3; remove one of them",
        ),
        (
            "yaml",
            "drain: { delay: 1s }\ndrain.delay: 2s\n",
            ":2:1: \"drain.delay\" is there twice, first at 1:10; ",
        ),
        ("yaml", "store: *hunter2\n", ":1:8: invalid YAML: "),
        ("yaml", "hunter2\n", ":1:1: it has no settings; write name: value"),
        ("yaml", "? [hunter2]\n: 1\n", ":1:3: a key is not text; "),
        (
            "yaml",
            "drain: { delay: 1s }\n---\nhunter2: 1\n",
            ":3:1: the file has another document here",
        ),
        ("yaml", "a: hunter2\n---\nb: 1\n", ":3:1: the file has another document here"),
        ("yaml", "a: !!float hunter2\n", ":1:12: invalid YAML: its tag does not allow the value"),
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
fn the_delay_of_a_drain_is_part_of_its_timeout() {
    let error = |env: &[(&str, &str)]| {
        let errors = Settings::load(&inputs(env)).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].to_string()
    };
    let (delay, timeout) = ("WEIR__DRAIN__DELAY", "WEIR__DRAIN__TIMEOUT");
    assert_eq!(
        error(&[(delay, "25s")]),
        "WEIR__DRAIN__DELAY: drain.delay is 25s, but drain.timeout, which includes it, is 25s; write \
         a shorter delay, or set drain.timeout above it, and Kubernetes' \
         terminationGracePeriodSeconds above both"
    );
    let too_short = "WEIR__DRAIN__TIMEOUT: drain.timeout is 5s, but includes drain.delay, which is \
                     5s; write more than the delay, or set a shorter drain.delay";
    assert_eq!(error(&[(timeout, "5s")]), too_short);
    assert_eq!(error(&[(timeout, "5s"), (delay, "5s")]), too_short);
    assert!(Settings::load(&inputs(&[(timeout, "31s"), (delay, "30s")])).is_ok());
}
