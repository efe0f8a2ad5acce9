//! Finds descriptors of `weir replay` with a new key in nearly every request, such as an address with its port. Then
//! no key reaches a limit, whatever the rules are, and the report says so.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashSet;
use serde::Serialize;

use super::template::Template;
use weir_common::entry::Entry;

/// The requests at the start of the log that are examined.
pub(super) const SAMPLE: u64 = 4096;

/// The fewest requests for a warning.
const MIN_REQUESTS: u64 = 4;

/// Counts the different keys of the first requests, for each template of a descriptor (`--descriptor`).
pub(super) struct Distinct {
    hasher: RandomState,
    requests: u64,
    templates: Vec<Values>,
}

#[derive(Default)]
struct Values {
    /// Whether the template uses fields of the log, so that values can differ.
    vary: bool,
    sent: u64,
    hashes: HashSet<u64>,
}

/// The examined requests with the descriptor, and how many different keys they have: nearly as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NearlyDistinct {
    pub requests: u64,
    pub keys: u64,
}

impl Distinct {
    pub fn new(templates: &[Template]) -> Distinct {
        let values = |template: &Template| {
            let mut parts = template.entries.iter().flat_map(|entry| &entry.parts);
            Values { vary: parts.any(|part| part.field().is_some()), ..Values::default() }
        };
        Distinct {
            hasher: RandomState::new(),
            requests: 0,
            templates: templates.iter().map(values).collect(),
        }
    }

    /// Whether further requests are looked at.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.requests < SAMPLE
    }

    /// Counts a request, after its descriptors.
    #[inline]
    pub fn next(&mut self) {
        self.requests += 1;
    }

    /// Adds a descriptor of a template. `replaced` are the values that its counter has in place of its own, with
    /// the indices of their entries.
    pub fn add(
        &mut self,
        template: usize,
        entries: &[Entry<'_>],
        replaced: &[(usize, Cow<'_, str>)],
    ) {
        let Some(values) = self.templates.get_mut(template).filter(|values| values.vary) else {
            return;
        };
        let mut counted = entries.to_vec();
        for (index, value) in replaced {
            if let Some((_, text)) = counted.get_mut(*index) {
                *text = value;
            }
        }
        values.sent += 1;
        values.hashes.insert(self.hasher.hash_one(counted));
    }

    /// The requests that were looked at and their different values, if nearly all of these differ: nine of ten.
    pub fn nearly_all(&self, template: usize) -> Option<NearlyDistinct> {
        let Values { sent: requests, ref hashes, .. } = *self.templates.get(template)?;
        let keys = hashes.len() as u64;
        (requests >= MIN_REQUESTS && keys * 10 >= requests * 9)
            .then_some(NearlyDistinct { requests, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Fields;

    #[test]
    fn values_that_nearly_all_differ_are_found() {
        let mut fields = Fields::default();
        let templates = ["a={x}", "a=b"].map(|text| Template::parse(text, &mut fields).unwrap());
        for (requests, values, expected) in [
            (3, 3, None),
            (4, 4, Some((4, 4))),
            (100, 90, Some((100, 90))),
            (100, 89, None),
            (10_000, 10_000, Some((SAMPLE, SAMPLE))),
        ] {
            let mut distinct = Distinct::new(&templates);
            for request in 0..requests {
                if distinct.is_open() {
                    let value = (request % values).to_string();
                    distinct.add(0, &[("a", &value)], &[]);
                    distinct.add(1, &[("a", "b")], &[]);
                }
                distinct.next();
            }
            let expected = expected.map(|(requests, keys)| NearlyDistinct { requests, keys });
            assert_eq!((distinct.nearly_all(0), distinct.nearly_all(1)), (expected, None));
        }
    }

    #[test]
    fn values_that_share_a_counter_are_one() {
        let mut fields = Fields::default();
        let templates = ["a={x}"].map(|text| Template::parse(text, &mut fields).unwrap());
        let mut distinct = Distinct::new(&templates);
        for value in ["192.0.2.7:1", "192.0.2.7:2", "192.0.2.7:3", "192.0.2.7:4"] {
            distinct.add(0, &[("a", value)], &[(0, "192.0.2.7".into())]);
            distinct.next();
        }
        assert_eq!(distinct.nearly_all(0), None);
    }
}
