//! Masks secrets in what logs, errors and pages show: logins in URLs, and secrets given in place of a file's path.

use std::fmt;
use std::path::Path;

pub const MASK: &str = "***";

/// Schemes of URLs. Text before another `://` may be part of a password.
const SCHEMES: [&str; 6] = ["redis", "rediss", "tcp", "unix", "http", "https"];

/// A URL that is shown without its login and options.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Returns all of it, to connect with.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for SecretUrl {
    fn from(text: T) -> SecretUrl {
        SecretUrl(text.into())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_login(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&without_login(&self.0), f)
    }
}

/// Returns a URL, or several, without logins and options. Of several, those before the last login are
/// not shown: a password may contain whatever else ends a URL.
pub fn without_login(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), text),
    };
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    // The @ may be part of an option.
    if login.is_some_and(|login| login.contains(['?', '#'])) {
        return scheme + MASK;
    }
    let place = match place.find(['?', '#']) {
        Some(at) => format!("{}{MASK}", &place[..=at]),
        None => place.to_owned(),
    };
    match login {
        None => scheme + &place,
        // The user's name is masked too: it may be a token.
        Some(_) => format!("{scheme}{MASK}@{place}"),
    }
}

/// Returns a text of any kind without the login, if it is a URL, or an address with a login.
pub fn without_any_login(text: &str) -> String {
    let has_login = text.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'));
    if has_login || text.contains("://") { without_login(text) } else { text.to_owned() }
}

/// Returns a path as an error may show it. What is no file, and in none of the directories that exist, may be the
/// secret itself, given where the path of its file belongs, and is masked.
pub fn shown_path(path: &Path) -> String {
    // The root is above every text that starts with a slash.
    let is_directory = |above: &Path| above.parent().is_some() && above.is_dir();
    match path.exists() || path.ancestors().skip(1).any(is_directory) {
        true => path.display().to_string(),
        false => format!("{MASK} (not a file)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_kind_has_no_login() {
        for text in ["u:S@h", "http://u:S@h", "http://S@h", "ftp://u:S@h", "u:S@a@h:1", "u:a/S@h"] {
            assert!(!without_any_login(text).contains('S'), "{text}");
        }
        for text in ["user=ann@example.com", "10.0.0.1:80", "[::1]:80", "/a?b@c", "h"] {
            assert_eq!(without_any_login(text), text);
        }
    }

    #[test]
    fn a_login_is_never_shown() {
        for text in ["u:S@h:1", "http://u:S@h:1", "dns:///u:S@h:1", "xds://u:S@h", "S@h"] {
            let url = SecretUrl::from(text);
            assert!(!format!("{url} {url:?}").contains('S'), "{url}");
            assert_eq!(url.expose(), text);
        }
        assert_eq!(SecretUrl::from("http://h:1/").to_string(), "http://h:1/");
    }

    #[test]
    fn what_may_be_a_secret_is_masked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        std::fs::write(&file, "").unwrap();
        let missing = directory.path().join("b");
        for path in [&*file, &*missing, &missing.join("c"), "src/none".as_ref(), "src".as_ref()] {
            assert_eq!(shown_path(path), path.display().to_string());
        }
        let token = "c2VjcmV0";
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{token}/{token}\n");
        for text in [token, &format!("/{token}"), &format!("{token}/{token}"), &pem] {
            assert_eq!(shown_path(text.as_ref()), "*** (not a file)", "{text}");
        }
    }
}
