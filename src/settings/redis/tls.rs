//! TLS to Redis.

use super::url::Url;
use super::{Server, SettingError};
use weir_store::redis::{Endpoint, Tls};

impl Server<'_> {
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
