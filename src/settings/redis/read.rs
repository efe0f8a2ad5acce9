//! Reads the groups of settings, and says what contradicts itself.

use std::path::PathBuf;
use std::time::Duration;

use super::super::layers::{All, Resolved};
use super::super::value::Parsed;
use super::super::{SettingError, secret};
use super::url::Url;
use super::{Clock, Layout, Login, Redis, Server, Tls, Topology};

/// The group of settings of the store for limits of one second.
const PER_SECOND: &str = "store.redis.per_second";

/// Reads both groups, and adds what is wrong with them. The second is there where its URL is set.
pub fn read(all: &All, errors: &mut Vec<SettingError>) -> (Redis, Option<Redis>) {
    let prefix = all.get("store.redis.key_prefix");
    if let Some(prefix) = prefix.filter(|prefix| prefix.text.contains(['{', '}'])) {
        errors.push(SettingError {
            origin: prefix.origin.clone(),
            message: format!("store.redis.key_prefix is {:?}, and has braces", prefix.text),
            help: "leave them out: they say what stays together on a cluster".to_owned(),
        });
    }
    let main = Group { all, name: "store.redis" };
    if main.time("slow_after").is_zero() {
        let help = "write a duration such as 20ms";
        errors.push(main.error("slow_after", "is 0: every connection would be down", help));
    }
    let main = main.read(errors);
    let group = Group { all, name: PER_SECOND };
    let per_second = (!group.text("url").is_empty()).then(|| group.read(errors));
    (main, per_second)
}

struct Group<'a> {
    all: &'a All,
    name: &'static str,
}

