//! examples/compose: weir, Valkey and Envoy are started as their services say, on free ports of this machine.
//! The files of the other services are checked by the programs that read them, where there are some.

mod file;

use std::fs;
use std::process::Command;

use crate::support::redis::{Config, Reply, Server};
use crate::support::tools::{promtool, tool};
use crate::support::weir::{Setup, Weir};
use crate::support::{envoy, http, yaml};
use file::{Compose, list, text};

const ENVOY: &str = include_str!("../../examples/compose/envoy.yaml");

/// Starts the service valkey with its options.
fn start_valkey(compose: &Compose) -> Server {
    let command = compose.command("valkey");
    let [program, options @ ..] = &command[..] else { panic!("no command") };
    assert_eq!(program, "valkey-server");
    let line = |option: &[String]| match option {
        [name, value] => format!("{} \"{value}\"", name.strip_prefix("--").expect("an option")),
        other => panic!("{other:?} is not an option with a value"),
    };
    let lines = options.chunks(2).map(line).collect();
    Server::with(Config { lines, ..Config::default() })
}

/// Starts the service weir with its command, environment and files. The image's entry point is the program.
fn start_weir(compose: &Compose, valkey: &Server) -> Weir {
    let here =
        |value: &str| compose.with_sources_of("weir", value).replace("valkey:6379", &valkey.addr());
    let mut setup = Setup::new();
    for argument in compose.command("weir") {
        setup = setup.arg(&here(&argument));
    }
    for (name, value) in compose.environment("weir") {
        setup = setup.env(&name, here(&value));
    }
    setup.start()
}

