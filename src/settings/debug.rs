//! Who may use the debug port, from the group `debug`.

use super::{SettingError, Settings};
use crate::http::operators::AccessOptions;

impl Settings {
    /// Returns who may use `/v1` of the debug port.
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
            errors.push(debug.allowed_hosts.error(&format!("has {bad:?}"), help));
        }
    }
}
