//! Logs decisions: all of them at level debug; at level info, if asked for, some denials.

use std::hash::{BuildHasher, RandomState};
use std::iter::zip;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::decision::{Answered, Decided, RequestError, Status};
use crate::lookup::Matched;
use weir_common::truncate::truncated_chars;
use weir_common::value;
use weir_controls::Effect;
use weir_limit::{Limit, Op, ReservationOp, Source};
use weir_store::{Entry, key_text};

/// The longest domain, and the longest key and value of an entry, that are logged: clients choose them.
const MAX_NAME_CHARS: usize = 100;

/// The most entries of a descriptor that are shown.
pub(super) const MAX_ENTRIES: usize = 8;

/// What is logged about the decision on one descriptor.
#[derive(Default)]
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
    /// Set if a ban, which denies a key for a while after many denials, denied or began.
    banned: Option<bool>,
    result: &'static str,
    /// Why there was no limit, no answer, or not one of the store.
    reason: Option<String>,
}

/// Writes a line at a level, which must be a literal, with the result of the whole request.
macro_rules! write_line {
    ($level:ident, $message:literal, $line:expr, $overall:expr, $($field:tt)*) => {{
        let Line { domain, descriptor, rule, key, limit, hits, used_before, remaining, .. } = $line;
        let Line { retry_after_ms, banned, result, reason, .. } = $line;
        let limit = limit.map(tracing::field::display);
        let (key, reason) = (key.as_deref(), reason.as_deref());
        tracing::$level!(
            domain, descriptor, rule, key, limit, hits, used_before, remaining, retry_after_ms,
            banned, result, reason, overall = $overall, $($field)*
            $message
        );
    }};
}

#[cold]
pub(super) fn decisions(answered: &Answered<'_, '_, '_>, key_prefix: &str, overall: &'static str) {
    for (matched, decided) in answered.descriptors() {
        let line = line(answered, matched, decided, key_prefix);
        write_line!(debug, "decision", &line, overall,);
    }
}

pub(super) fn invalid(domain: &str, error: &RequestError) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let domain = shortened(domain);
        tracing::debug!(domain, %error, "invalid request");
    }
}