#[test]
fn the_services_work_together() {
    let compose = Compose::read();
    let valkey = start_valkey(&compose);
    let weir = start_weir(&compose, &valkey);
    assert!(!weir.said().contains("maxmemory-policy"), "{}", weir.said());
    assert!(http::get(weir.http, "/metrics").body.contains("weir_build_info"));

    let probe = compose.service("weir")["healthcheck"]["test"].clone();
    let [_, program, arguments @ ..] = &list(&probe)[..] else { panic!("{probe} is no command") };
    assert_eq!(program, "/bin/weir");
    let debug = weir.debug.to_string();
    let setup = Setup::new().env("WEIR__DEBUG__ADDRESS", &debug);
    let probe = arguments.iter().fold(setup, |setup, argument| setup.arg(text(argument)));
    let (status, said) = probe.run();
    assert!(status.success(), "{said}");

    let config = ENVOY.replace("address: weir,", "address: 127.0.0.1,");
    assert_ne!(config, ENVOY, "Envoy reaches weir by the name of its service");
    let envoy = envoy::documented(&config.replace("0.0.0.0", "127.0.0.1"), &weir);
    // Eleven requests exceed the limit even if a new minute starts in between.
    let statuses = envoy.statuses(11, "/hello", &[]);
    assert!(statuses.starts_with(&[200, 200, 200, 200, 200]), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    let Reply::Int(keys) = valkey.command(&["DBSIZE"]) else { panic!("not a number") };
    assert!(keys > 0, "Valkey has the counters");
}

#[test]
fn envoy_accepts_its_file_as_it_is() {
    envoy::validate(ENVOY).unwrap();
}

#[test]
fn the_library_of_compose_accepts_the_file() {
    let Some(compose_spec) = tool("compose-spec", "WEIR_COMPOSE_SPEC") else { return };
    let compose = Compose::read();
    let check = |file: &str| {
        let mut command = Command::new(&compose_spec);
        command.args(["--format", "json", file]).current_dir(compose.directory());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(output.stdout).ok_or(error)
    };
    let accepted = check("docker-compose.yaml").unwrap();
    let accepted: serde_json::Value = serde_json::from_slice(&accepted).unwrap();
    for name in compose.names() {
        assert!(accepted["services"][&name].is_object(), "{name}");
    }

    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.yaml");
    fs::write(&broken, compose.source().replace("read_only:", "read_onlyy:")).unwrap();
    let error = check(broken.to_str().unwrap()).unwrap_err();
    assert!(error.contains("read_onlyy"), "{error}");
}

#[test]
fn mounted_files_exist_and_ports_are_private() {
    let compose = Compose::read();
    for name in compose.names() {
        for (source, target) in compose.mounts(&name) {
            assert!(source.exists(), "{name} mounts {} at {target}", source.display());
        }
        for port in compose.strings(&name, "ports") {
            assert!(port.starts_with("127.0.0.1:"), "{name} publishes {port}");
        }
    }
}

#[test]
fn images_have_the_versions_of_the_tests_and_of_the_chart() {
    let compose = Compose::read();
    let image = |name: &str| text(&compose.service(name)["image"]).to_owned();
    for name in compose.names().into_iter().filter(|name| name != "weir") {
        let image = image(&name);
        let (_, tag) = image.rsplit_once(':').expect("a tag");
        assert!(tag.contains(|c: char| c.is_ascii_digit()), "{image}");
    }
    let envoy = image("envoy");
    let (_, version) = envoy.rsplit_once(":v").unwrap();
    let script = compose.repository_file("scripts/install-envoy");
    assert!(script.contains(&format!("version={version}\n")), "the tests have another Envoy");
    let chart = yaml::document(&compose.repository_file("helm/weir/values.yaml"));
    let bundled = &chart["store"]["bundled"]["image"];
    let bundled = format!("{}:{}", text(&bundled["repository"]), text(&bundled["tag"]));
    assert_eq!(image("valkey"), bundled);
}

#[test]
fn weir_stops_before_compose_kills_it() {
    let compose = Compose::read();
    let seconds = |value: &str| value.strip_suffix('s').unwrap().parse::<u32>().unwrap();
    let (status, settings) = Setup::new().arg("serve").arg("--print-settings").run();
    assert!(status.success(), "{settings}");
    let timeout = settings.split("drain.timeout = \"").nth(1).unwrap().split('"').next().unwrap();
    let grace = text(&compose.service("weir")["stop_grace_period"]);
    assert!(seconds(grace) > seconds(timeout), "{grace} and {timeout}");
}

#[test]
fn prometheus_scrapes_the_services_and_loads_the_alerts() {
    let compose = Compose::read();
    let source =
        fs::read_to_string(compose.source_of("prometheus", "/etc/prometheus/prometheus.yaml"));
    let source = source.unwrap();
    let command = compose.command("prometheus");
    assert!(command.contains(&"--config.file=/etc/prometheus/prometheus.yaml".to_owned()));

    let config = yaml::document(&source);
    let jobs = list(&config["scrape_configs"]);
    let weir = &jobs[0]["dns_sd_configs"][0];
    assert_eq!(list(&weir["names"]), &["weir"]);
    // The default of http.address, whose /metrics Prometheus reads by default.
    assert_eq!(weir["port"], 8080);
    let (host, port) = text(&jobs[1]["static_configs"][0]["targets"][0]).split_once(':').unwrap();
    assert!(compose.names().contains(&host.to_owned()), "{host}");
    let (admin, _) = ENVOY.split_once("static_resources:").unwrap();
    assert!(admin.contains(&format!("port_value: {port} ")), "{admin}");

    let rules = text(&config["rule_files"][0]).to_owned();
    let here = compose.source_of("prometheus", &rules);
    let Some(promtool) = promtool() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prometheus.yaml");
    fs::write(&file, source.replace(&rules, here.to_str().unwrap())).unwrap();
    let output = Command::new(promtool).args(["check", "config"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("rules found"), "{said}");
}

#[test]
fn grafana_has_the_dashboard_and_its_data_source() {
    let compose = Compose::read();
    let provisioned = |path: &str| {
        let file = compose.source_of("grafana", &format!("/etc/grafana/provisioning/{path}"));
        yaml::document(&fs::read_to_string(file).unwrap())
    };
    let provider = &provisioned("dashboards/weir.yaml")["providers"][0];
    let directory = text(&provider["options"]["path"]).to_owned();
    let environment = compose.environment("grafana");
    let (_, home) =
        environment.iter().find(|(name, _)| name.ends_with("HOME_DASHBOARD_PATH")).unwrap();
    assert!(home.starts_with(&directory), "{home}");
    let dashboard = fs::read_to_string(compose.source_of("grafana", home)).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();

    let source = &provisioned("datasources/prometheus.yaml")["datasources"][0];
    let variables = list(&dashboard["templating"]["list"]);
    let variable = variables.iter().find(|variable| variable["type"] == "datasource").unwrap();
    assert_eq!(variable["query"], source["type"], "the dashboard lists sources of this type");
    assert_eq!(source["isDefault"], true, "the dashboard selects it");
    assert_eq!(source["url"], "http://prometheus:9090");
    assert!(compose.names().contains(&"prometheus".to_owned()));
}
