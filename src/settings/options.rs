//! Converts settings to the options of other modules, which do not know settings. `app` and `cli` use them.

mod cpus;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::group::SettingGroup;
use super::table::{ResetFormat, RulesSource, Settings, StoreKind};
use super::{redis, reference};
use crate::http;
use crate::resp;
use crate::rls::grpc;
use crate::rls::service;
use crate::rls::service::{Permissions, Protocol};
use crate::rule_sources::xds;
use crate::trace::Sampler;
use weir_api::headers::{HeaderNames, HeaderOptions};
use weir_common::clock::Clock;
use weir_quotas::QuotaOptions;
use weir_rules::Lists;
use weir_rules::source::Selection;

/// Bytes of the largest xDS response if the setting is 0, as in gRPC.
const DEFAULT_MAX_XDS_MESSAGE_BYTES: usize = 4 << 20;

/// The maximum number of threads if the setting is 0: each has a connection to Redis, and 16 threads serve
/// millions of decisions per second.
const MAX_AUTO_THREADS: usize = 16;

/// The timeout of a grant. No request waits for it.
const QUOTA_STORE_TIMEOUT: Duration = Duration::from_millis(200);

/// Keys in each of the lists of top keys, on each thread.
const TOP_ENTRIES: usize = 1_024;

/// Returns a timeout for which 0 means unlimited.
fn timeout(setting: Duration) -> Duration {
    if setting.is_zero() { Duration::MAX } else { setting }
}

impl Settings {
    pub fn rule_options(&self) -> weir_rules::RuleOptions {
        weir_rules::RuleOptions {
            merge_domains: *self.rules.merge_domains,
            max_log_bytes: *self.rules.max_log_bytes,
            max_series: *self.metrics.max_series,
            near_limit_ratio: Some(*self.metrics.near_limit_ratio),
            calendar_months: *self.rules.calendar_months,
            replace_dots: *self.metrics.replace_dots,
            lists: match *self.rules.source {
                RulesSource::Files => Lists::BesideRules,
                RulesSource::Xds => Lists::InDirectory(self.rules.values_dir.clone()),
            },
            ..weir_rules::RuleOptions::default()
        }
    }

    /// Returns the rule files to load; none if no setting names any.
    pub fn rule_files(&self) -> Option<Selection> {
        let paths = &*self.rules.paths;
        let (roots, prefix) = match paths.is_empty() {
            false => (paths.clone(), None),
            true => self.runtime_directories()?,
        };
        Some(Selection {
            roots,
            prefix,
            // The reference reads every file, whatever its name.
            yaml_only: !paths.is_empty(),
            ignore_dot_files: *self.rules.ignore_dot_files,
        })
    }

    /// Returns the overlay files to load; none if no setting names any.
    pub fn overlay_files(&self) -> Option<Selection> {
        let roots = self.rules.overlay.to_vec();
        (!roots.is_empty()).then(|| Selection {
            ignore_dot_files: *self.rules.ignore_dot_files,
            ..Selection::of_roots(roots)
        })
    }

    /// Returns the settings that ask for the reference's directories, each with its origin. A file that only repeats the
    /// defaults does not ask for them.
    pub fn runtime_origins(&self) -> Vec<String> {
        let mut entries = Vec::new();
        self.rules.runtime.list(&mut entries);
        entries.retain(|entry| {
            entry.text != entry.setting.default || entry.origin.starts_with("RUNTIME_")
        });
        let shown =
            entries.iter().map(|entry| format!("{} ({})", entry.setting.name, entry.origin));
        shown.collect()
    }

    /// Returns the reference's directories and prefix of file names, if they are asked for.
    fn runtime_directories(&self) -> Option<(Vec<PathBuf>, Option<String>)> {
        let runtime = &self.rules.runtime;
        if self.runtime_origins().is_empty() {
            return None;
        }
        let root = runtime.root.clone();
        let root = root.unwrap_or_else(|| reference::DEFAULT_RUNTIME_ROOT.into());
        // Joining a path with a leading slash would replace the root.
        let app_directory = runtime.app_directory.trim_start_matches('/');
        let directory = root.join(runtime.subdirectory.trim_start_matches('/'));
        Some(match *runtime.watch_root {
            true => (vec![directory], Some(format!("{app_directory}."))),
            false => (vec![directory.join(app_directory)], None),
        })
    }

    pub fn xds_options(&self) -> Option<xds::XdsOptions> {
        let xds = &self.rules.xds;
        self.is_xds().then(|| xds::XdsOptions {
            url: xds.url.to_string().into(),
            node_id: xds.node_id.to_string(),
            node_metadata: xds.node_metadata.to_vec(),
            headers: xds.headers.to_vec(),
            max_message: match *xds.max_message {
                0 => DEFAULT_MAX_XDS_MESSAGE_BYTES,
                bytes => bytes,
            },
            backoff_min: *xds.backoff_min,
            backoff_max: *xds.backoff_max,
            backoff_jitter: *xds.backoff_jitter,
            tls: xds::XdsTls {
                enabled: *xds.tls.enabled,
                certificates: xds.tls.files.certificates(),
                server_name: xds.tls.server_name.to_string(),
            },
        })
    }

    pub fn client_timeout(&self) -> Duration {
        timeout(*self.clients.timeout)
    }