impl Group<'_> {
    fn get(&self, key: &str) -> Option<&Resolved> {
        self.all.get(format!("{}.{key}", self.name).as_str())
    }

    fn text(&self, key: &str) -> &str {
        self.get(key).map_or("", |resolved| resolved.text.as_str())
    }

    fn some(&self, key: &str) -> Option<String> {
        Some(self.text(key).to_owned()).filter(|text| !text.is_empty())
    }

    fn is_on(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Resolved { value: Parsed::Bool(true), .. }))
    }

    fn is_said(&self, key: &str) -> bool {
        self.get(key).is_some_and(|resolved| resolved.origin != "default")
    }

    fn time(&self, key: &str) -> Duration {
        match self.get(key).map(|resolved| &resolved.value) {
            Some(Parsed::Duration(time)) => *time,
            _ => Duration::ZERO,
        }
    }

    fn is(&self, key: &str, word: &str) -> bool {
        self.text(key).eq_ignore_ascii_case(word)
    }

    /// A error made where a setting of the group was said.
    fn error(&self, key: &str, message: &str, help: impl Into<String>) -> SettingError {
        let origin = self.get(key).map_or("default", |resolved| resolved.origin.as_str());
        let name = format!("{}.{key}", self.name);
        let message = format!("{name} {message}");
        SettingError { origin: origin.to_owned(), message, help: help.into() }
    }

    fn read(&self, errors: &mut Vec<SettingError>) -> Redis {
        let name = self.name;
        let topology = match () {
            () if self.is("topology", "cluster") => Topology::Cluster,
            () if self.is("topology", "sentinel") => Topology::Sentinel,
            () => Topology::Single,
        };
        let urls = self.urls(topology, errors);
        let mut login = self.login("", errors);
        let said = urls.iter().find(|url| url.username.is_some() || url.password.is_some());
        if let Some(url) = said {
            if login != Login::default() {
                errors.push(self.error(
                    "url",
                    "has a login, and there is another",
                    format!("say it once: there, or in {name}.username and {name}.password"),
                ));
            }
            login.username = url.username.clone();
            login.password = url.password.clone();
        }
        let main = Group { all: self.all, name: "store.redis" };
        let layout = if main.is("layout", "reference") { Layout::Reference } else { Layout::Weir };
        let key_prefix = match layout {
            // To count together with the reference, keys must begin as its do.
            Layout::Reference if !main.is_said("key_prefix") => String::new(),
            _ => main.text("key_prefix").to_owned(),
        };
        let master_name = self.text("sentinel.master_name").to_owned();
        if topology == Topology::Sentinel && master_name.is_empty() {
            errors.push(self.error(
                "sentinel.master_name",
                "is not set, but sentinels are asked for a master by its name",
                "write the name the sentinels have for it; in REDIS_URL it comes first: \
                 mymaster,host:26379,…",
            ));
        }
        if self.time("connect_timeout").is_zero() {
            let help = "write how long to wait, such as 1s";
            errors.push(self.error("connect_timeout", "is 0: nothing could connect", help));
        }
        Redis {
            topology,
            db: self.db(topology, &urls, errors),
            tls: self.tls(&urls, errors),
            servers: urls.into_iter().map(|url| url.server).collect(),
            login,
            key_prefix,
            layout,
            clock: if main.is("clock", "caller") { Clock::Caller } else { Clock::Server },
            connect_timeout: self.time("connect_timeout"),
            master_name,
            sentinel_login: self.login("sentinel.", errors),
            slow_after: main.time("slow_after"),
            probe_max: main.time("breaker.probe_max"),
        }
    }

    fn urls(&self, topology: Topology, errors: &mut Vec<SettingError>) -> Vec<Url> {
        let text = self.text("url");
        if text.is_empty() {
            errors.push(self.error(
                "url",
                "is not set, so it is not known where Redis is",
                "write host:port, redis://host:port or the path of a Unix socket",
            ));
            return Vec::new();
        }
        let mut urls = Vec::new();
        for part in text.split(',').map(str::trim) {
            match Url::read(part) {
                Ok(url) => urls.push(url),
                Err((what, help)) => {
                    // A comma may be part of a password, so this part may be the rest of one.
                    let whole = if text.contains(['@', '?']) { text } else { part };
                    let shown = secret::shown("url", whole);
                    errors.push(self.error("url", &format!("has {shown:?}: {what}"), help));
                }
            }
        }
        let mut wrong = |is_wrong: bool, what: &str, help: &str| {
            if is_wrong {
                errors.push(self.error("url", what, help));
            }
        };
        let several = topology != Topology::Single;
        let unix = urls.iter().any(|url| matches!(url.server, Server::Unix(_)));
        wrong(
            !several && text.contains(','),
            "names several servers, but the topology is single",
            "name one, or set the topology to cluster or sentinel",
        );
        wrong(
            several && unix,
            "names a Unix socket, but nodes of a cluster and sentinels are found by host and port",
            "write host:port, with commas between several",
        );
        wrong(
            topology == Topology::Sentinel && urls.iter().any(Url::says_more_than_where),
            "has a login or a database in the address of a sentinel",
            "say the servers' in username, password and db, the sentinels' in sentinel.username \
             and sentinel.password",
        );
        let differ = |of: fn(&Url) -> (&Option<String>, &Option<String>)| {
            urls.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]))
        };
        wrong(
            differ(|url| (&url.username, &url.password)),
            "has different logins for nodes of one cluster",
            "use one login for all",
        );
        urls
    }

    fn login(&self, of: &str, errors: &mut Vec<SettingError>) -> Login {
        let some = |key: &str| self.some(&format!("{of}{key}"));
        let (password, file) = (some("password"), some("password_file"));
        if password.is_some() && file.is_some() {
            let help = "keep one of the two";
            errors.push(self.error(
                &format!("{of}password_file"),
                "is set, and so is the password",
                help,
            ));
        }
        Login { username: some("username"), password, password_file: file.map(PathBuf::from) }
    }

    fn db(&self, topology: Topology, urls: &[Url], errors: &mut Vec<SettingError>) -> u32 {
        let said = match self.get("db").map(|resolved| &resolved.value) {
            Some(Parsed::Int(db)) => u32::try_from(*db).unwrap_or(u32::MAX),
            _ => 0,
        };
        let in_url = urls.iter().find_map(|url| url.db);
        if self.is_said("db") && in_url.is_some_and(|db| db != said) {
            let help = "say it once";
            errors.push(self.error("db", "differs from the database in the URL", help));
        }
        let db = in_url.unwrap_or(said);
        if topology == Topology::Cluster && db != 0 {
            let key = if in_url.is_some() { "url" } else { "db" };
            let message = format!("asks for database {db}, but a cluster has only 0");
            let help = "leave it out; store.redis.key_prefix keeps keys apart";
            errors.push(self.error(key, &message, help));
        }
        db
    }

    fn tls(&self, urls: &[Url], errors: &mut Vec<SettingError>) -> Option<Tls> {
        let asked = urls.iter().any(|url| url.tls == Some(true));
        if asked && urls.iter().any(|url| url.tls != Some(true)) {
            let help = "write rediss:// for all or for none";
            errors.push(self.error("url", "asks for TLS to some servers only", help));
        }
        let enabled = self.is_on("tls.enabled");
        if asked && !enabled && self.is_said("tls.enabled") {
            let help = "write redis:// in the URL, or leave tls.enabled out";
            errors.push(self.error("tls.enabled", "is false, but the URL is rediss://", help));
        }
        // A URL of redis:// may stand beside it: so people write it for the reference, which encrypts.
        if enabled && urls.iter().any(|url| matches!(url.server, Server::Unix(_))) {
            let help = "leave it out: a Unix socket does not leave the machine";
            errors.push(self.error("tls.enabled", "is true on a Unix socket", help));
        }
        // As in the reference, one set of files serves both stores, unless the second has its own.
        let main = Group { all: self.all, name: "store.redis" };
        let file = |key| self.some(key).or_else(|| main.some(key)).map(PathBuf::from);
        let client = match (file("tls.cert"), file("tls.key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (cert, _) => {
                let key = if cert.is_some() { "tls.cert" } else { "tls.key" };
                let of = if self.text(key).is_empty() { &main } else { self };
                let help = "set both tls.cert and tls.key, or neither";
                let error = of.error(key, "is set without its other half", help);
                if !errors.contains(&error) {
                    errors.push(error);
                }
                None
            }
        };
        let skip = "tls.skip_hostname_verification";
        (asked || enabled).then(|| Tls {
            ca: file("tls.ca"),
            client,
            skip_hostname_verification: match self.is_said(skip) {
                true => self.is_on(skip),
                false => main.is_on(skip),
            },
        })
    }
}
