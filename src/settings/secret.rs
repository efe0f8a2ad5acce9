//! Masks secrets in logs, errors and `--print-settings`.

use weir_common::secret::{MASK, shown_path, without_any_login, without_login};

/// Returns the text of a setting that holds no secret itself, or of a part of one: URLs and addresses lose
/// their logins and options, metadata its values. A secret in place of the path of its file is masked.
pub fn shown(name: &str, text: &str) -> String {
    let name = name.to_ascii_lowercase();
    let is_any = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    match text {
        "" => String::new(),
        _ if is_any(&["node_metadata"]) => without_values(text),
        _ if is_any(&["_file", "key"]) => shown_path(text.as_ref()),
        _ if is_any(&["url", "endpoint", "address"]) => without_login(text),
        _ => without_any_login(text),
    }
}

/// Returns `name=value` pairs without their values. What is no pair may be the rest of a value.
fn without_values(text: &str) -> String {
    let shown = |pair: &str| match pair.split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None => MASK.to_owned(),
    };
    text.split(',').map(shown).collect::<Vec<_>>().join(",")
}

/// Returns the text of a variable. One that holds a secret, by the end of its name, is masked: headers carry tokens; the
/// path of a file is no secret.
pub fn shown_variable(name: &str, text: &str) -> String {
    let ends = ["_AUTH", "_PASSWORD", "_TOKEN", "_HEADERS"];
    if ends.iter().any(|end| name.ends_with(end)) { masked(text) } else { shown(name, text) }
}

pub fn masked(text: &str) -> String {
    if text.is_empty() { String::new() } else { MASK.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::format::FormatKind;
    use crate::settings::table::{SETTINGS, find};

    #[test]
    fn secrets_are_masked_by_their_names() {
        assert_eq!(shown_variable("REDIS_AUTH", "user:hunter2"), "***");
        assert_eq!(shown_variable("REDIS_AUTH", ""), "");
        let headers = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";
        assert_eq!(shown_variable(headers, "a:b:c"), "***");
        assert_eq!(shown_variable("GRPC_PORT", "x"), "x");
    }

    #[test]
    fn secrets_are_masked_by_their_format() {
        let masked = |name: &str, text: &str| find(name).unwrap().masked(text);
        assert_eq!(masked("store.redis.password", "hunter2"), "***");
        assert_eq!(masked("store.redis.password", ""), "");
        assert_eq!(masked("rules.xds.headers", "a:b"), "***");
        assert_eq!(masked("store.redis.password_file", "/dev/null"), "/dev/null");
        assert_eq!(masked("debug.read_token_file", "hunter2"), "*** (not a file)");
        assert_eq!(shown_variable("GRPC_SERVER_TLS_KEY", "hunter2"), "*** (not a file)");
        assert_eq!(masked("response.headers", "true"), "true");
        assert_eq!(masked("grpc.max_message", "16KiB"), "16KiB");
        for setting in SETTINGS.iter() {
            let is_secret = setting.name.ends_with(".password") || setting.name.ends_with("token");
            let is_switch = matches!(setting.kind, FormatKind::Bool);
            assert!(!is_secret || is_switch || setting.is_secret, "{}", setting.name);
        }
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

    #[test]
    fn no_setting_or_variable_that_is_a_url_shows_a_login() {
        let is_url = |name: &str| {
            let name = name.to_ascii_lowercase();
            ["url", "endpoint", "address"].iter().any(|end| name.ends_with(end))
        };
        let forms =
            ["u:S3CRET@h:1", "http://u:S3CRET@h", "xds://u:S3CRET@h:1", "dns:///S3CRET@h:1"];
        let settings = SETTINGS.iter().filter(|setting| is_url(setting.name));
        let variables =
            crate::settings::reference::variables::VARIABLES.iter().map(|variable| variable.name);
        let variables: Vec<_> = variables.filter(|name| is_url(name)).collect();
        let (mut shown, mut of_settings) = (Vec::new(), 0);
        for text in forms {
            shown.extend(settings.clone().map(|setting| setting.masked(text)));
            of_settings = shown.len();
            shown.extend(variables.iter().map(|name| shown_variable(name, text)));
            // A URL in any other setting is one, too, and so is what has a login.
            for text in [format!("https://{text}"), format!("u:{text}")] {
                shown.extend(SETTINGS.iter().map(|setting| setting.masked(&text)));
            }
        }
        assert!(of_settings > 5 && variables.len() > 3, "{of_settings} {variables:?}");
        for shown in shown {
            assert!(!shown.contains("S3CRET"), "{shown}");
        }
    }

    #[test]
    fn values_of_metadata_are_masked() {
        let masked = find("rules.xds.node_metadata").unwrap().masked("team=a,token=b,c=d=e,f");
        assert_eq!(masked, "team=***,token=***,c=***,***");
        let variable = "CONFIG_GRPC_XDS_NODE_METADATA";
        assert_eq!(shown_variable(variable, "token=S"), "token=***");
        assert_eq!(shown_variable(variable, ""), "");
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
