//! The servers that the URL of a group names.

use super::url::Url;
use super::{Server, SettingError, TopologyKind};
use crate::settings::secret;
use weir_store::redis::Endpoint;

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
}
