//! The values that a descriptor of a rule file matches if it matches many: a network, the items of `values`, or a list
//! (the file of values that `values_file` names). Also how an entry of a request matched.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use super::prefix_table::{PrefixTable, PrefixTableBuilder};
use crate::syntax::position::Position;
use crate::syntax::problem::{Problem, lines};
use weir_common::network::{Network, NetworkError};
use weir_common::value::is_reserved;

/// The values that a descriptor matches, if it has `network`, `values` or `values_file`.
#[derive(Clone, Debug)]
pub(crate) struct ValueSet {
    pub kind: SetKind,
    pub group: Group,
}

#[derive(Clone, Debug)]
pub(crate) enum SetKind {
    Network(Network),
    Values(Box<[Item]>),
    List(Arc<ValueList>),
}

/// An item of `values`: a value, a wildcard or a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    /// As it is written; of a network in its canonical form.
    pub text: Box<str>,
    pub network: Option<Network>,
}

/// The error about a text with characters that stand for bytes of values.
pub(crate) const RESERVED: &str =
    "config error, text has one of the characters U+10FF7F to U+10FFFF";
pub(crate) const RESERVED_HELP: &str = "remove it: weir uses these for values that are not UTF-8";

/// The lengths of the prefixes by which addresses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The length for IPv4, up to 32.
    pub v4: u8,
    /// The length for IPv6, up to 128.
    pub v6: u8,
}

impl Default for Group {
    fn default() -> Self {
        Group { v4: 32, v6: 128 }
    }
}

impl Group {
    /// Returns the network by which another one is counted. It lies in the network that matched by a prefix of
    /// `matched_len`: a larger one may be that of another descriptor.
    pub(crate) fn of(self, network: &Network, matched_len: u8) -> Network {
        network.truncate(self.v4.max(matched_len), self.v6.max(matched_len))
    }
}

impl Item {
    /// Reads an item. An error is a message, and what to write instead.
    pub fn read(text: &str) -> Result<Item, (String, String)> {
        let network = match Network::parse(text) {
            Ok(network) => Some(network),
            Err(NetworkError::Invalid(_)) if text.contains('*') => None,
            Err(NetworkError::Invalid(_)) => match text_error(text, "in one item") {
                Some((message, help)) => {
                    let help = format!("{help}, or the text as the `value` of a descriptor");
                    return Err((message, help));
                }
                None => None,
            },
            Err(error) => return Err(network_problem(&error)),
        };
        let text = network.map_or_else(|| text.into(), |network| network.to_string().into());
        Ok(Item { text, network })
    }
}

impl ValueSet {
    /// The items of `values`; none if the descriptor has another key.
    pub fn items(&self) -> &[Item] {
        match &self.kind {
            SetKind::Values(items) => items,
            SetKind::Network(_) | SetKind::List(_) => &[],
        }
    }

    /// The number of different values; none of a network, or if a list was not read.
    pub fn len(&self) -> Option<usize> {
        match &self.kind {
            SetKind::Network(_) => None,
            SetKind::Values(items) => Some(items.len()),
            SetKind::List(list) => list.len(),
        }
    }

    /// Returns whether two sets have the same values, in whatever order.
    pub fn is_same(&self, other: &ValueSet) -> bool {
        match (&self.kind, &other.kind) {
            (SetKind::List(one), SetKind::List(other)) => one.is_same(other),
            _ => {
                let [own, others] =
                    [self, other].map(|set| set.items().iter().collect::<HashSet<_>>());
                own == others
            }
        }
    }

    pub fn key(&self) -> &'static str {
        match self.kind {
            SetKind::Network(_) => "network",
            SetKind::Values(_) => "values",
            SetKind::List(_) => "values_file",
        }
    }

    pub fn match_kind(&self) -> MatchKind {
        match self.kind {
            SetKind::Network(_) => MatchKind::Network,
            SetKind::Values(_) | SetKind::List(_) => MatchKind::List,
        }
    }
}

/// How an entry matches a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchKind {
    /// The entry matched by its key and its value.
    Value,
    /// The value lies in the network of the descriptor.
    Network,
    /// The value is in the list of the descriptor.
    List,
    /// The value matches a pattern.
    Wildcard,
    /// The entry matched by its key alone.
    Key,
}

