//! Parses and writes rate-limit descriptors as text, `key=value,key2=value2`, for command lines, files and URLs.

use std::str::FromStr;

use crate::entry::Entry;
use crate::value;

/// The entries of a descriptor, parsed from an argument of a command or from a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorArg(pub Vec<(String, String)>);

impl DescriptorArg {
    pub fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(key, value)| (&**key, &**value)).collect()
    }
}

impl FromStr for DescriptorArg {
    type Err = String;

    /// Parses entries with commas between them. The first `=` of an entry ends its key; what follows is the
    /// value, which may be empty. `\,` is a comma, `\\` a backslash, and `\xff` a byte of a value that is not UTF-8.
    fn from_str(text: &str) -> Result<DescriptorArg, String> {
        let entry = |(key, value): (String, Option<String>)| match value {
            Some(value) => Ok((key, value)),
            None => {
                Err(format!("`{key}` has no `=`: write {key}=VALUE, or {key}= for the empty value"))
            }
        };
        let entries = parse(text)?.into_iter().map(entry);
        Ok(DescriptorArg(entries.collect::<Result<_, _>>()?))
    }
}

/// The entries of a descriptor as a rule file has it, parsed from an argument: the value is optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDescriptorArg(pub Vec<(String, Option<String>)>);

impl FromStr for RuleDescriptorArg {
    type Err = String;

    /// Parses entries as those of a [`DescriptorArg`]. An entry without `=`, or with nothing after it, has no value.
    fn from_str(text: &str) -> Result<RuleDescriptorArg, String> {
        let entry =
            |(key, value): (String, Option<String>)| (key, value.filter(|value| !value.is_empty()));
        Ok(RuleDescriptorArg(parse(text)?.into_iter().map(entry).collect()))
    }
}

/// Parses entries, each with the value if it has a `=`.
fn parse(text: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let mut entries = Vec::new();
    let (mut key, mut part) = (None, Vec::new());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '\\' => {
                let behind = chars.as_str();
                let comma = behind.strip_prefix(',').map(|behind| (b',', behind));
                let Some((byte, behind)) = comma.or_else(|| value::read_escape(behind)) else {
                    return Err(match chars.next() {
                        Some(other) => format!(
                            "`\\{other}` is no escape: write `\\\\` for a backslash, `\\,` for a comma, or `\\xff` \
                             for a byte"
                        ),
                        None => "the last backslash escapes nothing: write `\\\\`".to_owned(),
                    });
                };
                part.push(byte);
                chars = behind.chars();
            }
            '=' if key.is_none() => key = Some(std::mem::take(&mut part)),
            ',' => entries.push(entry(key.take(), std::mem::take(&mut part))?),
            other => part.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    entries.push(entry(key, part)?);
    Ok(entries)
}

/// Returns a descriptor as an argument has it.
pub fn descriptor_text(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    write_descriptor(entries, &mut text);
    text
}

/// Appends a descriptor as an argument has it.
pub fn write_descriptor(entries: &[Entry<'_>], out: &mut String) {
    for (i, (key, value)) in entries.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        write_escaped(key, out);
        out.push('=');
        write_escaped(value, out);
    }
}

fn write_escaped(text: &str, out: &mut String) {
    let shown = value::shown(text);
    // What is shown with escapes has its backslashes escaped.
    let escaped: &[char] = if value::is_encoded(text) { &[','] } else { &[',', '\\'] };
    for part in shown.split_inclusive(escaped) {
        let (before, last) = part.split_at(part.len() - usize::from(part.ends_with(escaped)));
        out.push_str(before);
        if !last.is_empty() {
            out.push('\\');
        }
        out.push_str(last);
    }
}

fn entry(key: Option<Vec<u8>>, part: Vec<u8>) -> Result<(String, Option<String>), String> {
    let (key, value) = match key {
        Some(key) => (key, Some(value::encode(&part).into_owned())),
        None => (part, None),
    };
    let key =
        String::from_utf8(key).map_err(|_| "a key is not UTF-8: only values may have `\\xff`")?;
    if key.is_empty() {
        return Err("an entry has no key: write key=value, with commas between entries".to_owned());
    }
    Ok((key, value))
}

pub fn parse_request(args: &[String]) -> Result<(&str, Vec<DescriptorArg>), String> {
    let (domain, descriptors) = args.split_first().ok_or("no domain")?;
    // The service refuses it too.
    if domain.is_empty() {
        return Err("the domain is empty: write -d DOMAIN key=value".to_owned());
    }
    let parsed = descriptors.iter().map(|text| parse_argument(text));
    Ok((domain, parsed.collect::<Result<_, _>>()?))
}

