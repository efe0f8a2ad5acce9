//! Checks the settings of the listeners and converts them to options: TLS, and who may use the debug port.

use super::group::SettingGroup;
use super::reference::variables::variable_of;
use super::setting::{Resolved, SettingError};
use super::table::{Settings, TlsSettings};
use crate::http::operators::AccessOptions;
use crate::net::tls::TlsOptions;
use weir_common::secret::without_login;

impl Settings {
    pub fn tls_options(&self, listener: &'static str) -> Option<TlsOptions> {
        let (group, tls, protocol) = match listener {
            "grpc" => ("grpc.tls", &self.grpc.tls, "h2"),
            "http" => ("http.tls", &self.http.tls, "http/1.1"),
            "resp" => ("resp.tls", &self.resp.tls, ""),
            _ => return None,
        };
        // Errors were reported by `load`.
        let (Some(cert), Some(key)) = (&*tls.cert, &*tls.key) else { return None };
        tls.enabled.then(|| TlsOptions {
            group,
            listener,
            protocol,
            cert: cert.clone(),
            key: key.clone(),
            client_ca: tls.client_ca.value.clone(),
            client_sans: tls.client_sans.to_vec(),
        })
    }

    pub(super) fn check_tls(&mut self, errors: &mut Vec<SettingError>) {
        for tls in [&self.grpc.tls, &self.http.tls, &self.resp.tls] {
            match *tls.enabled {
                true => check(tls, errors),
                false => self.warnings.extend(unused(tls)),
            }
        }
    }

    pub fn access_options(&self) -> AccessOptions {
        let debug = &self.debug;
        AccessOptions {
            read_token_file: debug.read_token_file.value.clone(),
            write_token_file: debug.write_token_file.value.clone(),
            require_token: *debug.require_token,
            allowed_hosts: debug.allowed_hosts.to_vec(),
        }
    }

    pub(super) fn check_debug(&self, errors: &mut Vec<SettingError>) {
        let debug = &self.debug;
        if *debug.require_token
            && debug.read_token_file.is_none()
            && debug.write_token_file.is_none()
        {
            let message = "is true without debug.read_token_file and debug.write_token_file";
            let help = "name a file with a token in one of them, or nobody may use /v1";
            errors.push(debug.require_token.error(message, help));
        }
        // As in an IPv6 address, or `host:port`.
        let is_host = |host: &str| match host.contains(':') {
            true => host.parse::<std::net::Ipv6Addr>().is_ok(),
            false => !host.is_empty() && !host.contains(['/', '[', '@', '*']),
        };
        if let Some(bad) = debug.allowed_hosts.iter().find(|host| !is_host(host)) {
            let help = "write names or addresses without scheme, port and brackets, such as \
                        weir.example.com";
            let message = format!("has {:?}", without_login(bad));
            errors.push(debug.allowed_hosts.error(&message, help));
        }
    }
}

fn check(tls: &TlsSettings, errors: &mut Vec<SettingError>) {
    for (file, what) in [(&tls.cert, "certificate"), (&tls.key, "key of the certificate")] {
        if file.is_none() {
            let name = file.setting.name;
            let message = format!("is true without {name}");
            let help = format!("name a PEM file with the {what} in {}", names(file));
            errors.push(tls.enabled.error(&message, help));
        }
    }
    if !tls.client_sans.is_empty() && tls.client_ca.is_none() {
        let message = format!("is set without {}", tls.client_ca.setting.name);
        let help = format!(
            "name a PEM file with the CA of the clients in {}, or remove it",
            names(&tls.client_ca)
        );
        errors.push(tls.client_sans.error(&message, help));
    }
}

/// Returns the names of a setting, for an error message: its own, and the reference's.
fn names<T>(setting: &Resolved<T>) -> String {
    let name = setting.setting.name;
    let both = variable_of(name).map(|variable| format!("{name} ({variable})"));
    both.unwrap_or_else(|| name.to_owned())
}

/// Returns a warning if settings are set of a group that is not enabled.
fn unused(tls: &TlsSettings) -> Option<String> {
    let enabled = tls.enabled.setting.name;
    let mut entries = Vec::new();
    tls.list(&mut entries);
    let set =
        entries.iter().filter(|entry| entry.setting.name != enabled && !entry.text.is_empty());
    let set: Vec<_> = set.map(|entry| entry.origin).collect();
    let verb = if set.len() == 1 { "has" } else { "have" };
    (!set.is_empty()).then(|| format!("{} {verb} no effect: {enabled} is false", set.join(", ")))
}
