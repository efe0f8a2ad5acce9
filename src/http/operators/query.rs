//! Reads the query parameters of `/v1`. An unknown or repeated one is an error.

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use super::error::ApiError;
use weir_common::suggest::nearest;
use weir_common::truncate::truncated;

/// The longest text of a client that an error quotes, in bytes.
pub(super) const MAX_SHOWN_BYTES: usize = 100;

#[derive(Debug)]
pub struct Query(Vec<(&'static str, String)>);

/// Returns the names of the parameters, decoded, and their values as they were sent.
pub(super) fn parameters(uri: &Uri) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    let parts = uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty());
    parts.map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (percent_decode_str(name).decode_utf8_lossy(), value)
    })
}

impl Query {
    /// Reads parameters with these names, each at most once; others are an error.
    pub fn read(uri: &Uri, names: &[&'static str]) -> Result<Query, ApiError> {
        Query::read_with_list(uri, names, "")
    }

    /// As [`read`](Self::read), but the parameter `list` may be repeated.
    pub fn read_with_list(
        uri: &Uri,
        names: &[&'static str],
        list: &str,
    ) -> Result<Query, ApiError> {
        let mut values: Vec<(&'static str, String)> = Vec::new();
        for (sent, value) in parameters(uri) {
            let Some(name) = names.iter().find(|name| **name == sent) else {
                let help = match nearest(&sent, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if names.is_empty() => "this path has no parameters".to_owned(),
                    None => format!("the parameters are {}", names.join(", ")),
                };
                let error = format!("unknown parameter {:?}", truncated(sent, MAX_SHOWN_BYTES));
                return Err(ApiError::bad_request(error, help));
            };
            if *name != list && values.iter().any(|(known, _)| known == name) {
                let error = format!("the parameter `{name}` is repeated");
                return Err(ApiError::bad_request(error, "write it once"));
            }
            // As forms and `URLSearchParams` encode a space.
            let value = value.replace('+', "%20");
            let Ok(value) = percent_decode_str(&value).decode_utf8() else {
                let error = format!("the parameter `{name}` is not UTF-8");
                return Err(ApiError::bad_request(error, "percent-encode the bytes of UTF-8"));
            };
            values.push((name, value.into_owned()));
        }
        Ok(Query(values))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the values of a parameter that may be repeated.
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub fn required(&self, name: &str, help: &str) -> Result<&str, ApiError> {
        let missing = || ApiError::bad_request(format!("the parameter `{name}` is missing"), help);
        self.get(name).ok_or_else(missing)
    }

    /// Returns whether a switch is on; without a value, it is.
    pub fn switch(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("0" | "false") => Ok(false),
            Some("" | "1" | "true") => Ok(true),
            Some(other) => Err(invalid(name, other, "write 1 or 0")),
        }
    }
}

pub(super) fn invalid(name: &str, value: &str, help: impl Into<String>) -> ApiError {
    let error = format!("the parameter `{name}` is {:?}", truncated(value, MAX_SHOWN_BYTES));
    ApiError::bad_request(error, help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Query, ApiError> {
        let uri: Uri = format!("/v1/state?{query}").parse().unwrap();
        Query::read(&uri, &["domain", "descriptor", "force"])
    }

    #[test]
    fn values_are_decoded() {
        let query = read("domain=a+b&descriptor=q=a%2Bb,%C3%A4%20=%26&&force").unwrap();
        assert_eq!(query.get("domain"), Some("a b"));
        assert_eq!(query.required("descriptor", "").unwrap(), "q=a+b,ä =&");
        assert!(query.switch("force").unwrap());
        assert!(!read("force=0").unwrap().switch("force").unwrap());
        assert!(!read("").unwrap().switch("force").unwrap());
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |query: &str| read(query).unwrap_err();
        let unknown = error("domian=a");
        assert_eq!(
            (unknown.error.as_str(), unknown.help.as_str()),
            ("unknown parameter \"domian\"", "did you mean `domain`?")
        );
        assert_eq!(error("x=1").help, "the parameters are domain, descriptor, force");
        assert_eq!(error("domain=a&domain=b").error, "the parameter `domain` is repeated");
        assert_eq!(error("domain=%ff").error, "the parameter `domain` is not UTF-8");
        let long = error(&"x".repeat(5_000));
        assert!(long.error.len() < 200, "{long:?}");
        let uri: Uri = "/v1/explain?domain=d&descriptor=a&descriptor=b%2B".parse().unwrap();
        let list = Query::read_with_list(&uri, &["domain", "descriptor"], "descriptor").unwrap();
        assert_eq!(list.list("descriptor").collect::<Vec<_>>(), ["a", "b+"]);
        let query = read("force=maybe").unwrap();
        assert_eq!(query.switch("force").unwrap_err().help, "write 1 or 0");
        let missing = query.required("domain", "write one").unwrap_err();
        assert_eq!(missing.error, "the parameter `domain` is missing");
    }
}