    pub fn grpc_limits(&self) -> grpc::Limits {
        let grpc = &self.grpc;
        grpc::Limits {
            max_message: *grpc.max_message,
            max_streams: *grpc.max_streams,
            max_buffered: *self.clients.max_buffered,
            timeout: self.client_timeout(),
            max_age: timeout(*grpc.max_connection_age),
            max_age_grace: timeout(*grpc.max_connection_age_grace),
        }
    }

    pub fn sampler(&self) -> Sampler {
        let sampling = self.tracing.enabled.then(|| f64::from(*self.tracing.sampling));
        sampling.map(Sampler::new).unwrap_or_default()
    }

    /// Returns how quotas are divided; none if they are off.
    pub fn quota_options(&self) -> Option<QuotaOptions> {
        let (rlqs, store) = (&self.rlqs, &self.store);
        rlqs.enabled.then(|| QuotaOptions {
            unsupported: *rlqs.unsupported,
            fallback: *rlqs.fallback,
            replicas: *store.replicas,
            store_timeout: QUOTA_STORE_TIMEOUT,
            on_failure: *store.on_failure,
            max_streams: *rlqs.max_streams,
            max_stream_buckets: *rlqs.max_stream_buckets,
            max_buckets: *rlqs.max_buckets,
        })
    }

    /// Returns the limits of either HTTP listener.
    pub fn http_limits(&self) -> http::Limits {
        http::Limits {
            max_connections: *self.http.max_connections,
            timeout: self.client_timeout(),
            max_body: *self.grpc.max_message,
            max_buffered: *self.clients.max_buffered,
        }
    }

    pub fn resp_limits(&self) -> resp::Limits {
        resp::Limits {
            timeout: self.client_timeout(),
            max_request: resp::MAX_REQUEST_BYTES,
            // The largest request has room, whatever the setting.
            max_buffered: (*self.clients.max_buffered).max(resp::MIN_BUFFERED_BYTES),
        }
    }

    pub fn service_options(
        &self,
        protocol: Protocol,
        clock: Arc<dyn Clock>,
    ) -> service::ResponseOptions {
        let response = &self.response;
        let (allow_overrides, allow_negative_hits) = match protocol {
            Protocol::Grpc => (*self.grpc.allow_overrides, *self.grpc.allow_negative_hits),
            Protocol::Http => (*self.http.allow_overrides, *self.http.allow_negative_hits),
            // Redis clients cannot send limits.
            Protocol::Resp => (true, *self.resp.allow_negative_hits),
        };
        service::ResponseOptions {
            headers: HeaderOptions {
                names: response.headers.then(|| HeaderNames {
                    limit: response.limit_header.to_string(),
                    remaining: response.remaining_header.to_string(),
                    reset: response.reset_header.to_string(),
                }),
                reset_clock: (*response.reset == ResetFormat::Unix).then_some(clock),
                retry_after: *response.retry_after,
                ratelimit_fields: *response.ratelimit_fields,
            },
            dynamic_metadata: *response.dynamic_metadata,
            store_timeout: *self.store.budget,
            permissions: Permissions { protocol, allow_overrides, allow_negative_hits },
        }
    }

    pub fn limiter_options(&self) -> weir_limiter::LimiterOptions {
        weir_limiter::LimiterOptions {
            shadow_mode: *self.response.shadow_mode,
            quota_mode: *self.response.quota_mode,
            near_limit_ratio: *self.metrics.near_limit_ratio,
            max_descriptors: *self.grpc.max_descriptors,
            logged_denials: *self.log.denials,
            max_series: *self.metrics.max_series,
            key_prefix: self.store.redis.key_prefix.as_str().into(),
        }
    }

    pub fn top_options(&self) -> weir_top::TopOptions {
        let redact = self.top.redact.to_vec();
        // Besides those of gRPC: the thread of /json, and with Redis the main thread.
        let threads = self.threads() + 2;
        let share = *self.top.share;
        weir_top::TopOptions { entries: TOP_ENTRIES, redact, threads, share }
    }

    /// Returns how controls are kept and shared. `is_shared`: the store has a table of all replicas.
    pub fn control_options(&self, is_shared: bool) -> weir_controls::ControlsOptions {
        weir_controls::ControlsOptions {
            file: self.controls.file.clone(),
            is_shared,
            ..weir_controls::ControlsOptions::default()
        }
    }

    /// Returns how to count in Redis, and how to count limits per second if they have a Redis of
    /// their own.
    pub fn redis_options(
        &self,
    ) -> Option<(weir_redis::RedisOptions, Option<weir_redis::RedisOptions>)> {
        // Its errors were reported by `load`.
        (*self.store.kind == StoreKind::Redis).then(|| redis::read(self, &mut Vec::new()))
    }

    pub fn disk_options(&self) -> Option<weir_store::disk::DiskOptions> {
        let (disk, max_keys) = (&self.store.disk, *self.store.memory.max_keys);
        let path = disk.path.clone().filter(|_| *self.store.kind == StoreKind::Disk)?;
        Some(weir_store::disk::DiskOptions { path, sync: *disk.sync, max_keys })
    }

    /// Whether rules come from a management server.
    pub fn is_xds(&self) -> bool {
        *self.rules.source == RulesSource::Xds
    }

    /// Whether health reports not serving until rules are loaded.
    pub fn requires_rules(&self) -> bool {
        let health = &self.health;
        *health.require_rules && !(*health.force_start && health.require_rules.is_default())
    }

    /// Returns the number of threads that serve gRPC.
    pub fn threads(&self) -> usize {
        match *self.runtime.threads {
            0 => cpus::usable().min(MAX_AUTO_THREADS),
            threads => threads,
        }
    }
}
