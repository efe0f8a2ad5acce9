//! Decisions in the log: all of them at level debug; at level info, if asked for, some denials.

use std::fmt::{self, Write};
use std::iter::zip;

use super::charges::key;
use super::lookup::{Lookup, Matched};
use super::sample::Sample;
use super::{Request, RequestError, Status};
use crate::controls::Effect;
use weir_limit::{Limit, Op, ReservationOp, Source};
use weir_store::key_text;
use weir_store::{Answer, Entry};

/// The longest domain, and the longest key and value of an entry, that are logged: clients choose them.
const MAX_NAME_CHARS: usize = 100;

/// The most entries of a descriptor that are shown.
pub(super) const MAX_ENTRIES: usize = 8;

/// What is logged about the decision on one descriptor.
struct Line<'a> {
    domain: String,
    descriptor: String,
    rule: Option<&'a str>,
    /// The key in Redis.
    key: Option<String>,
    limit: Option<&'a Limit>,
    hits: Option<i64>,
    /// Hits that the limit had counted before these.
    used_before: Option<u64>,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    result: &'static str,
    /// Why there was no limit, no answer, or not one of the store.
    reason: Option<String>,
    /// The result of the whole request.
    overall: &'static str,
}

/// Writes a line at a level, which must be a literal.
macro_rules! write_line {
    ($level:ident, $message:literal, $line:expr, $($field:tt)*) => {{
        let Line { domain, descriptor, rule, key, limit, hits, used_before, remaining, .. } = $line;
        let Line { retry_after_ms, result, reason, overall, .. } = $line;
        let limit = limit.map(tracing::field::display);
        let (key, reason) = (key.as_deref(), reason.as_deref());
        tracing::$level!(
            domain, descriptor, rule, key, limit, hits, used_before, remaining, retry_after_ms,
            result, reason, overall, $($field)*
            $message
        );
    }};
}

/// A request with its answers. An answer that is missing was not needed.
#[derive(Clone, Copy)]
pub(super) struct Decided<'a, 's, 'r> {
    pub request: &'a Request<'a>,
    pub lookup: &'a Lookup<'s, 'r>,
    pub answers: &'a [Answer],
    /// The prefix of keys in Redis.
    pub key_prefix: &'a str,
}

/// Logs the decision on each descriptor.
#[cold]
pub(super) fn decisions(decided: Decided<'_, '_, '_>, overall: &'static str) {
    for line in lines(decided, overall) {
        write_line!(debug, "decision", &line,);
    }
}

/// Logs a request that gets no decision because it is invalid.
pub(super) fn invalid(domain: &str, error: &RequestError) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let domain = shortened(domain);
        tracing::debug!(domain, %error, "invalid request");
    }
}

fn lines<'a, 's, 'r>(
    decided: Decided<'a, 's, 'r>,
    overall: &'static str,
) -> impl Iterator<Item = Line<'a>> {
    let mut answers = decided.answers.iter();
    decided.lookup.matched.iter().map(move |matched| {
        let answer = matched.plan().and_then(|_| answers.next());
        line(decided, matched, answer, overall)
    })
}

