//! Declares the settings `rules`: where rules come from.

use std::path::PathBuf;
use std::time::Duration;

use super::tls::ClientFileSettings;
use crate::settings::format::{Bytes, Secret};
use crate::settings::group::{choices, group};
use weir_common::named_enum;

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RulesSource, name {
        Files = "files",
        Xds = "xds",
    }
}

choices!(RulesSource);

group! {
    /// Where rules come from.
    RulesSettings {
        /// Where rules come from: files, or a management server over xDS.
        source: RulesSource = "files";
        /// Rule files, or directories of them.
        paths: Vec<PathBuf> = "";
        /// Overlays, or directories with files named .overlay.yaml: patches of rules of any source.
        overlay: Vec<PathBuf> = "";
        /// Whether several files may define rules of one domain.
        merge_domains: bool = "false";
        /// Whether fixed windows of a month, also those of limits that clients send, are the months of the
        /// calendar in UTC, unless a rule has `align`. Otherwise a month is 30 days.
        calendar_months: bool = "false";
        // Some file systems, mostly network ones, send no notifications.
        /// How often to check rule files for changes without a notification; 0: never.
        poll: Duration = "30s";
        /// Whether to skip files and directories with names that start with a dot.
        ignore_dot_files: bool = "true";
        /// Over xDS: the directory with the lists that rules name by values_file. Empty: such rules are
        /// rejected.
        values_dir: Option<PathBuf> = "";
        /// The largest state of one key; a limit that may need more is rejected.
        max_log_bytes: Bytes<u64> = "16MiB";
        group runtime: RuntimeDirectorySettings;
        group xds: XdsSettings;
    }
}

group! {
    /// The reference's layout of directories.
    RuntimeDirectorySettings {
        /// The root of the reference's directory layout, which is used if rules.paths is empty.
        root: Option<PathBuf> = "";
        /// The directory below the root.
        subdirectory: String = "";
        /// With watch_root, a prefix of file names; otherwise the directory below the subdirectory.
        app_directory: String = "config";
        /// Whether to load the whole subdirectory, filtered by app_directory, or only app_directory.
        watch_root: bool = "true";
    }
}

group! {
    /// The management server.
    XdsSettings {
        /// The management server, as host:port.
        url: String = "localhost:18000";
        /// The node ID that weir sends.
        node_id: String = "default";
        /// The node metadata that weir sends: `key=value` each; parts without = are ignored.
        node_metadata: Vec<String> = "";
        /// Request headers: `name:value` each.
        headers: Vec<Secret> = "";
        // gRPC's own 4 MiB hold some 40 000 rules.
        /// The largest response that is accepted; 0: 4MiB.
        max_message: Bytes<usize> = "16MiB";
        /// After a failure: the wait before the first retry. Each further wait is twice as long.
        backoff_min: Duration = "1s";
        /// The longest wait before a retry.
        backoff_max: Duration = "60s";
        /// Whether each wait is shortened at random, by up to half.
        backoff_jitter: bool = "true";
        group tls: XdsTlsSettings;
    }
}

group! {
    /// TLS to the management server.
    XdsTlsSettings {
        flat files: ClientFileSettings;
        /// Whether to connect over TLS.
        enabled: bool = "false";
        /// The name that the server's certificate must have; empty: the host of the URL.
        server_name: String = "";
    }
}
