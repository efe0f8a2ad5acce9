//! Patterns: the values that an operator's control (block, allow or limit) matches in the entries of requests.

use weir_common::glob::Glob;
use weir_common::network::Network;

/// What the value of an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// A text, in which `*` stands for any text.
    Glob(Glob),
    /// The addresses and the networks in a network.
    Network(Network),
}

/// How unspecific values are: how many have a `*`, how many are networks, and the bits that these leave open.
/// The least is the most specific.
pub(super) type Vagueness = (usize, usize, u32);

impl Pattern {
    /// Reads a value. A network is a text like others if `text` is set.
    pub fn new(value: &str, text: bool) -> Pattern {
        let network = if text { None } else { network(value) };
        network.map_or_else(|| Pattern::Glob(Glob::new(value)), Pattern::Network)
    }

    /// Returns whether it matches a value of a request. Does not allocate.
    #[inline]
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Pattern::Glob(glob) => glob.matches(value),
            Pattern::Network(network) => contains(network, value),
        }
    }

    /// Returns whether something may match it and the value of a rule, where a network stands for its addresses.
    pub fn may_meet(&self, rule: &str) -> bool {
        let parsed = Network::parse(rule).ok();
        self.matches(rule)
            || match self {
                Pattern::Glob(Glob::Text(text)) => parsed.is_some_and(|rule| contains(&rule, text)),
                Pattern::Glob(Glob::Parts(_)) => network(rule).is_some(),
                Pattern::Network(mine) => parsed.is_some_and(|rule| rule.contains(mine)),
            }
    }

    /// Returns whether it matches every text, or every address.
    pub fn is_any(&self) -> bool {
        match self {
            Pattern::Glob(Glob::Text(_)) => false,
            Pattern::Glob(Glob::Parts(parts)) => parts.iter().all(|part| part.is_empty()),
            Pattern::Network(network) => network.prefix_len() == 0,
        }
    }

    /// Returns whether another one matches all that it matches. Of two with `*` only equal ones count.
    pub fn is_within(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::Glob(Glob::Text(text)), other) => other.matches(text),
            (Pattern::Network(mine), Pattern::Network(theirs)) => theirs.contains(mine),
            // An address has more than one text.
            (Pattern::Network(_), Pattern::Glob(_)) => other.is_any(),
            (Pattern::Glob(_), _) => self == other,
        }
    }

    pub fn vagueness(patterns: impl Iterator<Item = Pattern>) -> Vagueness {
        patterns.fold((0, 0, 0), |(globs, networks, bits), pattern| match pattern {
            Pattern::Glob(Glob::Text(_)) => (globs, networks, bits),
            Pattern::Glob(Glob::Parts(_)) => (globs + 1, networks, bits),
            Pattern::Network(network) => (globs, networks + 1, bits + open_bits(&network)),
        })
    }
}

/// Returns the network that a value is. An address alone is a text, as Envoy sends it.
pub(super) fn network(value: &str) -> Option<Network> {
    value.contains('/').then(|| Network::parse(value).ok())?
}

// Inlined into a comparison of texts, it would slow that down.
#[inline(never)]
fn contains(network: &Network, value: &str) -> bool {
    Network::from_value(value).is_some_and(|inner| network.contains(&inner))
}

fn open_bits(network: &Network) -> u32 {
    let bits: u32 = if network.address().is_ipv4() { 32 } else { 128 };
    bits.saturating_sub(network.prefix_len().into())
}