/// Reads a domain, a descriptor, or both, which may be apart. Without a domain it is empty. The descriptor `*` is none:
/// the whole domain.
pub fn parse_match<'a>(
    args: &'a [String],
    apart: Option<&str>,
) -> Result<(&'a str, DescriptorArg), String> {
    let domain = match args {
        [] if apart.is_none() => return Err("there is no descriptor: write key=value".to_owned()),
        [] => "",
        [domain, ..] => parse_request(std::slice::from_ref(domain))?.0,
    };
    let others = args.iter().skip(1).map(String::as_str);
    match others.chain(apart).collect::<Vec<_>>()[..] {
        [] | ["*"] => Ok((domain, DescriptorArg::default())),
        [text] => Ok((domain, parse_argument(text)?)),
        _ => {
            Err("there are two descriptors: write one, with commas between its entries".to_owned())
        }
    }
}

fn parse_argument(text: &str) -> Result<DescriptorArg, String> {
    text.parse().map_err(|error| format!("invalid descriptor '{text}': {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String)>, String> {
        text.parse::<DescriptorArg>().map(|descriptor| descriptor.0)
    }

    fn written(entries: &[(String, String)]) -> String {
        let entries: Vec<Entry<'_>> =
            entries.iter().map(|(key, value)| (&**key, &**value)).collect();
        descriptor_text(&entries)
    }

    #[test]
    fn entries_have_keys_and_values() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        for (text, expected) in [
            ("path=/a", vec![pair("path", "/a")]),
            ("a=1,b=2", vec![pair("a", "1"), pair("b", "2")]),
            ("query=a=b", vec![pair("query", "a=b")]),
            (r"a=1\,2,b=\\", vec![pair("a", "1,2"), pair("b", r"\")]),
            (r"a=\xff,b=\\xff", vec![pair("a", &value::encode(b"\xff")), pair("b", r"\xff")]),
            ("a=,b=", vec![pair("a", ""), pair("b", "")]),
        ] {
            assert_eq!(parsed(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_star_alone_is_the_whole_domain() {
        let all = |args: &[&str], apart| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            parse_match(&args, apart).map(|(domain, descriptor)| (domain.to_owned(), descriptor.0))
        };
        let shop = Ok(("shop".to_owned(), Vec::new()));
        assert_eq!(all(&["shop"], None), shop);
        assert_eq!(all(&["shop", "*"], None), shop);
        assert_eq!(all(&["shop"], Some("*")), shop);
        assert_eq!(all(&[], Some("*")), Ok((String::new(), Vec::new())));
        assert!(all(&["shop", "*,a=b"], None).unwrap_err().contains("`*` has no `=`"));
    }

    #[test]
    fn an_entry_of_a_rule_may_have_no_value() {
        let RuleDescriptorArg(entries) = "a,b=,c=1".parse().unwrap();
        let value = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        assert_eq!(entries, [value("a", None), value("b", None), value("c", Some("1"))]);
        assert!("a,".parse::<RuleDescriptorArg>().unwrap_err().contains("no key"));
    }

    #[test]
    fn a_descriptor_may_be_apart_from_its_domain() {
        let args = |args: &[&str]| args.iter().map(ToString::to_string).collect::<Vec<_>>();
        let user = "user=ann".parse().unwrap();
        assert_eq!(parse_match(&args(&["shop", "user=ann"]), None), Ok(("shop", user)));
        let user = "user=ann".parse().unwrap();
        assert_eq!(parse_match(&args(&["shop"]), Some("user=ann")), Ok(("shop", user)));
        assert_eq!(parse_match(&args(&["shop"]), None).unwrap().1.0, []);
        let two = parse_match(&args(&["shop", "a=1"]), Some("b=1")).unwrap_err();
        assert!(two.contains("two descriptors"), "{two}");
        assert!(parse_match(&args(&["shop"]), Some("user")).unwrap_err().contains("user=VALUE"));
        assert!(parse_match(&args(&[""]), None).unwrap_err().contains("the domain is empty"));
        assert_eq!(parse_match(&[], Some("user=ann")).unwrap().0, "");
        assert!(parse_match(&[], None).unwrap_err().contains("no descriptor"));
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, cause) in [
            ("", "no key"),
            ("=1", "no key"),
            ("a=1,", "no key"),
            ("user", "write user=VALUE, or user= for the empty value"),
            ("a=1,user", "`user` has no `=`"),
            (r"a=\n", r"`\n`"),
            (r"a=\", "backslash"),
            (r"a=\xf", r"`\x`"),
            (r"\xff=1", "a key is not UTF-8"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn all_entries_can_be_written(entries in prop::collection::vec(("[^=]{1,4}", "\\PC{0,6}"), 1..4)) {
            prop_assert_eq!(parsed(&written(&entries)).unwrap(), entries);
        }

        #[test]
        fn all_bytes_of_a_value_can_be_written(bytes in prop::collection::vec(any::<u8>(), 0..6), text in "[a,\\\\x]{0,4}") {
            let bytes = [&bytes, text.as_bytes(), &bytes].concat();
            let entries = vec![("k".to_owned(), value::encode(&bytes).into_owned())];
            let written = written(&entries);
            prop_assert_eq!(parsed(&written).unwrap(), entries);
        }
    }
}
