//! The options of TLS, from the groups `grpc.tls`, `http.tls` and `resp.tls`.

use std::path::PathBuf;

use super::setting::Resolved;
use super::table::SettingGroup;
use super::{SettingError, Settings};
use crate::tls::Options;

/// The settings that all groups have, of one of them.
#[derive(Clone, Copy, Debug)]
struct TlsGroup<'a> {
    name: &'static str,
    listener: &'static str,
    /// The protocol in ALPN.
    protocol: &'static str,
    enabled: &'a Resolved<bool>,
    cert: &'a Resolved<Option<PathBuf>>,
    key: &'a Resolved<Option<PathBuf>>,
    client_ca: &'a Resolved<Option<PathBuf>>,
    client_sans: &'a Resolved<Vec<String>>,
}

/// Borrows the settings of one of the groups.
macro_rules! tls_group {
    ($settings:expr, $name:literal, $listener:literal, $protocol:literal) => {
        TlsGroup {
            name: $name,
            listener: $listener,
            protocol: $protocol,
            enabled: &$settings.enabled,
            cert: &$settings.cert,
            key: &$settings.key,
            client_ca: &$settings.client_ca,
            client_sans: &$settings.client_sans,
        }
    };
}

impl Settings {
    fn tls_groups(&self) -> [TlsGroup<'_>; 3] {
        [
            tls_group!(self.grpc.tls, "grpc.tls", "grpc", "h2"),
            tls_group!(self.http.tls, "http.tls", "http", "http/1.1"),
            tls_group!(self.resp.tls, "resp.tls", "resp", ""),
        ]
    }

    /// Returns the TLS of a listener; none if it has none.
    pub fn tls_options(&self, listener: &str) -> Option<Options> {
        self.tls_groups().into_iter().find(|group| group.listener == listener)?.options()
    }

    /// Checks all groups. Warns of what has no effect.
    pub(super) fn check_tls(&mut self, errors: &mut Vec<SettingError>) {
        for group in self.tls_groups() {
            group.check(errors);
        }
        let warnings = [
            unused(*self.grpc.tls.enabled, &self.grpc.tls, "grpc.tls.enabled"),
            unused(*self.http.tls.enabled, &self.http.tls, "http.tls.enabled"),
            unused(*self.resp.tls.enabled, &self.resp.tls, "resp.tls.enabled"),
        ];
        self.warnings.extend(warnings.into_iter().flatten());
    }
}

impl TlsGroup<'_> {
    fn check(&self, errors: &mut Vec<SettingError>) {
        if !**self.enabled {
            return;
        }
        for (file, what) in [(self.cert, "certificate"), (self.key, "key of the certificate")] {
            if file.is_none() {
                let name = file.setting.name;
                let message = format!("is true without {name}");
                let help = format!("name a PEM file with the {what} in {}", names(file));
                errors.push(self.enabled.error(&message, help));
            }
        }
        if !self.client_sans.is_empty() && self.client_ca.is_none() {
            let message = format!("is set without {}", self.client_ca.setting.name);
            let help = format!(
                "name a PEM file with the CA of the clients in {}, or remove it",
                names(self.client_ca)
            );
            errors.push(self.client_sans.error(&message, help));
        }
    }

    fn options(&self) -> Option<Options> {
        // Its errors were reported by `load`.
        let (Some(cert), Some(key)) = (&**self.cert, &**self.key) else { return None };
        (**self.enabled).then(|| Options {
            group: self.name,
            listener: self.listener,
            protocol: self.protocol,
            cert: cert.clone(),
            key: key.clone(),
            client_ca: self.client_ca.value.clone(),
            client_sans: self.client_sans.to_vec(),
        })
    }
}

/// Returns the names of a setting, for an error message: its own, and the reference's.
fn names<T>(setting: &Resolved<T>) -> String {
    match setting.setting.reference {
        [variable] => format!("{} ({variable})", setting.setting.name),
        _ => setting.setting.name.to_owned(),
    }
}

/// Returns a warning if settings of a group are set and the group is not enabled.
fn unused(is_enabled: bool, group: &impl SettingGroup, enabled: &str) -> Option<String> {
    let mut entries = Vec::new();
    group.list(&mut entries);
    let set: Vec<_> = entries
        .iter()
        .filter(|entry| entry.setting.name != enabled && !entry.text.is_empty())
        .map(|entry| entry.origin)
        .collect();
    if is_enabled || set.is_empty() {
        return None;
    }
    let verb = if set.len() == 1 { "has" } else { "have" };
    Some(format!("{} {verb} no effect: {enabled} is false", set.join(", ")))
}
