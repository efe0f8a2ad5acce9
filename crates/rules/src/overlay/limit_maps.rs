//! The keys of limits as patches change them, without the places where they are written.

use crate::syntax::tree::Node;

/// Keys and their values.
pub(crate) type KeyNodes<'n> = Vec<(&'static str, Node<'n>)>;

/// Returns keys with other values.
pub(crate) fn changed<'n, 'm>(
    keys: &KeyNodes<'n>,
    change: impl Fn(&Node<'n>) -> Node<'m>,
) -> KeyNodes<'m> {
    keys.iter().map(|(key, node)| (*key, change(node))).collect()
}

/// The keys of the limits of a rule.
#[derive(Clone, Debug)]
pub(crate) enum LimitMaps<'n> {
    /// The nodes of `rate_limit`.
    One(KeyNodes<'n>),
    /// The nodes of each item of `rate_limits`.
    Several(Vec<KeyNodes<'n>>),
}

impl<'n> LimitMaps<'n> {
    /// Returns the same limits with other values.
    pub fn changed<'m>(&self, change: impl Fn(&Node<'n>) -> Node<'m>) -> LimitMaps<'m> {
        match self {
            LimitMaps::One(keys) => LimitMaps::One(changed(keys, change)),
            LimitMaps::Several(items) => {
                LimitMaps::Several(items.iter().map(|keys| changed(keys, &change)).collect())
            }
        }
    }
}
