//! TLS of a group.

use std::path::PathBuf;
use std::sync::Arc;

use super::url::Url;
use super::{Resolved, Server, SettingError};
use crate::settings::options::pem_file;
use weir_common::client_tls::{ClientCertificates, ClientFiles, PemFile};
use weir_store::redis::{Endpoint, Tls};

impl Server<'_> {
    /// Returns how connections are encrypted; none if they are not.
    pub(super) fn tls(
        &self,
        main: &Server<'_>,
        urls: &[Url],
        errors: &mut Vec<SettingError>,
    ) -> Option<Tls> {
        let enabled = self.tls.enabled;
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
        let (cert, key) = self.client_certificate(main, errors);
        let skip = self.tls.skip_hostname_verification;
        let skip = if skip.is_default() { main.tls.skip_hostname_verification } else { skip };
        (in_url || **enabled).then(|| {
            let ca = or_main(self.tls.ca, main.tls.ca);
            let files = ClientFiles { ca, cert, key };
            let certificates = Arc::new(ClientCertificates::new(files));
            Tls { certificates, skip_hostname_verification: **skip }
        })
    }

    /// Returns the files of the client certificate and its key. As in the reference, those of the
    /// main store serve both stores, unless the second has its own.
    fn client_certificate(
        &self,
        main: &Server<'_>,
        errors: &mut Vec<SettingError>,
    ) -> (Option<PemFile>, Option<PemFile>) {
        let cert = or_main(self.tls.cert, main.tls.cert);
        let key = or_main(self.tls.key, main.tls.key);
        let half = match (&cert, &key) {
            (Some(_), None) if self.tls.cert.is_some() => self.tls.cert,
            (Some(_), None) => main.tls.cert,
            (None, Some(_)) if self.tls.key.is_some() => self.tls.key,
            (None, Some(_)) => main.tls.key,
            _ => return (cert, key),
        };
        let help = "set both tls.cert and tls.key, or neither";
        let error = half.error("is set without its other half", help);
        // Both groups may have it from the main one.
        if !errors.contains(&error) {
            errors.push(error);
        }
        (None, None)
    }
}

fn or_main(own: &Resolved<Option<PathBuf>>, main: &Resolved<Option<PathBuf>>) -> Option<PemFile> {
    pem_file(own).or_else(|| pem_file(main))
}