/// The values of a list, each with its line.
#[derive(Debug, Default)]
pub struct ValueList {
    pub(crate) networks: PrefixTable,
    /// The values that are no networks, one after another.
    text: Box<str>,
    texts: HashTable<TextRange>,
    /// The fingerprint of the file; none if it was not read.
    content_hash: Option<u64>,
}

/// A value that is no network: its place in the buffer, and its line.
#[derive(Clone, Copy, Debug)]
struct TextRange {
    start: u32,
    len: u32,
    line: u32,
}

impl ValueList {
    /// Reads the list of a file. `report` is called for each line with an error.
    pub(crate) fn parse(file: &str, text: &str, mut report: impl FnMut(Problem)) -> ValueList {
        let mut networks = PrefixTableBuilder::default();
        let (mut buffer, mut texts) = (String::new(), HashTable::new());
        for (line, content) in (1..).zip(lines(text.strip_prefix('\u{feff}').unwrap_or(text))) {
            let Some(value) = value_of(content) else { continue };
            let error = match Network::parse(value) {
                Ok(network) => {
                    networks.add(network, line);
                    continue;
                }
                Err(NetworkError::Invalid(_)) => text_error(value, "in this line"),
                Err(error) => Some(network_problem(&error)),
            };
            let Some((message, help)) = error else {
                add(&mut buffer, &mut texts, value, line);
                continue;
            };
            let before = content.find(value).and_then(|at| content.get(..at));
            let column = before.unwrap_or_default().chars().count() as u32 + 1;
            let position = Position::in_text(line, column);
            report(Problem::of_file(file, message, help).at(position).about(value));
        }
        buffer.shrink_to_fit();
        texts.shrink_to_fit(|entry| hash(entry.of(&buffer)));
        ValueList {
            networks: networks.build(),
            text: buffer.into(),
            texts,
            content_hash: Some(BuildHasherDefault::<DefaultHasher>::default().hash_one(text)),
        }
    }

    /// The number of different values; none if the file was not read.
    pub fn len(&self) -> Option<usize> {
        self.content_hash.map(|_| self.networks.len() + self.texts.len())
    }

    /// Returns whether two lists have the same values, in whatever lines.
    pub(crate) fn is_same(&self, other: &ValueList) -> bool {
        self.content_hash == other.content_hash
            || self.texts.len() == other.texts.len()
                && self.networks.is_same(&other.networks)
                && self.texts.iter().all(|entry| other.text_line(entry.of(&self.text)).is_some())
    }

    /// Returns the line of a value that is no network.
    pub(crate) fn text_line(&self, value: &str) -> Option<u32> {
        if self.texts.is_empty() {
            return None;
        }
        let found = self.texts.find(hash(value), |entry| entry.of(&self.text) == value);
        found.map(|entry| entry.line)
    }
}

impl TextRange {
    fn of(self, buffer: &str) -> &str {
        buffer.get(self.start as usize..(self.start + self.len) as usize).unwrap_or_default()
    }
}

/// Returns the value of a line; none if it only has a comment: from a `#` at the start or after white space.
fn value_of(line: &str) -> Option<&str> {
    let comment = line.match_indices('#').map(|(at, _)| at);
    let starts = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let end = comment.into_iter().find(starts).unwrap_or(line.len());
    let value = line[..end].trim();
    (!value.is_empty()).then_some(value)
}

/// Adds a value, unless the list has it.
fn add(buffer: &mut String, texts: &mut HashTable<TextRange>, value: &str, line: u32) {
    let hashed = hash(value);
    if texts.find(hashed, |entry| entry.of(buffer) == value).is_some() {
        return;
    }
    // The reader rejects files beyond 32 bits.
    let (start, len) = (buffer.len() as u32, value.len() as u32);
    buffer.push_str(value);
    texts.insert_unique(hashed, TextRange { start, len, line }, |entry| hash(entry.of(buffer)));
}

/// The key of SipHash may be public, because only values of lists are inserted.
fn hash(value: &str) -> u64 {
    SipHasher13::new().hash(value.as_bytes())
}

