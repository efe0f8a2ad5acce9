//! Pods of clusters with IPv6 alone, and of those without it. Envoy Gateway sets neither HOST nor GRPC_HOST.

use std::net::{Ipv6Addr, TcpListener};
use std::process::Command;
use std::{fs, io};

use super::gateway::Gateway;
use super::pod::{Place, Pod, in_pod};
use super::{allowed, block_on};
use crate::support::certificates::Authority;
use crate::support::redis::Server;
use crate::support::wait_for;

/// The address of the pod, which has no other but those of loopback.
const POD_IP: &str = "fd00:5::2";

/// Runs `test`, which is the test `name`, in namespaces of its own. Skips it where that is not possible.
fn in_ipv6_pod(name: &str, test: impl FnOnce(Place)) {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    in_pod(name, |place| match place {
        Place::Namespaces { .. } => test(place),
        Place::Shared { .. } => eprintln!("skipped: network namespaces are not permitted"),
    });
}

/// Sets a variable of the network namespace.
fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv6/{name}"), value)
}

#[test]
fn a_pod_with_ipv6_alone_is_ready_and_serves() {
    in_ipv6_pod("envoy_gateway::ipv6::a_pod_with_ipv6_alone_is_ready_and_serves", |place| {
        let address = ["-6", "address", "add", &format!("{POD_IP}/128"), "dev", "lo", "nodad"];
        assert!(Command::new("ip").args(address).status().expect("iproute2").success());
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let mut pod = Pod::new(place, &authority, &redis);
        assert!(pod.env().iter().all(|(name, _)| !name.ends_with("HOST")));
        pod.set_ip(POD_IP.parse().unwrap());
        pod.start();
        wait_for("the startup probe", || (pod.probe() == Some(200)).then_some(()));
        gateway.await_subscription();
        gateway.set_snapshot(3);
        assert_eq!(block_on(allowed(&pod, &authority)), 3);
        assert!(pod.metrics().contains("\n# TYPE "));
        pod.stop();
    });
}

#[test]
fn defaults_of_the_system_for_ipv6_do_not_matter() {
    in_ipv6_pod("envoy_gateway::ipv6::defaults_of_the_system_for_ipv6_do_not_matter", |place| {
        // The default of IPV6_V6ONLY, and IPv6 without addresses.
        for name in ["bindv6only", "conf/all/disable_ipv6"] {
            if let Err(error) = set_sysctl(name, "1") {
                eprintln!("skipped: {name} cannot be set: {error}");
                return;
            }
            let (authority, redis) = (Authority::new(), Server::start());
            let mut pod = Pod::new(place.clone(), &authority, &redis);
            pod.start();
            wait_for("the startup probe", || (pod.probe() == Some(200)).then_some(()));
            pod.stop();
        }
    });
}
