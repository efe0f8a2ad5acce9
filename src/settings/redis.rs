//! The options of the Redis store, from the groups `store.redis` and `store.redis.per_second`.

mod servers;
#[cfg(test)]
mod tests;
mod url;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::setting::{Resolved, SettingError};
use super::table::{
    RedisTlsSettings, SentinelSettings, ServerSettings, Settings, StoreKind, TopologyKind,
};
use crate::rls::service::caller_deadline_below;
use url::Url;
use weir_common::clock::WallClock;
use weir_redis::{Endpoint, Login, PasswordFile, RedisAccess, RedisOptions, Topology};

#[derive(Clone, Copy, Debug)]
struct Server<'a> {
    server: &'a ServerSettings,
    sentinel: &'a SentinelSettings,
    tls_enabled: &'a Resolved<bool>,
    tls: &'a RedisTlsSettings,
}

/// Returns the options of the store, and those of limits per second if they have a Redis of their own.
pub fn read(
    settings: &Settings,
    errors: &mut Vec<SettingError>,
) -> (RedisOptions, Option<RedisOptions>) {
    let redis = &settings.store.redis;
    if redis.key_prefix.contains(['{', '}']) {
        let message = format!("is {:?}, and has braces", *redis.key_prefix);
        let help = "remove them: on a cluster they select a key's slot";
        errors.push(redis.key_prefix.error(&message, help));
    }
    if redis.slow_after.is_zero() {
        let help = "write a duration such as 20ms";
        errors.push(redis.slow_after.error("is 0: every connection would be down", help));
    }
    errors.extend(redis.tls.files.check().err());
    let (own, tls) = (&redis.per_second, &redis.tls);
    let main = Server {
        server: &redis.server,
        sentinel: &redis.sentinel,
        tls_enabled: &tls.switch.enabled,
        tls,
    };
    let per_second =
        Server { server: &own.server, sentinel: &own.sentinel, tls_enabled: &own.tls.enabled, tls };
    let options = main.options(settings, errors);
    (options, own.server.url.is_some().then(|| per_second.options(settings, errors)))
}

/// The longest lease: longer ones keep hits from other replicas without saving calls.
const MAX_LEASE: Duration = Duration::from_secs(1);

pub fn check_leases(settings: &Settings, errors: &mut Vec<SettingError>) {
    let leases_for = &settings.store.leases_for;
    if **leases_for > MAX_LEASE {
        let message = format!("is {}", leases_for.text);
        errors.push(leases_for.error(&message, "write a duration up to 1s, or 0 for no leases"));
    }
}

/// Warns if replicas are to share their lists of top keys but cannot.
pub fn check_top_share(settings: &mut Settings) {
    let (share, kind) = (&settings.top.share, &settings.store.kind);
    let because = if **kind != StoreKind::Redis {
        format!("store.kind is {}", kind.text)
    } else if *settings.store.redis.server.topology == TopologyKind::Proxy {
        "store.redis.topology is proxy".to_owned()
    } else {
        return;
    };
    if **share {
        settings.warnings.push(share.no_effect(&because));
    }
}

impl Server<'_> {
    fn options(&self, settings: &Settings, errors: &mut Vec<SettingError>) -> RedisOptions {
        let redis = &settings.store.redis;
        let urls = self.urls(errors);
        let login = self.login(&urls, errors);
        let sentinel = self.sentinel;
        let sentinel_login =
            read_login(&sentinel.username, &sentinel.password, &sentinel.password_file, errors);
        if *self.server.topology == TopologyKind::Sentinel && sentinel.master_name.is_empty() {
            errors.push(sentinel.master_name.error(
                "is not set, but the topology is sentinel",
                "write the name that the sentinels have for the master; in REDIS_URL it comes \
                 first: mymaster,host:26379,…",
            ));
        }
        if self.server.connect_timeout.is_zero() {
            let help = "write a timeout such as 1s";
            errors.push(self.server.connect_timeout.error("is 0: nothing could connect", help));
        }
        let (db, tls) = (self.db(&urls, errors), self.tls(&urls, errors));
        let timeout = *self.server.connect_timeout;
        RedisOptions {
            topology: self.servers(urls),
            access: RedisAccess { login, tls: tls.clone(), db: db.into(), timeout },
            sentinel_access: RedisAccess { login: sentinel_login, tls, db: 0, timeout },
            prefix: redis.key_prefix.to_string(),
            clock: *redis.clock,
            wall: Arc::new(WallClock),
            slow_after: *redis.slow_after,
            caller_deadline_below: caller_deadline_below(*settings.store.budget),
            // One for each thread that serves gRPC, and one for the thread of `/json`.
            connections: settings.threads() + 1,
        }
    }

    /// Returns the login of the servers: from the URL, or from settings of its own.
    fn login(&self, urls: &[Url], errors: &mut Vec<SettingError>) -> Login {
        let ServerSettings { username, password, password_file, .. } = self.server;
        let mut login = read_login(username, password, password_file, errors);
        if let Some(url) = urls.iter().find(|url| url.has_login()) {
            if username.is_some() || password.is_some() || password_file.is_some() {
                let (username, password) = (username.setting, password.setting);
                let help =
                    format!("write it once: there, or in {} and {}", username.name, password.name);
                errors.push(self.server.url.error("has a login, and there is another", help));
            }
            login.username.clone_from(&url.username);
            login.password.clone_from(&url.password);
        }
        login
    }

    fn db(&self, urls: &[Url], errors: &mut Vec<SettingError>) -> u32 {
        let db = urls.iter().find_map(|url| url.db).unwrap_or_default();
        if matches!(*self.server.topology, TopologyKind::Cluster | TopologyKind::Proxy) && db != 0 {
            let message = format!("names database {db}, but a cluster or a proxy has only 0");
            let help = "remove it; store.redis.key_prefix separates keys";
            errors.push(self.server.url.error(&message, help));
        }
        db
    }

    fn servers(&self, urls: Vec<Url>) -> Topology {
        let mut endpoints = urls.into_iter().map(|url| url.server);
        // A missing URL is an error.
        let nowhere = || Endpoint::Tcp("localhost".into(), 6379);
        match *self.server.topology {
            TopologyKind::Single => Topology::Single(endpoints.next().unwrap_or_else(nowhere)),
            TopologyKind::Proxy => Topology::Proxy(endpoints.next().unwrap_or_else(nowhere)),
            TopologyKind::Sentinel => {
                let master = self.sentinel.master_name.to_string();
                Topology::Sentinel { master, sentinels: endpoints.collect() }
            }
            TopologyKind::Cluster => Topology::Cluster(endpoints.collect()),
        }
    }
}

fn read_login(
    username: &Resolved<Option<String>>,
    password: &Resolved<Option<String>>,
    password_file: &Resolved<Option<PathBuf>>,
    errors: &mut Vec<SettingError>,
) -> Login {
    if password.is_some() && password_file.is_some() {
        let help = "remove one of the two";
        errors.push(password_file.error("is set, and so is the password", help));
    }
    Login {
        username: username.value.clone(),
        password: password.value.clone(),
        password_file: password_file.value.clone().map(|path| match &*password_file.origin {
            "REDIS_AUTH_FILE" | "REDIS_PERSECOND_AUTH_FILE" => PasswordFile::with_user(path),
            _ => PasswordFile::new(path),
        }),
    }
}
