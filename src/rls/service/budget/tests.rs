use std::sync::Arc;

use futures_util::FutureExt;

use super::messages::{MAX_ENTRIES, MAX_ID_BYTES};
use super::*;
use crate::rls::service::{Permissions, Protocol, ResponseOptions};
use pb::reserve_response::Code;
use pb::settle_response::Result as Settled;
use weir_common::clock::ManualClock;
use weir_common::entry::OwnedEntry;
use weir_controls::{Action, ActiveRules, Control};
use weir_limit::SECOND;
use weir_limiter::{Limiter, RequestDecision};
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;
use weir_store::StoreError;
use weir_store::conformance::fakes::Fake;
use weir_store::memory::MemoryStore;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: daily, unit: day, requests_per_unit: 100 }
  - key: team
    rate_limit: { unit: hour, requests_per_unit: 100 }
    reserve: { id: call, settle: end, estimate: 10, at_least: 5, at_most: 40 }
  - key: one
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: other_quota
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: model
    value: gpt*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: gateway
    rate_limit: { unit: hour, requests_per_unit: 100 }
    reserve: { id: call, estimate: 10 }
  - key: flight
    rate_limit: { algorithm: concurrency, requests_per_unit: 3, hold_timeout: 1h }
  - key: leaky
    rate_limit: { algorithm: leaky_bucket, unit: hour, requests_per_unit: 3 }
  - key: token
    rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 3 }
";

type Memory = MemoryStore<Arc<ManualClock>>;

struct Bench {
    service: RateLimit<Arc<Fake<Memory>>>,
    store: Arc<Fake<Memory>>,
    active: Arc<ActiveRules>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Permissions::default())
    }

    fn with(permissions: Permissions) -> Bench {
        let clock = Arc::new(ManualClock::new(1_700_006_400 * SECOND));
        let store = Fake::new(MemoryStore::new(clock, 1_000));
        let limiter =
            Arc::new(Limiter::new(store.clone(), weir_limiter::LimiterOptions::default()));
        let file = RuleFile { name: "test.yaml".into(), text: RULES.into() };
        let (rules, problems) =
            RuleSet::compile(&[file], &weir_rules::RuleOptions::default(), None);
        assert_eq!(problems, []);
        let options = ResponseOptions { permissions, ..ResponseOptions::default() };
        let active = Arc::new(ActiveRules::of(rules));
        let service = RateLimit::new(limiter, active.clone(), options);
        Bench { service, store, active }
    }

    /// Allows all descriptors with an entry of a key.
    fn allow(&self, key: &str, count: bool) {
        self.active.set_controls(vec![Arc::new(Control {
            id: "allow".into(),
            domain: "d".into(),
            entries: OwnedEntry::copied([(key, "x")].into_iter()),
            exact: false,
            text: false,
            action: Action::Allow { count },
            except: Vec::new(),
            until: None,
            reason: String::new(),
            by: String::new(),
            at: 0,
        })]);
    }

    async fn ask<R: BudgetRequest>(&self, request: &R) -> Result<R::Response, RequestError> {
        self.service.budget(request, &BudgetCall::default(), &mut Holds::default()).await
    }

    async fn reserve(&self, of: &[&str], id: &str, amount: u64) -> pb::ReserveResponse {
        self.ask(&reserve(of, id, amount)).await.unwrap()
    }

    async fn settle(&self, of: &[&str], id: &str, amount: u64) -> (Settled, u32, u32) {
        shown(&self.ask(&settle(of, id, amount)).await.unwrap())
    }

    async fn cancel(&self, of: &[&str], id: &str) -> (Settled, u32, u32) {
        let request =
            pb::CancelRequest { domain: "d".into(), descriptors: some(of), id: id.into() };
        shown(&self.ask(&request).await.unwrap())
    }

    async fn error<R: BudgetRequest>(&self, request: &R) -> String {
        self.ask(request).await.map(drop).unwrap_err().to_string()
    }

    /// Returns what remains, by settling what nobody has reserved.
    async fn left(&self, of: &str) -> u32 {
        self.settle(&[of], "nobody's", 0).await.2
    }
}

fn shown(response: &pb::SettleResponse) -> (Settled, u32, u32) {
    (response.result(), response.charged, response.remaining)
}

