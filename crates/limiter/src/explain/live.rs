//! An explanation with what the keys have counted: the answer of `GET /v1/explain`.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Explained, ExplainedDescriptor, explain};
use crate::controls::ActiveView;
use crate::{Descriptor, Limiter, ReadState, Request};
use weir_common::entry::{Entry, OwnedEntry};
use weir_store::States;

/// The most descriptors of one explanation: each reads a key of its own.
pub(super) const MAX_DESCRIPTORS: usize = 16;

/// A descriptor that a running service explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveDescriptor {
    #[serde(flatten)]
    pub explained: ExplainedDescriptor,
    /// What is counted for a request with this descriptor alone; none if nothing is.
    pub state: Option<ReadState>,
    /// The entries as denials show them, with hashes in place of secret values; none if rule files explain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<OwnedEntry>,
}

impl<S: States> Limiter<S> {
    /// Explains a request with these descriptors, and reads what the key of each has counted. Changes
    /// nothing. Ends within `budget`.
    ///
    /// A handler parses each parameter `descriptor` as a
    /// [`DescriptorArg`](weir_common::descriptor::DescriptorArg), whose error is one for the client, and passes
    /// the entries of all.
    ///
    /// # Errors
    ///
    /// The domain is empty, or there are no descriptors or too many; the error is one for the client.
    /// Failures of the store are part of the result.
    pub async fn explain<'s>(
        &self,
        active: impl Into<ActiveView<'s>>,
        domain: &str,
        descriptors: &[Vec<Entry<'_>>],
        budget: Duration,
    ) -> Result<Explained<LiveDescriptor>, String> {
        let (active, end) = (active.into(), Instant::now() + budget);
        if domain.is_empty() {
            return Err("the domain is empty".to_owned());
        }
        if !(1..=MAX_DESCRIPTORS).contains(&descriptors.len()) {
            let count = descriptors.len();
            return Err(format!("there are {count} descriptors: write 1 to {MAX_DESCRIPTORS}"));
        }
        let descriptors: Vec<Descriptor<'_>> = descriptors
            .iter()
            .map(|entries| Descriptor { entries, ..Descriptor::default() })
            .collect();
        let request = Request { domain, descriptors: &descriptors, ..Request::default() };
        let Explained { domain, descriptors: explained } =
            explain(active, &request, &self.options.key_prefix)?;
        let mut live = Vec::with_capacity(explained.len());
        for (descriptor, explained) in std::iter::zip(&descriptors, explained) {
            let rest = end.saturating_duration_since(Instant::now());
            let state = match explained.key {
                Some(_) => {
                    Some(self.inspect(active, &domain, descriptor, &[], rest).await?.describe())
                }
                None => None,
            };
            let (shown, _) = self.denials.shown(descriptor.entries);
            live.push(LiveDescriptor { explained, state, shown });
        }
        Ok(Explained { domain, descriptors: live })
    }
}
