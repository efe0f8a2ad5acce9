//! Hashes that are shown in place of the values of some descriptor keys, which the settings declare secret.

use std::fmt;
use std::ops::Range;

use parking_lot::RwLock;
use smallvec::SmallVec;

use super::key;
use weir_common::entry::Entry;
use weir_common::random::random_bytes;
use weir_rules::Rule;

const HASH_DIGITS: usize = 16;

/// What the id of a secret is the hash of.
const ID_INPUT: &[u8] = b"id of this secret";

/// Replaces the values of some descriptor keys by a hash with a secret: equal values have equal hashes, as long
/// as the secret is the same. It is one of this process, until it adopts that which replicas share.
pub struct Redaction {
    keys: Vec<String>,
    secret: RwLock<[u8; blake3::KEY_LEN]>,
}

impl Redaction {
    /// Returns the redaction of the values of these descriptor keys, with a new secret.
    pub fn new(keys: Vec<String>) -> Redaction {
        Redaction { keys, secret: RwLock::new(random_bytes()) }
    }

    /// The descriptor keys whose values are replaced.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the value of an entry as it may be shown. `tag` distinguishes values that are cut; 0 for
    /// others.
    pub fn value(&self, (name, value): Entry<'_>, tag: u64) -> String {
        if !self.hides((name, value)) {
            return value.to_owned();
        }
        // Of a value that is cut, only a part is known.
        format!("hash:{}", self.hash(&[value.as_bytes(), &tag.to_le_bytes()]))
    }

    /// Returns the path of a rule as it may be shown, with a hash in place of each hidden value that the rule
    /// names. Only the keys of `entries` count, and some at the end may be missing, so all keys of a rule show
    /// the same path.
    ///
    /// Where dots and keys in values leave open what a hidden value is, all that it may be is hidden.
    pub fn path(&self, path: &str, entries: &[Entry<'_>]) -> String {
        if self.keys.is_empty() {
            return path.to_owned();
        }
        let spans = segments(path, entries.iter().map(|(name, _)| *name));
        // What looks like the end of a value may be in it: the true one may be cut off.
        let is_cut = path.ends_with('…');
        let mut shown = String::with_capacity(path.len());
        let mut end = 0;
        let mut hide = |name: &str, hidden: Range<usize>| {
            let start = hidden.start.max(end);
            if self.is_hidden(name) && start < hidden.end {
                let (before, value) = (path.get(end..start), path.get(start..hidden.end));
                let value = value.map(|value| value.strip_prefix('_').unwrap_or(value));
                shown += before.unwrap_or_default();
                shown += "_";
                shown += &self.value((name, value.unwrap_or_default()), 0);
                end = hidden.end;
            }
        };
        for ((name, _), span) in entries.iter().zip(&spans) {
            hide(name, span.start + name.len()..if is_cut { path.len() } else { span.end });
        }
        // Of entries that are missing.
        let known = spans.last().map_or(0, |last| last.start);
        let others = self.keys.iter().filter_map(|name| {
            let start = starts(path, name).find(|start| *start > known)?;
            Some((start + name.len(), name))
        });
        if let Some((start, name)) = others.min() {
            hide(name, start..path.len());
        }
        shown + path.get(end..).unwrap_or_default()
    }

    /// Returns the path of a rule as the rows of its keys have it.
    pub fn rule_path(&self, rule: &Rule) -> String {
        let mut entries: SmallVec<[Entry<'_>; 4]> = rule.entries().collect();
        entries.truncate(rule.counted_entries(entries.len()));
        if rule.plan.as_ref().is_some_and(|plan| plan.hold_id().is_some()) {
            // Its keys are without it.
            entries.pop();
        }
        let (path, ellipsis) = key::cut(rule.path());
        self.path(&format!("{path}{ellipsis}"), &entries)
    }

    /// Returns what identifies a key that is cut, as it may leave the process; empty for others.
    pub(super) fn tag(&self, tag: u64) -> String {
        if tag == 0 { String::new() } else { self.hash(&[&tag.to_le_bytes()]) }
    }

    /// Returns the secret as hexadecimal digits.
    pub(super) fn secret(&self) -> String {
        blake3::Hash::from(*self.secret.read()).to_string()
    }

    /// Returns what identifies the secret, and does not show it.
    pub(super) fn secret_id(&self) -> String {
        self.hash(&[ID_INPUT])
    }

    /// Replaces the secret by that with these digits. Returns whether they are one.
    pub(super) fn adopt(&self, digits: &str) -> bool {
        let Ok(secret) = blake3::Hash::from_hex(digits) else { return false };
        *self.secret.write() = secret.into();
        true
    }

    fn hash(&self, parts: &[&[u8]]) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret.read());
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize().to_hex()[..HASH_DIGITS].to_owned()
    }

    /// Returns whether the value of an entry is replaced.
    pub fn hides(&self, (name, value): Entry<'_>) -> bool {
        !value.is_empty() && self.is_hidden(name)
    }

    fn is_hidden(&self, name: &str) -> bool {
        self.keys.iter().any(|hidden| hidden == name)
    }
}

/// Returns the places of a path where a segment of this key may start: `key`, or `key_value`.
fn starts(path: &str, key: &str) -> impl DoubleEndedIterator<Item = usize> {
    let dots = path.match_indices('.').map(|(dot, _)| dot + 1);
    std::iter::once(0).chain(dots).filter(move |start| {
        let rest = path.get(*start..).and_then(|rest| rest.strip_prefix(key));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
    })
}

