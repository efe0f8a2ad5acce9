//! Converts the settings `store.redis` and `store.redis.per_second` to the options of the Redis store.

#[cfg(test)]
mod tests;
mod url;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::secret;
use super::setting::{Resolved, SettingError};
use super::table::{
    RedisTlsSettings, SentinelSettings, ServerSettings, Settings, StoreKind, TopologyKind,
};
use crate::rls::service::caller_deadline_below;
use url::Url;
use weir_common::clock::WallClock;
use weir_redis::{Endpoint, Login, PasswordFile, RedisAccess, RedisOptions, Tls, Topology};

/// The settings of one Redis, of either group.
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
            // One for each thread that serves gRPC, one for the thread of `/json`, and one for that of quotas.
            connections: settings.threads() + 1 + usize::from(*settings.rlqs.enabled),
        }
    }

    /// Reads the URLs, and checks that they are in accord with each other and with the topology.
    fn urls(&self, errors: &mut Vec<SettingError>) -> Vec<Url> {
        let Some(text) = self.server.url.as_deref() else {
            errors.push(self.server.url.error(
                "is not set, so the address of Redis is unknown",
                "write host:port, redis://host:port or the path of a Unix socket",
            ));
            return Vec::new();
        };
        let mut urls = Vec::new();
        for part in text.split(',').map(str::trim) {
            match Url::read(part) {
                Ok(url) => urls.push(url),
                Err((what, help)) => {
                    // A comma may be part of a password, so this part may be the rest of one.
                    let whole = if text.contains(['@', '?']) { text } else { part };
                    let shown = secret::shown("url", whole);
                    errors.push(self.server.url.error(&format!("has {shown:?}: {what}"), help));
                }
            }
        }
        let mut reject_if = |is_wrong: bool, message: &str, help: &str| {
            if is_wrong {
                errors.push(self.server.url.error(message, help));
            }
        };
        let several =
            matches!(*self.server.topology, TopologyKind::Sentinel | TopologyKind::Cluster);
        let unix = urls.iter().any(|url| matches!(url.server, Endpoint::Unix(_)));
        reject_if(
            !several && text.contains(','),
            &format!("names several servers, but the topology is {}", self.server.topology.text),
            "name one, or set the topology to cluster or sentinel",
        );
        reject_if(
            several && unix,
            "names a Unix socket, but cluster nodes and sentinels have a host and a port",
            "write host:port, with commas between several",
        );
        reject_if(
            *self.server.topology == TopologyKind::Sentinel && urls.iter().any(Url::has_login),
            "has a login in the address of a sentinel",
            "write that of the servers in username and password, that of the sentinels in \
             sentinel.username and sentinel.password",
        );
        let shared = urls.iter().map(|url| (&url.username, &url.password, url.db));
        reject_if(
            shared.clone().zip(shared.skip(1)).any(|(one, next)| one != next),
            "has different logins or databases for servers of one group",
            "write the same for all",
        );
        urls
    }

    /// Returns how connections are encrypted; none if they are not. As in the reference, the files of the main
    /// store serve both stores.
    fn tls(&self, urls: &[Url], errors: &mut Vec<SettingError>) -> Option<Tls> {
        let enabled = self.tls_enabled;
        let in_url = urls.iter().any(|url| url.tls == Some(true));
        if in_url && urls.iter().any(|url| url.tls != Some(true)) {
            let help = "write rediss:// for all or for none";
            errors.push(self.server.url.error("asks for TLS to some servers only", help));
        }
        if in_url && !**enabled && !enabled.is_default() {
            let help = "write redis:// in the URL, or remove tls.enabled";
            errors.push(enabled.error("is false, but the URL is rediss://", help));
        }
        // It may be true beside redis://, as in the reference, which then encrypts.
        if **enabled && urls.iter().any(|url| matches!(url.server, Endpoint::Unix(_))) {
            let help = "remove it: a Unix socket does not leave the machine";
            errors.push(enabled.error("is true on a Unix socket", help));
        }
        (in_url || **enabled).then(|| Tls {
            certificates: self.tls.files.certificates(),
            skip_hostname_verification: *self.tls.skip_hostname_verification,
        })
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
