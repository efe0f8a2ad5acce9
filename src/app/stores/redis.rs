//! Redis options from settings.

use std::sync::Arc;

use crate::clock::WallClock;
use crate::service::caller_deadline_below;
use crate::settings::Settings;
use crate::settings::redis::{self as said, Redis};
use crate::store::redis::{Access, Clock, Endpoint, Layout, Login, Options, Tls, Topology};

pub(super) fn options(redis: &Redis, settings: &Settings, threads: usize) -> Options {
    let endpoint = |server: &said::Server| match server {
        said::Server::Tcp(host, port) => Endpoint::Tcp(host.clone(), *port),
        said::Server::Unix(path) => Endpoint::Unix(path.clone()),
    };
    let mut endpoints = redis.servers.iter().map(endpoint);
    let topology = match redis.topology {
        said::Topology::Single => {
            let nowhere = || Endpoint::Tcp("localhost".into(), 6379);
            Topology::Single(endpoints.next().unwrap_or_else(nowhere))
        }
        said::Topology::Sentinel => {
            Topology::Sentinel { master: redis.master_name.clone(), sentinels: endpoints.collect() }
        }
        said::Topology::Cluster => Topology::Cluster(endpoints.collect()),
    };
    let tls = redis.tls.as_ref().map(|tls| Tls {
        ca: tls.ca.clone(),
        client_cert: tls.client.as_ref().map(|(cert, _)| cert.clone()),
        client_key: tls.client.as_ref().map(|(_, key)| key.clone()),
        skip_hostname_verification: tls.skip_hostname_verification,
    });
    let access = |login: &said::Login, db| Access {
        login: Login {
            username: login.username.clone(),
            password: login.password.clone(),
            password_file: login.password_file.clone(),
        },
        tls: tls.clone(),
        db,
        timeout: redis.connect_timeout,
    };
    Options {
        topology,
        access: access(&redis.login, redis.db.into()),
        sentinel_access: access(&redis.sentinel_login, 0),
        prefix: redis.key_prefix.clone(),
        layout: match redis.layout {
            said::Layout::Weir => Layout::Weir,
            said::Layout::Reference => Layout::Reference,
        },
        clock: match redis.clock {
            said::Clock::Server => Clock::Server,
            said::Clock::Caller => Clock::Caller,
        },
        wall: Arc::new(WallClock),
        slow_after: redis.slow_after,
        caller_deadline_below: caller_deadline_below(settings.store.budget),
        probe_max: redis.probe_max,
        lanes: threads,
    }
}