/// Returns why the value of a line or an item that is no network is no text either. `place`: where it is.
fn text_error(value: &str, place: &str) -> Option<(String, String)> {
    if value.contains('*') {
        let message = "config error, a list has no wildcards".to_owned();
        return Some((message, "write a network such as 10.0.0.0/8, or each value".to_owned()));
    }
    if value.chars().any(is_reserved) {
        return Some((RESERVED.to_owned(), RESERVED_HELP.to_owned()));
    }
    if let Some(network) = Network::from_value(value) {
        let message = format!("config error, '{value}' has a port, brackets or a zone");
        return Some((message, format!("write {network}: it matches this form, too")));
    }
    if is_meant_as_network(value.trim_end_matches([',', ';'])) {
        return Some(network_problem(&NetworkError::Invalid(value.to_owned())));
    }
    let is_network = |part: &&str| Network::from_value(part).is_some() || is_meant_as_network(part);
    let first = value.split_whitespace().next().filter(|first| first.len() < value.len());
    // Texts may have commas, but only lists of networks have networks between them.
    let mut parts = value.split([',', ';']).map(str::trim);
    let network = first.filter(is_network).or_else(|| parts.find(is_network))?;
    let message = format!("config error, there is more than the network '{network}' {place}");
    Some((message, "write one value a line or an item, and ` #` before a comment".to_owned()))
}

/// Returns whether a text that is no network is meant as one: other programs write ranges, netmasks and quotes.
fn is_meant_as_network(text: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = |text: &str| text.trim().parse::<IpAddr>().is_ok();
    let unquoted = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(inner) = ['"', '\'', '`'].into_iter().find_map(unquoted) {
        return Network::from_value(inner).is_some() || is_meant_as_network(inner);
    }
    if text.split_once('-').is_some_and(|(first, last)| is_address(first) && is_address(last)) {
        return true;
    }
    match text.split_once('/') {
        Some((address, prefix)) => {
            let is_dotted = || address.split('.').all(is_number) && is_number(prefix);
            address.parse::<IpAddr>().is_ok() || !address.is_empty() && is_dotted()
        }
        None => text.split('.').count() == 4 && text.split('.').all(is_number),
    }
}

