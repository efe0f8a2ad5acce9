//! What must not be shown: in logs, mistakes and `--print-settings`.

/// What stands where a secret was.
const MASK: &str = "***";

/// The text of a setting or variable, as it may be shown.
pub fn shown(name: &str, text: &str) -> String {
    let is_url = name.to_ascii_lowercase().ends_with("url");
    match text.rsplit_once('@') {
        _ if text.is_empty() => String::new(),
        _ if is_secret(name) => MASK.to_owned(),
        // A login whose scheme was forgotten.
        Some((_, place)) if is_url && !text.contains("://") => format!("{MASK}@{place}"),
        _ => without_password(text),
    }
}

/// Whether a setting or variable holds a secret, by the end of its name. A file that holds one
/// is none itself.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Headers carry tokens.
    ["auth", "password", "token", "headers"].iter().any(|word| {
        let rest = name.strip_suffix(word);
        // Of these one is a switch, and one a number.
        let is_none = ["response.headers", "grpc.max_headers"].contains(&name.as_str());
        rest.is_some_and(|rest| rest.ends_with(['_', '.'])) && !is_none
    })
}

/// The text without the password of each URL in it.
fn without_password(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str("://");
        // The last @ there is: a password may hold whatever else ends a host.
        let kept = match part.rfind('@') {
            Some(at) => {
                let user = part[..at].split(':').next().unwrap_or_default();
                shown.push_str(&format!("{user}:{MASK}"));
                &part[at..]
            }
            None => part,
        };
        shown.push_str(kept);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_by_their_names() {
        assert_eq!(shown("REDIS_AUTH", "user:hunter2"), "***");
        assert_eq!(shown("REDIS_AUTH", ""), "");
        assert_eq!(shown("store.redis.password", "hunter2"), "***");
        assert_eq!(shown("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:b:c"), "***");
        assert_eq!(shown("store.redis.password_file", "/run/pw"), "/run/pw");
        assert_eq!(shown("response.headers", "true"), "true");
        assert_eq!(shown("grpc.max_headers", "16KiB"), "16KiB");
    }

    #[test]
    fn passwords_in_urls_are_masked() {
        assert_eq!(shown("url", "redis://ann:pw@host:6379/0"), "redis://ann:***@host:6379/0");
        assert_eq!(shown("url", "redis://:pw@a,redis://:p@b"), "redis://:***@a,redis://:***@b");
        assert_eq!(shown("url", "redis://ann:a,b/c@d@host"), "redis://ann:***@host");
        assert_eq!(shown("url", "ann:pw@host:6379"), "***@host:6379");
        assert_eq!(shown("url", "redis://host:6379"), "redis://host:6379");
        assert_eq!(shown("grpc.address", "[::]:8081"), "[::]:8081");
    }
}
