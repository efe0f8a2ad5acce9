//! An explanation with what the keys have counted: the answer of `GET /v1/explain`.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::explain;
use crate::controls::ActiveView;
use crate::{Descriptor, Request, inspect};
use weir_common::entry::Entry;
use weir_store::States;

/// The most descriptors of one explanation: each reads a key of its own.
pub(super) const MAX_DESCRIPTORS: usize = 16;

/// Explains a request with these descriptors, and reads what the key of each has counted. Changes
/// nothing. Ends within `budget`.
///
/// The JSON is that of `weir explain --output json`. In addition each descriptor has `state`: the
/// members of [`Inspection::to_json`](crate::Inspection::to_json), read by a request with this
/// descriptor alone; null if nothing is counted for it. Keys have no prefix.
///
/// A handler parses each parameter `descriptor` as a
/// [`DescriptorArg`](weir_common::descriptor::DescriptorArg), whose error is one for the client, and passes
/// the entries of all.
///
/// # Errors
///
/// The domain is empty, or there are no descriptors or too many; the error is one for the client.
/// Failures of the store are part of the result.
pub async fn explain_live<'s>(
    store: &impl States,
    active: impl Into<ActiveView<'s>>,
    domain: &str,
    descriptors: &[Vec<Entry<'_>>],
    budget: Duration,
) -> Result<Value, String> {
    let (active, end) = (active.into(), Instant::now() + budget);
    if domain.is_empty() {
        return Err("the domain is empty".to_owned());
    }
    if !(1..=MAX_DESCRIPTORS).contains(&descriptors.len()) {
        let count = descriptors.len();
        return Err(format!("there are {count} descriptors: write 1 to {MAX_DESCRIPTORS}"));
    }
    let descriptors: Vec<Descriptor<'_>> =
        descriptors.iter().map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
    let request =
        Request { domain, descriptors: &descriptors, beyond: 0, hits_addend: 0, span: None };
    let explained = explain(active, &request, "")?;
    let mut json = explained.to_json();
    for (i, descriptor) in descriptors.iter().enumerate() {
        let rest = end.saturating_duration_since(Instant::now());
        let state = match explained.descriptors.get(i).is_some_and(|found| found.key.is_some()) {
            true => inspect(store, active, domain, descriptor, &[], rest).await?.to_json(),
            false => Value::Null,
        };
        json["descriptors"][i]["state"] = state;
    }
    Ok(json)
}
