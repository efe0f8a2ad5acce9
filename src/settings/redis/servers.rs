//! The servers that the URL of a group names, and TLS to them.

use super::Server;
use super::url::Url;
use crate::settings::secret;
use crate::settings::setting::SettingError;
use crate::settings::table::TopologyKind;
use weir_redis::{Endpoint, Tls};

impl Server<'_> {
    /// Reads the URLs, and checks that they are in accord with each other and with the topology.
    pub(super) fn urls(&self, errors: &mut Vec<SettingError>) -> Vec<Url> {
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
    pub(super) fn tls(&self, urls: &[Url], errors: &mut Vec<SettingError>) -> Option<Tls> {
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
}
