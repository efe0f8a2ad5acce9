//! Clients over IPv4 and IPv6.

use std::net::{IpAddr, Ipv6Addr, TcpListener};

use serde_json::json;

use crate::support::api::HIGH_LIMIT;
use crate::support::control_api::{ControlApi, of_user};
use crate::support::weir::{Setup, serving};

#[test]
fn an_ipv4_client_of_a_listener_for_both_families_is_known_by_its_address() {
    let mut setup = serving(HIGH_LIMIT);
    for place in ["--grpc-address", "--http-address", "--debug-address"] {
        setup = setup.arg(place).arg(":0");
    }
    let mut weir = setup.start_as_it_is();
    weir.debug.set_ip(IpAddr::from([127, 0, 0, 1]));
    let api = ControlApi::new(&weir);
    // From the same machine it needs no token.
    api.put_good("b", &of_user("ann", &json!({ "action": "block" })));
    let records = api.good("/v1/audit")["records"].clone();
    let from = records[0]["from"].as_str().unwrap();
    assert!(from.starts_with("127.0.0.1:"), "{from}");
    let logged = weir.until_said("operator change").unwrap();
    assert!(logged.contains(&format!("from=\"{from}\"")), "{logged}");
}

#[test]
fn commands_find_a_server_on_localhost_by_either_family() {
    let mut hosts = vec!["127.0.0.1"];
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => hosts.push("[::1]"),
        Err(error) => eprintln!("skipped: IPv6: {error}"),
    }
    for host in hosts {
        let mut setup = serving(HIGH_LIMIT);
        for place in ["--grpc-address", "--http-address", "--debug-address"] {
            setup = setup.arg(place).arg(&format!("{host}:0"));
        }
        let weir = setup.start_as_it_is();
        let server = format!("localhost:{}", weir.grpc.port());
        let hit = ["hit", server.as_str(), "-d", "shop", "user=ann"];
        let ready = format!("http://localhost:{}/readyz", weir.debug.port());
        let health = ["health", "--url", &ready];
        for command in [&hit[..], &health] {
            let command = command.iter().fold(Setup::new(), |setup, word| setup.arg(word));
            let (status, output) = command.run();
            assert_eq!(status.code(), Some(0), "{host}: {output}");
        }
    }
}