pub(crate) fn network_problem(error: &NetworkError) -> (String, String) {
    match error {
        NetworkError::HostBits { text, meant } => (
            format!("config error, '{text}' has bits set after its prefix"),
            format!("write {meant}"),
        ),
        NetworkError::PrefixTooLong { text, max } => (
            format!("config error, the prefix of '{text}' is longer than {max} bits"),
            format!("write a length from 0 to {max}"),
        ),
        NetworkError::Invalid(text) => (
            format!("config error, '{text}' is no network"),
            "write a network such as 10.0.0.0/8 or 2001:db8::/32, or an address".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> ValueList {
        ValueList::parse("l", text, |error| panic!("{text:?}: {error:?}"))
    }

    fn line(list: &ValueList, value: &str) -> Option<u32> {
        let network = || list.networks.find(&Network::from_value(value)?);
        list.text_line(value).or_else(|| Some(network()?.number))
    }

    #[test]
    fn a_line_is_a_value_or_a_network() {
        let list = list(
            "\u{feff}# blocked\n\n  10.0.0.0/8  # the office\r\nann\rmallory smith\n/a#b\n/a # b\n2001:db8::/32\nann\n",
        );
        assert_eq!(list.len(), Some(6));
        for (value, found) in [
            ("10.1.2.3:80", Some(3)),
            ("10.0.0.0/9", Some(3)),
            ("11.0.0.0", None),
            ("ann", Some(4)),
            ("mallory smith", Some(5)),
            ("/a#b", Some(6)),
            ("/a", Some(7)),
            ("[2001:db8::1]", Some(8)),
            ("", None),
            ("# blocked", None),
        ] {
            assert_eq!(line(&list, value), found, "{value}");
        }
        assert_eq!(ValueList::parse("l", "", |_| ()).len(), Some(0));
        assert_eq!(ValueList::default().len(), None);
    }

    #[test]
    fn broken_lines_have_their_place() {
        let text = "10.0.0.0/8\n  10.0.0.1/8\n10.0.*\n1.2.3.4/33\n10.0.0.1 x\nok\n10.0.0.1:80\n\
                    [2001:db8::1]\n10.0.0.0/08\n10.0.0/8\n10.0.0.300\n10.0.0.0/8,\n1.2.3\n/8\n\
                    10.1.0.0/255.0.0.0\n1.2.3.4-1.2.3.9\n\"1.2.3.4\"\n1.2.3.4,spam\nann,bob\n\
                    ::1/x\n1.2.3.4 - 1.2.3.200\n'10.0.0.1/8',\nx; ::1\nann-bob\n\"ann\"\n";
        let mut errors = Vec::new();
        let list = ValueList::parse("l", text, |error| {
            let position = error.position.unwrap();
            let place = (position.line().unwrap(), position.column().unwrap());
            errors.push((place, error.message, error.help));
        });
        let wanted = [
            ((2, 3), "'10.0.0.1/8' has bits set after its prefix", "write 10.0.0.0/8"),
            ((3, 1), "a list has no wildcards", "write a network"),
            ((4, 1), "the prefix of '1.2.3.4/33' is longer than 32 bits", "0 to 32"),
            (
                (5, 1),
                "there is more than the network '10.0.0.1' in this line",
                "one value a line or an item",
            ),
            ((7, 1), "'10.0.0.1:80' has a port, brackets or a zone", "write 10.0.0.1:"),
            ((8, 1), "'[2001:db8::1]' has a port", "write 2001:db8::1:"),
            ((9, 1), "'10.0.0.0/08' is no network", "write a network"),
            ((10, 1), "'10.0.0/8' is no network", "write a network"),
            ((11, 1), "'10.0.0.300' is no network", "write a network"),
            ((12, 1), "'10.0.0.0/8,' is no network", "write a network"),
            ((15, 1), "'10.1.0.0/255.0.0.0' is no network", "write a network"),
            ((16, 1), "'1.2.3.4-1.2.3.9' is no network", "write a network"),
            ((17, 1), "'\"1.2.3.4\"' is no network", "write a network"),
            (
                (18, 1),
                "there is more than the network '1.2.3.4' in this line",
                "one value a line or an item",
            ),
            ((20, 1), "'::1/x' is no network", "write a network"),
            ((21, 1), "'1.2.3.4 - 1.2.3.200' is no network", "write a network"),
            ((22, 1), "''10.0.0.1/8',' is no network", "write a network"),
            (
                (23, 1),
                "there is more than the network '::1' in this line",
                "one value a line or an item",
            ),
        ];
        assert_eq!(errors.len(), wanted.len(), "{errors:#?}");
        for ((place, message, help), (at, says, writes)) in errors.iter().zip(wanted) {
            assert_eq!(*place, at);
            let help = format!("{help}:");
            assert!(message.contains(says) && help.contains(writes), "{message} {help}");
        }
        let texts = ["ok", "1.2.3", "/8", "ann,bob", "ann-bob", "\"ann\""];
        assert_eq!(texts.map(|text| line(&list, text)), [6, 13, 14, 19, 24, 25].map(Some),);
    }

    #[test]
    fn lists_are_the_same_if_their_values_are() {
        let same = |one, other| list(one).is_same(&list(other));
        let text = "10.0.0.0/8\n2001:db8::/32\nann\nbob\n";
        assert!(same(text, "# a comment\nbob\n\nann # again\nann\n2001:DB8::/32\n10.0.0.0/8"));
        for other in [
            "10.0.0.0/9\n2001:db8::/32\nann\nbob\n",
            "10.0.0.0/8\n2001:db8::/33\nann\nbob\n",
            "10.0.0.0/8\n2001:db9::/32\nann\nbob\n",
            "10.0.0.0/8\n2001:db8::/32\nann\ncarol\n",
            "10.0.0.0/8\n2001:db8::/32\nann\n",
            "10.0.0.0/8\nann\nbob\n",
        ] {
            assert!(!same(text, other) && !same(other, text), "{other}");
        }
        assert!(same("", "# nothing\n"));
    }
}
