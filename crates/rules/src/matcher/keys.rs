//! The keys of all descriptors of a tree, to find out whether a key that a person typed is one of them.

use std::iter;

use super::{Child, MatcherNode, Reserve};

/// The key of a descriptor of a rule file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DescriptorKey<'s> {
    Known(&'s str),
    /// A descriptor with a value and without a limit keeps only `key_value`, and the key may end at any `_`.
    Within(&'s str),
}

impl<'s> DescriptorKey<'s> {
    /// Whether an entry with the key that is `start` without the `_` at its end may match the descriptor.
    pub fn may_be(self, start: &str) -> bool {
        let (DescriptorKey::Known(text) | DescriptorKey::Within(text)) = self;
        match (text.split_once('*'), self) {
            // A star is any text, so that only what is before it counts.
            (Some((first, _)), _) => first.starts_with(start) || start.starts_with(first),
            (None, DescriptorKey::Known(key)) => start.strip_suffix('_') == Some(key),
            (None, DescriptorKey::Within(text)) => text.starts_with(start),
        }
    }

    /// The key as a suggestion has it. Mostly a key has no `_` of its own.
    pub fn suggested(self) -> &'s str {
        match self {
            DescriptorKey::Known(key) => key,
            DescriptorKey::Within(text) => text.split('_').next().unwrap_or(text),
        }
    }
}

impl Child {
    /// Returns the descriptor's key, and the keys that name a reservation of its rule.
    fn keys(&self) -> impl Iterator<Item = DescriptorKey<'_>> {
        let reserve = self.reserve().into_iter().flat_map(Reserve::keys);
        iter::once(self.key()).chain(reserve.map(DescriptorKey::Known))
    }

    fn key(&self) -> DescriptorKey<'_> {
        match self.rule.as_ref().and_then(|rule| rule.entries.last()) {
            Some((key, _)) => DescriptorKey::Known(key),
            None if self.flags.any_value => DescriptorKey::Known(&self.text),
            None => DescriptorKey::Within(&self.text),
        }
    }
}

impl MatcherNode {
    /// The keys of the descriptors at all levels, each as often as it is there.
    pub(crate) fn keys(&self) -> impl Iterator<Item = DescriptorKey<'_>> {
        let mut levels = vec![self.children.iter()];
        let children = iter::from_fn(move || {
            loop {
                match levels.last_mut()?.next() {
                    Some(child) => {
                        levels.push(child.below.children.iter());
                        return Some(child);
                    }
                    None => levels.pop(),
                };
            }
        });
        children.flat_map(Child::keys)
    }
}
