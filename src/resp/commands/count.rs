//! `WEIR.COUNT`: the hits of a span, after more are added or not.

use super::check::{borrowed, decide, read_entries, read_hits};
use crate::resp::command::{CommandError, text};
use crate::resp::reply::Replies;
use crate::resp::server::Resp;
use weir_common::duration::read_duration;
use weir_limit::Micros;
use weir_limiter::Descriptor;
use weir_store::{States, Store};

const NAME: &str = "weir.count";

/// `WEIR.COUNT domain span [ADD hits] key value [key value …]`. A first key `ADD` needs `ADD 0` before it.
pub(super) async fn count<S: Store + States>(
    resp: &Resp<S>,
    arguments: &[&[u8]],
    replies: &mut Replies,
) -> Result<(), CommandError> {
    let [domain, span, rest @ ..] = arguments else { return Err(CommandError::Count(NAME)) };
    let (domain, spans) = (text(domain)?, [read_span(text(span)?)?]);
    let (added, rest) = match rest {
        [add, hits, rest @ ..] if add.eq_ignore_ascii_case(b"ADD") => {
            (Some(read_hits(hits)?), rest)
        }
        rest => (None, rest),
    };
    let entries = read_entries(NAME, rest)?;
    let entries = borrowed(&entries);
    if let Some(hits) = added {
        let descriptors = [Descriptor { entries: &entries, ..hits }];
        decide(resp, domain, &descriptors, |_, _| {}).await?;
    }
    let descriptor = Descriptor { entries: &entries, ..Descriptor::default() };
    let counted = resp.rate_limit.inspect(domain, &descriptor, &spans, |inspection| {
        let state = inspection.state.as_ref().ok_or_else(|| {
            CommandError::Span("no limit counts hits of these keys and values".to_owned())
        })?;
        let state = state.as_ref().map_err(|_| CommandError::Store)?;
        match state.counts.first() {
            Some(Ok(count)) => Ok(i64::try_from(count.count).unwrap_or(i64::MAX)),
            Some(Err(error)) => Err(CommandError::Span(error.to_string())),
            None => Err(CommandError::Store),
        }
    });
    replies.integer(counted.await??);
    Ok(())
}

fn read_span(text: &str) -> Result<Micros, CommandError> {
    let span = read_duration(text).filter(|span| !span.is_zero());
    let span = span.and_then(|span| Micros::try_from(span.as_micros()).ok());
    span.ok_or_else(|| CommandError::Span(format!("'{text}' is not a span: write 5m or 1h30m")))
}