/// Returns descriptors of one entry each, all of one value.
fn some(of: &[&str]) -> Vec<pb::Descriptor> {
    let entry = |key: &&str| pb::Entry { key: (*key).to_owned(), value: "x".into() };
    of.iter().map(|key| pb::Descriptor { entries: vec![entry(key)] }).collect()
}

fn reserve(of: &[&str], id: &str, amount: u64) -> pb::ReserveRequest {
    pb::ReserveRequest { domain: "d".into(), descriptors: some(of), id: id.into(), amount }
}

fn settle(of: &[&str], id: &str, amount: u64) -> pb::SettleRequest {
    pb::SettleRequest { domain: "d".into(), descriptors: some(of), id: id.into(), amount }
}

fn reserved(response: &pb::ReserveResponse) -> Vec<(Code, u32, u32)> {
    response.statuses.iter().map(|it| (it.code(), it.reserved, it.remaining)).collect()
}

#[tokio::test]
async fn what_is_reserved_is_settled_once() {
    let bench = Bench::new();
    let first = bench.reserve(&["user"], "a", 30).await;
    assert_eq!((first.code(), first.id.as_str()), (Code::Ok, "a"));
    assert_eq!(reserved(&first), [(Code::Ok, 30, 70)]);
    assert_eq!(first.statuses[0].limit_name, "daily");
    assert_eq!(first.statuses[0].retry_after, None);
    // The same request again.
    assert_eq!(reserved(&bench.reserve(&["user"], "a", 30).await), [(Code::Ok, 30, 70)]);
    assert_eq!(bench.settle(&["user"], "a", 12).await, (Settled::Settled, 12, 88));
    assert_eq!(bench.settle(&["user"], "a", 12).await, (Settled::Unknown, 0, 88));
    assert_eq!(bench.cancel(&["user"], "a").await, (Settled::Unknown, 0, 88));
    // More than was reserved, and nothing at all.
    assert_eq!(bench.reserve(&["user"], "b", 5).await.code(), Code::Ok);
    assert_eq!(bench.settle(&["user"], "b", 8).await, (Settled::Settled, 8, 80));
    assert_eq!(bench.reserve(&["user"], "c", 5).await.code(), Code::Ok);
    assert_eq!(bench.cancel(&["user"], "c").await, (Settled::Settled, 0, 80));
}

#[tokio::test]
async fn an_amount_is_cut_to_what_the_rule_reserves() {
    let bench = Bench::new();
    for (amount, reserved) in [(0, 10), (1, 5), (30, 30), (50, 40), (u32::MAX.into(), 40)] {
        let id = amount.to_string();
        let answer = bench.reserve(&["team"], &id, amount).await;
        assert_eq!(answer.statuses[0].reserved, reserved, "{amount}");
        assert_eq!(bench.cancel(&["team"], &id).await.2, 100);
    }
    // Without `reserve` in the rule, half of its limit.
    assert_eq!(bench.reserve(&["user"], "", 0).await.statuses[0].reserved, 1);
    assert_eq!(bench.reserve(&["user"], "", 80).await.statuses[0].reserved, 50);
}

#[tokio::test]
async fn over_the_limit_nothing_stays_reserved() {
    let bench = Bench::new();
    assert_eq!(bench.reserve(&["one"], "first", 1).await.code(), Code::Ok);
    let denied = bench.reserve(&["user", "one"], "second", 40).await;
    assert_eq!((denied.code(), denied.statuses[0].reserved), (Code::OverLimit, 0));
    let one = &denied.statuses[1];
    assert_eq!((one.code(), one.reserved, one.remaining), (Code::OverLimit, 0, 0));
    // An hour has just begun.
    assert_eq!(one.retry_after, Some(prost_types::Duration { seconds: 3_600, nanos: 0 }));
    assert_eq!(one.reset_after, one.retry_after);
    assert_eq!(bench.left("user").await, 100);
    assert_eq!(bench.settle(&["user", "one"], "second", 3).await.0, Settled::Unknown);
    assert_eq!(bench.left("user").await, 100);
}

