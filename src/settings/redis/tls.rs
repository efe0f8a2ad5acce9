//! TLS to Redis.

use std::sync::Arc;

use super::url::Url;
use super::{Server, SettingError};
use crate::settings::options::pem_file;
use crate::settings::table::RedisTlsSettings;
use weir_common::client_tls::{ClientCertificates, ClientFiles};
use weir_store::redis::{Endpoint, Tls};

impl Server<'_> {
    /// Returns how connections are encrypted; none if they are not. As in the reference, the files of the main
    /// store serve both stores.
    pub(super) fn tls(
        &self,
        shared: &RedisTlsSettings,
        urls: &[Url],
        errors: &mut Vec<SettingError>,
    ) -> Option<Tls> {
        let enabled = self.tls_enabled;
        let in_url = urls.iter().any(|url| url.tls == Some(true));
        if in_url && urls.iter().any(|url| url.tls != Some(true)) {
            let help = "write rediss:// for all or for none";
            errors.push(self.url.error("asks for TLS to some servers only", help));
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
        (in_url || **enabled).then(|| {
            let (ca, cert, key) =
                (pem_file(&shared.ca), pem_file(&shared.cert), pem_file(&shared.key));
            let certificates = Arc::new(ClientCertificates::new(ClientFiles { ca, cert, key }));
            Tls { certificates, skip_hostname_verification: *shared.skip_hostname_verification }
        })
    }
}
