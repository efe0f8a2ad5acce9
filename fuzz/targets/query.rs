//! The query of the operators' API: never a panic; values are those that form_urlencoded reads, and an error
//! is short and says what to write.

#![no_main]

use http::Uri;
use libfuzzer_sys::fuzz_target;
use weir::http::operators::query::Query;

const NAMES: [&str; 4] = ["domain", "descriptor", "by", "force"];

/// The parameter that may be repeated.
const LIST: &str = "descriptor";

fuzz_target!(|text: &str| {
    let Ok(uri) = format!("/v1/state?{text}").parse::<Uri>() else { return };
    match Query::read_with_list(&uri, &NAMES, LIST) {
        Ok(query) => {
            let sent = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
            let sent: Vec<_> = sent.collect();
            for name in NAMES {
                let expected = sent.iter().filter(|(key, _)| key == name).map(|(_, value)| value);
                assert!(query.list(name).eq(expected), "{name}");
                assert!(name == LIST || query.list(name).count() < 2, "{name} is repeated");
                let _ = query.switch(name);
            }
            assert!(sent.iter().all(|(name, _)| NAMES.contains(&&**name)), "{sent:?}");
        }
        Err(error) => assert!(error.error.len() < 1_000 && !error.help.is_empty(), "{error:?}"),
    }
});