#[tokio::test]
async fn what_is_allowed_has_no_wait() {
    let bench = Bench::new();
    bench.reserve(&["watched"], "first", 1).await;
    let answer = bench.reserve(&["watched"], "second", 1).await;
    assert_eq!(reserved(&answer), [(Code::Ok, 0, 0)]);
    assert_eq!(answer.statuses[0].retry_after, None);
    bench.reserve(&["one"], "first", 1).await;
    bench.allow("one", true);
    let answer = bench.reserve(&["one"], "second", 1).await;
    assert_eq!((reserved(&answer), answer.statuses[0].retry_after), (vec![(Code::Ok, 0, 0)], None));
}

#[tokio::test]
async fn descriptors_of_one_key_are_invalid() {
    let bench = Bench::new();
    let descriptors = |entries: &[&[(&str, &str)]]| {
        let entry =
            |(key, value): &(&str, &str)| pb::Entry { key: (*key).into(), value: (*value).into() };
        let one = |it: &&[(&str, &str)]| pb::Descriptor { entries: it.iter().map(entry).collect() };
        entries.iter().map(one).collect::<Vec<_>>()
    };
    let ask = async |descriptors: &[pb::Descriptor]| {
        let request =
            pb::ReserveRequest { descriptors: descriptors.to_vec(), ..reserve(&[], "a", 5) };
        bench.ask(&request).await.map(drop).map_err(|error| error.to_string())
    };
    for (first, second) in [
        ([("user", "x")].as_slice(), [("user", "x")].as_slice()),
        (&[("model", "gpt-4")], &[("model", "gpt-5")]),
        (&[("team", "x")], &[("team", "x"), ("call", "1")]),
    ] {
        let text = ask(&descriptors(&[&[("user", "y")], first, second])).await.unwrap_err();
        assert!(text.starts_with("descriptor 2: its rule counts it under the key"), "{text}");
    }
    assert_eq!(
        ask(&descriptors(&[&[("user", "x")], &[("user", "y")], &[("team", "x")]])).await,
        Ok(())
    );
    // What was invalid has reserved nothing.
    assert_eq!((bench.left("user").await, bench.left("team").await), (95, 95));
}

#[tokio::test]
async fn several_descriptors_are_settled_together() {
    let bench = Bench::new();
    let both = ["user", "team"];
    assert_eq!(
        reserved(&bench.reserve(&both, "a", 30).await),
        [(Code::Ok, 30, 70), (Code::Ok, 30, 70)]
    );
    assert_eq!(bench.settle(&["user"], "a", 10).await, (Settled::Settled, 10, 90));
    assert_eq!(bench.settle(&both, "a", 20).await, (Settled::Unknown, 0, 80));
    assert_eq!((bench.left("user").await, bench.left("team").await), (90, 80));
}

#[tokio::test]
async fn what_has_reserved_nothing_makes_the_settlement_unknown() {
    let bench = Bench::new();
    for (tight, wide) in [("watched", "user"), ("quota", "other_quota")] {
        bench.reserve(&[tight], "first", 1).await;
        let both = [tight, wide];
        let reserved = reserved(&bench.reserve(&both, "a", 30).await);
        assert_eq!((reserved[0].1, reserved[1]), (0, (Code::Ok, 30, 70)), "{tight}");
        assert_eq!(bench.settle(&both, "a", 20).await, (Settled::Unknown, 0, 0), "{tight}");
        assert_eq!(bench.left(wide).await, 80, "{tight}");
    }
}

#[tokio::test]
async fn an_allowance_that_does_not_count_charges_nothing() {
    let bench = Bench::new();
    for (count, charged) in [(true, 12), (false, 0)] {
        assert_eq!(bench.reserve(&["user"], "a", 30).await.code(), Code::Ok);
        bench.allow("user", count);
        assert_eq!(bench.settle(&["user"], "a", 12).await.1, charged);
        bench.active.set_controls(Vec::new());
        assert_eq!(bench.left("user").await, 88);
    }
}

#[tokio::test]
async fn an_id_with_another_amount_is_invalid() {
    let bench = Bench::new();
    assert_eq!(bench.reserve(&["team"], "a", 30).await.code(), Code::Ok);
    let text = bench.error(&reserve(&["user", "team"], "a", 20)).await;
    assert!(text.contains("another amount"), "{text}");
    assert_eq!((bench.left("user").await, bench.left("team").await), (100, 70));
    assert_eq!(bench.settle(&["team"], "a", 5).await, (Settled::Settled, 5, 95));
}