fn line<'a>(
    decided: Decided<'a, '_, '_>,
    matched: &'a Matched<'_, '_>,
    answer: Option<&Answer>,
    overall: &'static str,
) -> Line<'a> {
    let Decided { request, lookup, key_prefix, .. } = decided;
    let (plan, rule) = (matched.plan(), matched.applies.rule());
    let mut line = Line {
        domain: shortened(request.domain),
        descriptor: descriptor(matched.descriptor.entries),
        rule: rule.map(|rule| rule.path()),
        key: plan.map(|plan| {
            let key = key(request.domain, matched, plan).0;
            key_text(key_prefix, &key, plan, lookup.is_together())
        }),
        limit: None,
        hits: plan.map(|_| match matched.op {
            Op::Take(hits) => i64::try_from(hits).unwrap_or(i64::MAX),
            Op::Refund(hits) => -i64::try_from(hits).unwrap_or(i64::MAX),
            Op::Undo(undo) => -i64::from(undo.hits),
            Op::UpTo(up_to) => up_to.most.into(),
            Op::Add { hits, .. } => hits.into(),
            Op::Reservation(ReservationOp::Settle(hits) | ReservationOp::SettleKnown(hits)) => {
                hits.into()
            }
            Op::Reservation(ReservationOp::Cancel(hits)) => -i64::from(hits),
            Op::Reservation(op) => op.reserve().map_or(0, |reserve| reserve.most.into()),
        }),
        used_before: None,
        remaining: None,
        retry_after_ms: None,
        result: "ok",
        reason: None,
        overall,
    };
    let reason = match (plan, answer) {
        (_, None) if matched.effect.is_some() => matched.effect.map(|effect| {
            match effect {
                Effect::Block { .. } => line.result = "over_limit",
                Effect::Allow { .. } => {}
                Effect::Limit { .. } => line.result = "unknown",
            }
            controlled(&effect)
        }),
        (None, _) if lookup.domain.is_none() => Some("the domain has no rules".to_owned()),
        (None, _) if rule.is_some() => Some("the rule is unlimited".to_owned()),
        (None, _) => Some("no rule applies".to_owned()),
        (Some(_), None) => {
            line.result = "unknown";
            None
        }
        (Some(_), Some(Err(error))) => {
            line.result = "error";
            Some(error.to_string())
        }
        (Some(plan), Some(Ok(decision))) => {
            line.limit = plan.limits().get(usize::from(decision.limit));
            line.used_before = Some(decision.used_before);
            line.remaining = Some(decision.remaining);
            line.retry_after_ms = decision.retry_after.map(|wait| wait.div_ceil(1_000));
            line.result = match decision.allowed || matched.is_allowed() {
                _ if matched.is_blocked() => "over_limit",
                _ if matched.passes_by_shadow_mode(decision) => "over_limit_in_shadow_mode",
                true => "ok",
                false => "over_limit",
            };
            match decision.source {
                Source::Store => matched.effect.as_ref().map(controlled),
                Source::Leased => Some("leased: charged before".to_owned()),
                Source::DeniedLocally => Some("denied without the store".to_owned()),
                Source::Degraded => Some("the store failed, its policy answers".to_owned()),
            }
        }
    };
    line.reason = reason;
    line
}

/// Returns what a control does, in words.
fn controlled(effect: &Effect<'_>) -> String {
    let id = &effect.control().id;
    match effect {
        Effect::Block { .. } => format!("the control {id} blocks"),
        Effect::Allow { .. } => format!("the control {id} allows"),
        Effect::Limit { .. } => format!("the control {id} changes the limit"),
    }
}

/// Returns a text with an ellipsis in place of what is beyond [`MAX_NAME_CHARS`].
pub(super) fn shortened(text: &str) -> String {
    Shortened(text).to_string()
}

/// Text with an ellipsis in place of what is beyond [`MAX_NAME_CHARS`].
struct Shortened<'a>(&'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(MAX_NAME_CHARS) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

/// `key=value,key=value`.
fn descriptor(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for (i, (key, value)) in entries.iter().take(MAX_ENTRIES).enumerate() {
        let comma = if i > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}={}", Shortened(key), Shortened(value));
    }
    if entries.len() > MAX_ENTRIES {
        text.push_str(",…");
    }
    text
}

/// Logs a sample of denied requests.
#[derive(Debug)]
pub(super) struct DenialLog {
    sample: Sample,
}

impl DenialLog {
    /// Logs up to `per_second` denials; 0: none.
    pub fn new(per_second: u32) -> DenialLog {
        DenialLog { sample: Sample::new(per_second) }
    }

    /// Whether denials are logged at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.sample.is_on()
    }

    /// Logs the denial of a request by the first descriptor that is over its limit.
    #[cold]
    pub fn log(&self, decided: Decided<'_, '_, '_>, statuses: &[Status<'_>]) {
        // At level debug there is a line about every decision.
        if tracing::enabled!(tracing::Level::DEBUG) || !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let Some(suppressed) = self.sample.pass() else { return };
        let lines = lines(decided, "over_limit");
        let denied = zip(lines, statuses).find(|(_, status)| status.over_limit);
        if let Some((line, _)) = denied {
            write_line!(info, "request denied", &line, suppressed,);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_is_shortened() {
        let long = "ä".repeat(1_000);
        let wanted = format!("{}…", "ä".repeat(MAX_NAME_CHARS));
        assert_eq!(shortened(&long), wanted);
        let entries = vec![("k", long.as_str()); 100];
        let text = descriptor(&entries);
        assert!(text.starts_with(&format!("k={wanted},k={wanted},")) && text.ends_with(",…"));
        assert_eq!(text.matches("k=").count(), MAX_ENTRIES);
        assert_eq!(descriptor(&[("user", "ann"), ("path", "/a,b=c")]), "user=ann,path=/a,b=c");
    }
}
