//! What must not be shown: in logs, errors and `--print-settings`.

/// What stands where a secret was.
const MASK: &str = "***";

/// Schemes of URLs. Text before another `://` may be a part of a password.
const SCHEMES: [&str; 6] = ["redis", "rediss", "tcp", "unix", "http", "https"];

/// The text of a setting or variable, as it may be shown.
pub fn shown(name: &str, text: &str) -> String {
    let is_url = name.to_ascii_lowercase().ends_with("url");
    match text {
        "" => String::new(),
        _ if is_secret(name) => MASK.to_owned(),
        _ if is_url || text.contains("://") => without_login(text),
        _ => text.to_owned(),
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

/// A URL, or several, without logins and options. Of several, those before the last login are not
/// shown: a password may hold whatever else ends a URL.
fn without_login(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), text),
    };
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    // The @ may belong to an option.
    if login.is_some_and(|login| login.contains(['?', '#'])) {
        return scheme + MASK;
    }
    let place = match place.find(['?', '#']) {
        Some(at) => format!("{}{MASK}", &place[..=at]),
        None => place.to_owned(),
    };
    match login {
        None => scheme + &place,
        // With the user's name, which alone may be a token.
        Some(_) => format!("{scheme}{MASK}@{place}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert_eq!(shown("url", "redis://ann:pw@host:6379/0"), "redis://***@host:6379/0");
        assert_eq!(shown("url", "redis://:pw@a,redis://:p@b"), "redis://***@b");
        assert_eq!(shown("url", "redis://ann:a,b/c@d@host"), "redis://***@host");
        assert_eq!(shown("url", "ann:pw@host:6379"), "***@host:6379");
        assert_eq!(shown("url", "redis://host:6379"), "redis://host:6379");
        assert_eq!(shown("grpc.address", "[::]:8081"), "[::]:8081");
        assert_eq!(shown("rules.paths", "/a?b@c"), "/a?b@c");
    }

    #[test]
    fn options_and_users_without_passwords_are_masked() {
        assert_eq!(shown("REDIS_URL", "redis://h:1?password=S"), "redis://h:1?***");
        assert_eq!(shown("REDIS_URL", "h:1?password=S"), "h:1?***");
        assert_eq!(shown("REDIS_URL", "redis://h:1?password=S@x"), "redis://***");
        assert_eq!(shown("REDIS_URL", "redis://S@h"), "redis://***@h");
        assert_eq!(shown("REDIS_URL", "redis://S:@h"), "redis://***@h");
        assert_eq!(shown("REDIS_URL", "mymaster,redis://S@h"), "***@h");
    }

    proptest! {
        #[test]
        fn no_password_is_shown(
            before in "[a@:/?#,%=&]{0,4}",
            after in "[a@:/?#,%=&]{0,4}",
            form in prop::sample::select(&[
                "redis://{}@h:1", "redis://:{}@h:1", "redis://ann:{}@h:1/0", "redis://{}:@h",
                "rediss://h:1,ann:{}@i:2", "redis://h:1,redis://{}@i:2", "{}@h:1", "ann:{}@h:1",
                "redis://h:1?password={}", "redis://h:1/0?a=b&password={}", "h:1?password={}",
                "redis://ann:{}@h:1?db=0", "redis://ann:{}@h:1,redis://ann:{}@i:2",
            ][..]),
        ) {
            let text = form.replace("{}", &format!("{before}hunter2{after}"));
            prop_assert!(!shown("REDIS_URL", &text).contains("hunter2"), "{text}");
        }
    }
}
