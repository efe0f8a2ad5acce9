//! Clients of the quota service that no Envoy is.

use std::time::Instant;

use tokio::time::timeout;
use tonic::{Code, Status};
use weir::proto::envoy::service::rate_limit_quota::v3::RateLimitQuotaUsageReports;
use weir::proto::weir::budget::v1::Entry;

use super::clients::{Stream, report, usage};
use super::*;
use crate::support::api::request;
use crate::support::load::Sample;
use crate::support::wait_until;

/// The buckets of one message: half a megabyte.
const BUCKETS_AT_ONCE: u64 = 10_000;

/// By how much the memory of weir may grow: the buckets of all streams, their keys, and some messages.
const MAX_GROWTH: u64 = 256 << 20;

/// Sends messages on a new stream. Returns what it ends with.
async fn end_of(to: SocketAddr, messages: Vec<RateLimitQuotaUsageReports>) -> Status {
    let mut stream = Stream::open(to).await.expect("a stream");
    for message in messages {
        // The stream may have ended already.
        let _ = stream.reports.send(message).await;
    }
    let ending = async {
        loop {
            match stream.actions.message().await {
                Ok(message) => assert!(message.is_some(), "the stream has ended without an error"),
                Err(status) => return status,
            }
        }
    };
    // A silent one takes five minutes.
    timeout(Duration::from_secs(330), ending).await.expect("the stream ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_reports_end_their_stream() {
    let weir = quotas(SHORT).start();
    let named = |domain| report(domain, vec![usage("one", 0, 1)]);
    let with_entries = |entries: Vec<Entry>| {
        let mut usage = usage("one", 0, 1);
        usage.bucket_id.as_mut().expect("an id").bucket = entries;
        report("shop", vec![usage])
    };
    let entry = |key: String, bytes| Entry { key, value: vec![b'v'; bytes] };
    let many = (0..17).map(|number| entry(format!("k{number}"), 1)).collect();
    let twice = (0..2).map(|_| entry("user".to_owned(), 1)).collect();
    let large = vec![entry("user".to_owned(), 5_000)];
    for (what, messages) in [
        ("no domain", vec![named("")]),
        ("another domain", vec![named("shop"), named("other")]),
        ("an empty id", vec![with_entries(Vec::new())]),
        ("17 entries", vec![with_entries(many)]),
        ("a key twice", vec![with_entries(twice)]),
        ("a long id", vec![with_entries(large)]),
        ("a long domain", vec![named(&"d".repeat(4_097))]),
    ] {
        let status = end_of(weir.grpc, messages).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
    }
    // A message that is too large is not read.
    let long = "u".repeat(1_000);
    let usages = (0..5_000).map(|number| usage(&format!("{long}{number}"), 0, 1)).collect();
    let status = end_of(weir.grpc, vec![report("shop", usages)]).await;
    println!("a message of 5 MB: {status}");
    wait_until("streams are closed", async || weir.metric("weir_rlqs_streams") == 0).await;
    assert!(weir.is_healthy());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_an_error_names_it() {
    let weir = serving(&SHORT.rules()).start();
    let refused = Stream::open(weir.grpc).await.err().expect("a status");
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    assert!(refused.message().contains("set rlqs.enabled = true"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_maximum_are_refused() {
    let weir = quotas(SHORT).env("WEIR__RLQS__MAX_STREAMS", "4").start();
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(Stream::open(weir.grpc).await.expect("a stream"));
    }
    let refused = Stream::open(weir.grpc).await.err().expect("a status");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    streams.pop();
    wait_until("another one is accepted", async || Stream::open(weir.grpc).await.is_ok()).await;
}

/// Reports as many hits as there are numbers, of many buckets. Returns the number of actions.
async fn flood(to: SocketAddr, buckets: u64) -> u64 {
    let Stream { reports, mut actions } = Stream::open(to).await.expect("a stream");
    let reading = tokio::spawn(async move {
        let mut count = 0;
        loop {
            match actions.message().await {
                Ok(Some(message)) => count += message.bucket_action.len() as u64,
                ended => {
                    println!("  the stream ends: {:?}", ended.err());
                    return count;
                }
            }
        }
    });
    for first in (0..buckets).step_by(BUCKETS_AT_ONCE as usize) {
        let numbers = first..(first + BUCKETS_AT_ONCE).min(buckets);
        let usages = numbers.map(|number| usage(&format!("u{number}"), u64::MAX, u64::MAX));
        if reports.send(report("shop", usages.collect())).await.is_err() {
            break;
        }
    }
    // A second report of the same buckets, whose sums would overflow.
    let again = (0..10).map(|number| usage(&format!("u{number}"), u64::MAX, u64::MAX));
    let _ = reports.send(report("shop", again.collect())).await;
    drop(reports);
    reading.await.expect("it read to the end")
}

#[tokio::test(flavor = "multi_thread")]
async fn many_ids_and_huge_reports_stop_neither_weir_nor_its_callers() {
    // Excess is charged where the fallback allows, too.
    let weir = quotas(SHORT).env("WEIR__RLQS__FALLBACK", "allow").start();
    let (streams, buckets) = if is_long() { (4, 250_000) } else { (2, 15_000) };
    let before = weir.resident_bytes() as u64;
    let silence = is_long().then(|| tokio::spawn(wait_in_silence(weir.grpc)));
    let callers = Load::start(weir.grpc, 50, &[request("shop", &[("user", "caller")])]);
    let floods: Vec<_> = (0..streams).map(|_| tokio::spawn(flood(weir.grpc, buckets))).collect();
    let (mut actions, mut most) = (0, 0);
    for flood in floods {
        while !flood.is_finished() {
            most = most.max(weir.metric("weir_rlqs_buckets"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        actions += flood.await.expect("it ran to its end");
    }
    let calls = callers.stop();
    let answered = |call: &&Sample| matches!(call.got, Got::Ok | Got::OverLimit);
    let (sent, answers) = (calls.len(), calls.iter().filter(answered).count());
    let longest = calls.iter().map(|call| call.took).max().expect("some were sent");
    let growth = weir.peak_memory().saturating_sub(before);
    println!(
        "{streams} streams of {buckets} ids: {actions} actions, at most {most} buckets, {growth} bytes more; \
         {answers} of {sent} calls answered, the slowest after {longest:?}"
    );
    assert!(actions > 0 && answers == sent, "{actions} actions, {answers} of {sent} answers");
    assert!(most <= streams * 10_000 + 1, "{most}");
    assert!(growth < MAX_GROWTH, "{growth}");
    if let Some(silence) = silence {
        silence.await.expect("the silent stream ends");
    }
    wait_until("streams are closed", async || weir.metric("weir_rlqs_streams") == 0).await;
    assert_eq!(weir.metric("weir_rlqs_buckets"), 0);
    assert!(weir.is_healthy());
}

/// Reports once, then nothing: the stream ends after five minutes.
async fn wait_in_silence(to: SocketAddr) {
    let opened = Instant::now();
    let status = end_of(to, vec![report("shop", vec![usage("silent", 0, 1)])]).await;
    println!("  silence: after {:?}: {status}", opened.elapsed());
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(opened.elapsed() >= Duration::from_secs(299), "{:?}", opened.elapsed());
}