/// Returns for each of the first keys, as far as the path has them, where its segment starts at the earliest
/// and ends at the latest.
fn segments<'k>(path: &str, keys: impl Iterator<Item = &'k str>) -> Vec<Range<usize>> {
    let mut next = 0;
    let found = keys.map_while(|key| {
        let start = starts(path, key).find(|start| *start >= next)?;
        next = start + key.len();
        Some((key, start))
    });
    let found: Vec<(&str, usize)> = found.collect();
    let mut end = path.len();
    let spans = found.into_iter().rev().map(|(key, start)| {
        let span = start..end;
        // There is one: the earliest fits, too.
        let last = starts(path.get(..end).unwrap_or_default(), key).next_back();
        end = last.unwrap_or_default().saturating_sub(1);
        span
    });
    let mut spans: Vec<_> = spans.collect();
    spans.reverse();
    spans
}

impl fmt::Debug for Redaction {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").field("keys", &self.keys).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redaction() -> Redaction {
        Redaction::new(vec!["api_key".to_owned(), "token".to_owned()])
    }

    /// The path of a rule with these entries.
    fn path_of(entries: &[Entry<'_>]) -> String {
        let segment = |(key, value): &Entry<'_>| match *value {
            "" => (*key).to_owned(),
            value => format!("{key}_{value}"),
        };
        entries.iter().map(segment).collect::<Vec<_>>().join(".")
    }

    #[test]
    fn paths_keep_what_stands_around_hidden_values() {
        let redaction = redaction();
        let shown = |entries: &[Entry<'_>]| redaction.path(&path_of(entries), entries);
        let hash = |key, value| redaction.value((key, value), 0);
        let of_user = shown(&[("api_key", "s3cret"), ("user", "")]);
        assert_eq!(of_user, format!("api_key_{}.user", hash("api_key", "s3cret")));
        assert_ne!(shown(&[("api_key", "s3cret"), ("path", "")]), of_user);
        let two = shown(&[("user", "ann"), ("token", "t.1"), ("my_token", "x"), ("api_key", "k")]);
        let (token, key) = (hash("token", "t.1"), hash("api_key", "k"));
        assert_eq!(two, format!("user_ann.token_{token}.my_token_x.api_key_{key}"));
        // Without a value there is nothing to hide.
        for entries in [&[("api_key", "")][..], &[("user", "token"), ("token", "")]] {
            assert_eq!(shown(entries), path_of(entries));
        }
        assert_eq!(Redaction::new(Vec::new()).path("api_key_x", &[("api_key", "x")]), "api_key_x");
        // A rule names a pattern, a network or a list, of which a client sends a value.
        let path = redaction.path("api_key_s3*.user", &[("api_key", "s3cret"), ("user", "ann")]);
        assert_eq!(path, format!("api_key_{}.user", hash("api_key", "s3*")));
    }

    #[test]
    fn hidden_values_end_where_they_may_end_at_the_latest() {
        let redaction = redaction();
        for (path, entries) in [
            // The values have what looks like the next key.
            ("api_key_S.user_S.user_x", &[("api_key", ""), ("user", "")][..]),
            ("user_x.api_key_y.api_key_S", &[("user", ""), ("api_key", "")]),
            // Entries are missing, or the end of the path.
            ("user.api_key_S", &[("user", "")]),
            ("user_x.y.token_S.api_key_S.z", &[("user", "")]),
            ("api_key_S.user_S…", &[("api_key", ""), ("user", "")]),
            ("api_key_S…", &[("api_key", ""), ("user", "")]),
        ] {
            let shown = redaction.path(path, entries);
            assert!(!shown.contains('S') && shown.contains("hash:"), "{path}: {shown}");
        }
    }

    /// A value that may have what looks like other entries; one to be hidden has an `S` in each part.
    fn value(is_hidden: bool) -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec!["", ".user_", ".api_key", ".token_", "._", "x"]);
        let secret = if is_hidden { "S" } else { "y" };
        prop::collection::vec(part, 0..4).prop_map(move |parts| {
            parts.into_iter().map(|part| format!("{part}{secret}")).collect()
        })
    }

    fn entry() -> impl Strategy<Value = (&'static str, String)> {
        let key = prop::sample::select(vec!["user", "api_key", "token", "my_token", "api"]);
        key.prop_flat_map(|key| {
            let value = value(["api_key", "token"].contains(&key));
            value.prop_map(move |value| (key, value))
        })
    }

    proptest! {
        #[test]
        fn no_hidden_value_is_shown(
            entries in prop::collection::vec(entry(), 1..5),
            known in 1..5_usize,
            cut in any::<prop::sample::Index>(),
        ) {
            let redaction = redaction();
            let entries: Vec<Entry<'_>> =
                entries.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let path = path_of(&entries);
            let known = &entries[..known.min(entries.len())];
            let start = &path[..cut.index(path.len())];
            for path in [path.clone(), format!("{start}…")] {
                let shown = redaction.path(&path, known);
                prop_assert!(!shown.contains('S'), "{}: {}", path, shown);
            }
            if entries.iter().all(|(_, value)| !value.contains('.')) {
                let values = entries.iter().map(|entry| (entry.0, redaction.value(*entry, 0)));
                let values: Vec<_> = values.collect();
                let values: Vec<Entry<'_>> = values.iter().map(|(key, it)| (*key, &**it)).collect();
                prop_assert_eq!(redaction.path(&path, &entries), path_of(&values));
            }
        }
    }
}