#[tokio::test]
async fn ids_are_made_where_there_is_none() {
    let bench = Bench::new();
    let first = bench.reserve(&["user"], "", 10).await;
    let second = bench.reserve(&["user"], "", 10).await;
    assert!(first.id.len() == 32 && second.id.len() == 32 && first.id != second.id);
    assert_eq!(bench.settle(&["user"], &first.id, 1).await, (Settled::Settled, 1, 89));
}

#[tokio::test]
async fn invalid_requests_say_what_to_send_instead() {
    let bench = Bench::new();
    let long = "x".repeat(MAX_ID_BYTES + 1);
    let nameless = pb::ReserveRequest { domain: String::new(), ..reserve(&["user"], "a", 1) };
    let cases = [
        (nameless, "domain must not be empty"),
        (reserve(&[], "a", 1), "descriptor list must not be empty"),
        (reserve(&["other"], "a", 1), "descriptor 0: no rule applies"),
        (reserve(&["user", "free"], "a", 1), "descriptor 1: its rule is unlimited"),
        (reserve(&["flight"], "a", 1), "descriptor 0: its rule cannot reserve"),
        (reserve(&["user", "leaky"], "a", 1), "descriptor 1: its rule cannot reserve"),
        (reserve(&["token"], "a", 1), "use sliding_window for minutes, fixed_window for days"),
        (reserve(&["user"], &long, 1), "longer than 1024 bytes"),
        (reserve(&["user"], "a", 1 << 32), "amount is above 4294967295"),
        (reserve(&["user"; MAX_ENTRIES + 1], "a", 1), "more than 64 entries"),
    ];
    for (request, expected) in cases {
        let text = bench.error(&request).await;
        assert!(text.contains(expected), "{text}");
    }
    assert!(bench.error(&settle(&["user"], "", 1)).await.contains("id is empty"));
    assert!(bench.error(&settle(&["user"], "a", 1 << 32)).await.contains("amount is above"));
    let invalid = bench.service.limiter.counts().invalid.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(invalid, 12);
    assert_eq!(bench.left("user").await, 100);
    assert_eq!(bench.reserve(&["user"], &long[1..], 1).await.code(), Code::Ok);
}

#[tokio::test]
async fn settling_needs_the_permission_of_refunds_or_a_token() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let permissions =
            Permissions { protocol, allow_negative_hits: false, ..Permissions::default() };
        let bench = Bench::with(permissions);
        assert_eq!(bench.reserve(&["user"], "a", 30).await.code(), Code::Ok);
        let cancel =
            pb::CancelRequest { domain: "d".into(), descriptors: some(&["user"]), id: "a".into() };
        for text in [bench.error(&settle(&["user"], "a", 1)).await, bench.error(&cancel).await] {
            let setting = match protocol {
                Protocol::Grpc => "grpc.allow_negative_hits",
                _ => "http.allow_negative_hits",
            };
            assert!(text.contains(setting), "{text}");
        }
        let call = BudgetCall { may_settle: true, ..BudgetCall::default() };
        let request = settle(&["user"], "a", 1);
        let settled = bench.service.budget(&request, &call, &mut Holds::default()).await.unwrap();
        assert_eq!(shown(&settled), (Settled::Settled, 1, 99));
    }
}

