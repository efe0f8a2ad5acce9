//! `WEIR.CHECK` and `WEIR.CHECKALL` decide one descriptor or several by the configured rules, as a request of Envoy.
//! `WEIR.COUNT` replies how many hits a descriptor had in a span of time, and can add hits first.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::resp::command::{CommandError, number, text};
use crate::resp::reply::Replies;
use crate::resp::server::Resp;
use crate::rls::service::ResponseOptions;
use weir_common::duration::read_duration;
use weir_common::entry::Entry;
use weir_common::value;
use weir_limit::{Micros, SECOND};
use weir_limiter::{Descriptor, Holds, Request, RequestDecision, Status};
use weir_store::{States, Store};

/// `WEIR.CHECK domain hits key value [key value …]`.
pub(super) async fn check<S: Store>(
    resp: &Resp<S>,
    arguments: &[&[u8]],
    replies: &mut Replies,
) -> Result<(), CommandError> {
    const NAME: &str = "weir.check";
    let [domain, hits, pairs @ ..] = arguments else { return Err(CommandError::Count(NAME)) };
    let (domain, hits, entries) = (text(domain)?, read_hits(hits)?, read_entries(NAME, pairs)?);
    let entries = borrowed(&entries);
    let descriptors = [Descriptor { entries: &entries, ..hits }];
    decide(resp, domain, &descriptors, |is_over, statuses| {
        if let [status] = statuses {
            reply(is_over, status, replies);
        }
    })
    .await
}

/// `WEIR.CHECKALL domain hits N key value×N [N …]`.
pub(super) async fn check_all<S: Store>(
    resp: &Resp<S>,
    arguments: &[&[u8]],
    replies: &mut Replies,
) -> Result<(), CommandError> {
    const NAME: &str = "weir.checkall";
    let [domain, hits, rest @ ..] = arguments else { return Err(CommandError::Count(NAME)) };
    let (domain, hits) = (text(domain)?, read_hits(hits)?);
    let mut lists = Vec::new();
    let mut rest = rest;
    while let [pairs, others @ ..] = rest {
        let pairs = Some(number::<usize>(pairs)?).filter(|pairs| *pairs > 0);
        let pairs = pairs.ok_or(CommandError::Integer)?;
        let (entries, others) =
            others.split_at_checked(pairs.saturating_mul(2)).ok_or(CommandError::Count(NAME))?;
        lists.push(read_entries(NAME, entries)?);
        rest = others;
    }
    if lists.is_empty() {
        return Err(CommandError::Count(NAME));
    }
    let lists: Vec<_> = lists.iter().map(borrowed).collect();
    let descriptors: Vec<_> = lists.iter().map(|entries| Descriptor { entries, ..hits }).collect();
    decide(resp, domain, &descriptors, |is_over, statuses| {
        replies.array(1 + statuses.len());
        replies.integer(code(is_over));
        for status in statuses {
            reply(status.over_limit, status, replies);
        }
    })
    .await
}

/// `WEIR.COUNT domain span [ADD hits] key value [key value …]`. A first key `ADD` needs `ADD 0` before it.
pub(super) async fn count<S: Store + States>(
    resp: &Resp<S>,
    arguments: &[&[u8]],
    replies: &mut Replies,
) -> Result<(), CommandError> {
    const NAME: &str = "weir.count";
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

/// Keys, each with the text of its value.
type Entries<'a> = SmallVec<[(&'a str, Cow<'a, str>); 4]>;

/// Reads keys and values, at least one of each.
fn read_entries<'a>(
    name: &'static str,
    arguments: &[&'a [u8]],
) -> Result<Entries<'a>, CommandError> {
    let (pairs, rest) = arguments.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(CommandError::Count(name));
    }
    pairs.iter().map(|[key, value]| Ok((text(key)?, value::encode(value)))).collect()
}

/// Returns entries as requests have them.
fn borrowed<'a>(entries: &'a Entries<'_>) -> SmallVec<[Entry<'a>; 4]> {
    entries.iter().map(|(key, value)| (*key, &**value)).collect()
}

/// Reads hits, as a descriptor without entries: 0 looks, a negative number refunds.
fn read_hits(hits: &[u8]) -> Result<Descriptor<'static>, CommandError> {
    let hits: i64 = number(hits)?;
    let count = u32::try_from(hits.unsigned_abs()).map_err(|_| CommandError::Integer)?;
    Ok(Descriptor {
        hits_addend: Some(count.into()),
        is_negative_hits: hits < 0,
        ..Descriptor::default()
    })
}

/// Decides a request, and passes the overall verdict and the statuses to `then`.
async fn decide<S: Store>(
    resp: &Resp<S>,
    domain: &str,
    descriptors: &[Descriptor<'_>],
    then: impl FnOnce(bool, &[Status<'_>]),
) -> Result<(), CommandError> {
    let mut request = Request { domain, descriptors, ..Request::default() };
    let then = |_: &Request<'_>, decision: &RequestDecision<'_>, _: &ResponseOptions| {
        then(decision.over_limit, &decision.statuses);
    };
    // A client that disconnects leaves its holds to their time-out.
    let mut holds = Holds::default();
    Ok(resp.rate_limit.decide(&mut request, None, &mut holds, then).await?)
}

/// Envoy's numbers of OK and OVER_LIMIT.
fn code(is_over: bool) -> i64 {
    if is_over { 2 } else { 1 }
}

/// Replies `[code, remaining, retry_after_ms, reset_after_ms, limit_name]`.
fn reply(is_over: bool, status: &Status<'_>, replies: &mut Replies) {
    // What an allowed descriptor without a limit has left is not a number.
    let is_unlimited = status.limit.is_none() && !status.over_limit;
    replies.array(5);
    replies.integer(code(is_over));
    replies.integer(if is_unlimited { -1 } else { status.remaining.into() });
    let wait = status.retry_after.filter(|_| is_over);
    replies.integer(wait.map_or(-1, milliseconds));
    replies.integer(milliseconds(status.reset_after));
    replies.bulk(status.limit.map_or("", |limit| limit.name).as_bytes());
}

/// Converts a time to milliseconds, rounded up.
fn milliseconds(time: Micros) -> i64 {
    i64::try_from(time.div_ceil(SECOND / 1_000)).unwrap_or(i64::MAX)
}
