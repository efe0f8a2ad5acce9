//! How requests are decided, besides the rules.

/// How requests are decided, besides the rules.
#[derive(Clone, Debug)]
pub struct LimiterOptions {
    /// Every request passes; statuses are as without it.
    pub shadow_mode: bool,
    /// Every descriptor counts as a quota: a request is over its limit only if all of them are.
    pub quota_mode: bool,
    /// The fraction of what a limit can allow at once above which hits count as near it.
    pub near_limit_ratio: f32,
    /// The maximum number of descriptors in a request.
    pub max_descriptors: usize,
    /// Denials that are logged per second at most; 0: none.
    pub logged_denials: u32,
    /// The maximum number of unknown domains that are counted separately.
    pub max_series: usize,
    /// The prefix of keys in Redis, for the log and for what operators see.
    pub key_prefix: Box<str>,
}

impl Default for LimiterOptions {
    fn default() -> Self {
        LimiterOptions {
            shadow_mode: false,
            quota_mode: false,
            near_limit_ratio: 0.8,
            max_descriptors: 256,
            logged_denials: 0,
            max_series: 10_000,
            key_prefix: "weir:".into(),
        }
    }
}