#[tokio::test]
async fn settling_by_descriptor_needs_the_permission_of_refunds() {
    for (protocol, setting) in
        [(Protocol::Grpc, "grpc."), (Protocol::Http, "http."), (Protocol::Resp, "resp.")]
    {
        for allow_negative_hits in [true, false] {
            let permissions =
                Permissions { protocol, allow_negative_hits, ..Permissions::default() };
            let bench = Bench::with(permissions);
            let ask = async |entries: &[(&str, &str)]| {
                let descriptors = [Descriptor { entries, ..Descriptor::default() }];
                let mut request =
                    Request { domain: "d", descriptors: &descriptors, ..Request::default() };
                let remaining =
                    |_: &Request<'_>, it: &RequestDecision<'_>, _: &_| it.statuses[0].remaining;
                let mut holds = Holds::default();
                let decided = bench.service.decide(&mut request, None, &mut holds, remaining);
                decided.await.map_err(|error| error.to_string())
            };
            let (team, gateway) =
                ([("team", "x"), ("call", "1"), ("end", "")], [("gateway", "x"), ("call", "1")]);
            for (start, end) in [(&team[..2], &team[..]), (&gateway, &gateway)] {
                assert_eq!(ask(start).await, Ok(90));
                match ask(end).await {
                    Ok(left) => assert_eq!(
                        (left, allow_negative_hits),
                        (if start == end { 100 } else { 90 }, true)
                    ),
                    Err(text) => {
                        assert!(!allow_negative_hits, "{text}");
                        let expected =
                            format!("settling is disabled (setting {setting}allow_negative_hits)");
                        assert_eq!(text, format!("descriptor 0: {expected}"));
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_fails_is_an_error() {
    let bench = Bench::new();
    assert_eq!(bench.reserve(&["user"], "a", 30).await.code(), Code::Ok);
    bench.store.fail(|_| Some(StoreError::Unavailable));
    let failed = Err(RequestError::Store(StoreError::Unavailable));
    assert_eq!(bench.ask(&reserve(&["user"], "b", 30)).await, failed);
    assert_eq!(bench.ask(&settle(&["user"], "a", 30)).await.map(drop), failed.clone().map(drop));
    bench.store.fail(|_| None);
    assert_eq!(bench.settle(&["user"], "a", 20).await, (Settled::Settled, 20, 80));
}

#[tokio::test]
async fn what_is_reserved_for_an_answer_that_nobody_gets_is_returned() {
    let bench = Bench::new();
    let mut holds = Holds::default();
    let request = reserve(&["user"], "a", 30);
    let answer = bench.service.budget(&request, &BudgetCall::default(), &mut holds).await;
    assert!(answer.is_ok() && bench.left("user").await == 70);
    // One descriptor is reserved, and the store fails at the other.
    bench
        .store
        .fail(|charge| (charge.key.entries[0].0 == "team").then_some(StoreError::OutOfMemory));
    assert!(bench.ask(&reserve(&["user", "team"], "b", 20)).await.is_err());
    bench.store.fail(|_| None);
    assert_eq!(bench.left("user").await, 70);
    bench.service.release(holds.expect("hits are reserved")).await;
    assert_eq!(bench.left("user").await, 100);
}

#[tokio::test]
async fn a_guard_returns_reserved_hits_unless_it_is_kept() {
    use super::super::HoldGuard;
    let bench = Bench::new();
    for (is_kept, left) in [(true, 70), (false, 70)] {
        let (request, mut holds) = (reserve(&["user"], &is_kept.to_string(), 30), Holds::default());
        bench.service.budget(&request, &BudgetCall::default(), &mut holds).await.unwrap();
        let guard = HoldGuard::new(&bench.service, holds);
        let copy = guard.clone();
        match is_kept {
            true => guard.keep(),
            false => drop(guard),
        }
        tokio::task::yield_now().await;
        drop(copy);
        tokio::task::yield_now().await;
        assert_eq!(bench.left("user").await, left, "{is_kept}");
    }
}

/// Without a runtime, nothing is left to do in the background.
#[test]
fn what_a_denied_request_has_reserved_is_cancelled_at_once() {
    let bench = Bench::new();
    let ask = |descriptors: &[&[(&str, &str)]], hits| {
        let descriptors = descriptors.iter().map(|entries| Descriptor {
            entries,
            hits_addend: Some(hits),
            ..Descriptor::default()
        });
        let descriptors: Vec<_> = descriptors.collect();
        let mut request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let then = |_: &Request<'_>, decision: &RequestDecision<'_>, _: &_| {
            (decision.over_limit, decision.statuses[0].remaining)
        };
        let mut holds = Holds::default();
        let decided = bench.service.decide(&mut request, None, &mut holds, then).now_or_never();
        decided.expect("memory answers at once").unwrap()
    };
    let (first, second) = ([("team", "x"), ("call", "1")], [("team", "x"), ("call", "2")]);
    assert!(!ask(&[&first], 10).0);
    assert_eq!(ask(&[&[("team", "x")]], 0), (false, 90));
    assert!(ask(&[&second, &[("one", "x")]], 10).0);
    assert_eq!(ask(&[&[("team", "x")]], 0), (false, 90));
}
