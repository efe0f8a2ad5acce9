//! `response`: what responses carry, and what changes the overall code.

use super::group;

group! {
    /// What responses carry, and what changes the overall code.
    ResponseSettings {
        /// Whether responses carry the three rate-limit headers.
        headers: bool = "false";
        /// Name of the header with the limit.
        limit_header: String = "RateLimit-Limit";
        /// Name of the header with the remaining hits.
        remaining_header: String = "RateLimit-Remaining";
        /// Name of the header with the seconds until the limit is back to its full allowance.
        reset_header: String = "RateLimit-Reset";
        /// Whether denied responses carry Retry-After.
        retry_after: bool = "false";
        /// Whether responses carry the structured fields RateLimit and RateLimit-Policy of
        /// draft-ietf-httpapi-ratelimit-headers-10.
        ratelimit_fields: bool = "false";
        /// Whether responses carry the request and the metadata of its rules as dynamic metadata.
        dynamic_metadata: bool = "false";
        /// Whether every request is allowed; statuses and metrics still report the real decisions.
        shadow_mode: bool = "false";
        /// Whether every rule counts as a quota: a request is over its limit only if all of its
        /// quotas are.
        quota_mode: bool = "false";
    }
}