/// Returns the line about a descriptor. `key_prefix` is that of keys in Redis.
fn line<'a>(
    answered: &Answered<'a, '_, '_>,
    matched: &'a Matched<'_, '_>,
    decided: Decided<'a>,
    key_prefix: &str,
) -> Line<'a> {
    let Answered { request, lookup, .. } = answered;
    let rule = matched.applies.rule();
    let charge = match decided {
        Decided::Uncharged => None,
        Decided::Charged(charge, _) => Some(charge),
    };
    let mut line = Line {
        domain: shortened(request.domain),
        descriptor: descriptor(matched.descriptor.entries),
        rule: rule.map(|rule| rule.path()),
        key: charge
            .map(|charge| key_text(key_prefix, &charge.key, charge.plan, lookup.is_together())),
        hits: charge.map(|charge| hits(charge.op)),
        result: "ok",
        ..Line::default()
    };
    line.reason = match decided {
        Decided::Uncharged => match &matched.effect {
            Some(effect) => {
                if matched.is_blocked() {
                    line.result = "over_limit";
                }
                Some(controlled(effect))
            }
            None if lookup.domain.is_none() => Some("the domain has no rules".to_owned()),
            None if rule.is_some() => Some("the rule is unlimited".to_owned()),
            None => Some("no rule applies".to_owned()),
        },
        Decided::Charged(_, Err(error)) => {
            line.result = "error";
            Some(error.to_string())
        }
        Decided::Charged(charge, Ok(decision)) => {
            line.limit = charge.plan.limits().get(usize::from(decision.limit));
            line.used_before = Some(decision.used_before);
            line.remaining = Some(decision.remaining);
            line.retry_after_ms = decision.retry_after.map(|wait| wait.div_ceil(1_000));
            line.banned = decision.banned.then_some(true);
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
    line
}

/// Returns the hits of an operation, negative if they are returned.
fn hits(op: Op) -> i64 {
    match op {
        Op::Take(hits) => i64::try_from(hits).unwrap_or(i64::MAX),
        Op::Refund(hits) => -i64::try_from(hits).unwrap_or(i64::MAX),
        Op::Undo(undo) => -i64::from(undo.hits),
        Op::UpTo(up_to) => up_to.most.into(),
        Op::Add { hits, .. } => hits.into(),
        Op::Reservation(ReservationOp::Cancel(hits)) => -i64::from(hits),
        Op::Reservation(op) => {
            op.reserve().map(|reserve| reserve.most).or(op.used()).unwrap_or(0).into()
        }
    }
}

fn controlled(effect: &Effect<'_>) -> String {
    let id = &effect.control().id;
    match effect {
        Effect::Block { .. } => format!("the control {id} blocks"),
        Effect::Allow { .. } => format!("the control {id} allows"),
        Effect::Limit { .. } => format!("the control {id} changes the limit"),
    }
}

/// Returns a text of up to [`MAX_NAME_CHARS`]; a longer one ends in an ellipsis.
pub(super) fn shortened(text: &str) -> String {
    truncated_chars(text, MAX_NAME_CHARS)
}

/// `key=value,key=value`.
fn descriptor(entries: &[Entry<'_>]) -> String {
    let shown = entries
        .iter()
        .take(MAX_ENTRIES)
        .map(|(key, value)| format!("{}={}", shortened(key), shortened(&value::shown(value))));
    let text = shown.collect::<Vec<_>>().join(",");
    if entries.len() > MAX_ENTRIES { text + ",…" } else { text }
}

/// How many keys are known to have been denied in a second.
const MAX_KEYS: usize = 256;

/// Logs a sample of denied requests: the first of each second. Half of the lines are only for keys that are denied for
/// the first time in the second, so that a client that floods leaves lines to others.
#[derive(Debug)]
pub(super) struct DenialLog {
    per_second: u32,
    start: Instant,
    /// A second since the start, and below it in 32 bits the number that was logged in that second.
    logged: AtomicU64,
    /// Denials suppressed since the last one that was logged.
    suppressed: AtomicU64,
    /// Hashes of the last key at its place, and of the second.
    keys: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl DenialLog {
    /// Logs up to `per_second` denials; 0: none.
    pub fn new(per_second: u32) -> DenialLog {
        let (logged, suppressed, hasher) = Default::default();
        let keys = (0..MAX_KEYS).map(|_| AtomicU64::new(0)).collect();
        DenialLog { per_second, start: Instant::now(), logged, suppressed, keys, hasher }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.per_second > 0
    }

    /// Logs the denial of a request by the first descriptor that is over its limit.
    #[cold]
    pub fn log(&self, answered: &Answered<'_, '_, '_>, key_prefix: &str, statuses: &[Status<'_>]) {
        // At level debug there is a line about every decision.
        if tracing::enabled!(tracing::Level::DEBUG) || !tracing::enabled!(tracing::Level::INFO) {
            return;
        }
        let second = self.start.elapsed().as_secs();
        let denied = zip(answered.descriptors(), statuses).find(|(_, status)| status.over_limit);
        let Some(((matched, decided), _)) = denied else { return };
        let entries = matched.descriptor.entries;
        let is_first = self.is_first(second, answered.request.domain, entries);
        if let Some(suppressed) = self.pass(second, is_first) {
            let line = line(answered, matched, decided, key_prefix);
            write_line!(info, "request denied", &line, "over_limit", suppressed,);
        }
    }

    /// Returns whether a denial is the first of its key in a second, as far as is known.
    fn is_first(&self, second: u64, domain: &str, entries: &[Entry<'_>]) -> bool {
        let hash = self.hasher.hash_one((second, domain, entries));
        let last = &self.keys[hash as usize % MAX_KEYS];
        // Most are not the first, and only read.
        last.load(Relaxed) != hash && last.swap(hash, Relaxed) != hash
    }

    /// Returns the number suppressed since the last that was logged; none if this one is to be suppressed.
    fn pass(&self, second: u64, is_first: bool) -> Option<u64> {
        let most = if is_first { self.per_second } else { self.per_second / 2 };
        let first = second << 32;
        let counted = self.logged.fetch_update(Relaxed, Relaxed, |logged| {
            let logged = logged.max(first);
            (logged - first < u64::from(most)).then_some(logged + 1)
        });
        match counted {
            Ok(_) => Some(self.suppressed.swap(0, Relaxed)),
            Err(_) => {
                self.suppressed.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_is_shortened() {
        let long = "ä".repeat(1_000);
        let wanted = format!("{}…", "ä".repeat(MAX_NAME_CHARS - 1));
        assert_eq!(shortened(&long), wanted);
        let entries = vec![("k", long.as_str()); 100];
        let text = descriptor(&entries);
        assert!(text.starts_with(&format!("k={wanted},k={wanted},")) && text.ends_with(",…"));
        assert_eq!(text.matches("k=").count(), MAX_ENTRIES);
        assert_eq!(descriptor(&[("user", "ann"), ("path", "/a,b=c")]), "user=ann,path=/a,b=c");
        assert_eq!(descriptor(&[("user", &*value::encode(b"a\xff"))]), r"user=a\xff");
        let cut = shortened(&value::encode(&[0xff; 1_000]));
        assert_eq!(value::shown(&cut), format!("{}…", r"\xff".repeat(MAX_NAME_CHARS - 1)));
    }

    #[test]
    fn a_number_per_second_passes() {
        let log = DenialLog::new(2);
        let passed = |second| [(); 3].map(|()| log.pass(second, true));
        assert_eq!(passed(0), [Some(0), Some(0), None]);
        assert_eq!(passed(1), [Some(1), Some(0), None]);
        assert_eq!(passed(7), [Some(1), Some(0), None]);
        // Another thread may have read the clock before.
        assert_eq!(passed(6), [None; 3]);
        assert!(log.is_on() && !DenialLog::new(0).is_on());
    }

    #[test]
    fn one_key_takes_half_of_the_lines_of_a_second() {
        let log = DenialLog::new(4);
        let passes = |second, user| {
            let is_first = log.is_first(second, "d", &[("user", user)]);
            log.pass(second, is_first).is_some()
        };
        for second in 0..3 {
            assert_eq!([(); 4].map(|()| passes(second, "eve")), [true, true, false, false]);
            assert_eq!(["ann", "bob", "cid"].map(|user| passes(second, user)), [true, true, false]);
        }
        // A single line is for the first.
        let log = DenialLog::new(1);
        assert_eq!([log.pass(0, false), log.pass(0, true)], [None, Some(1)]);
    }
}
