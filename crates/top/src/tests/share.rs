//! Lists of several replicas.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use proptest::prelude::*;

use super::*;
use weir_store::StoreError;
use weir_store::shared::ReplicaTextError;
use weir_store::shared::{MAX_TEXT_BYTES, ReplicaTexts};

/// What replicas have written, as one of them sees it.
#[derive(Clone, Debug)]
struct Texts {
    own: usize,
    shared: Arc<parking_lot::Mutex<Written>>,
    published: Arc<AtomicUsize>,
    read: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Written {
    secret: Option<String>,
    texts: HashMap<usize, String>,
    error: Option<ReplicaTextError>,
}

impl Texts {
    fn of_replicas(count: usize) -> Vec<Texts> {
        let shared = Arc::default();
        let texts = |own| Texts {
            own,
            shared: Arc::clone(&shared),
            published: Arc::default(),
            read: Arc::default(),
        };
        (0..count).map(texts).collect()
    }
}

impl ReplicaTexts for Texts {
    fn tried(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn publish<'a>(
        &'a self,
        secret: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, ReplicaTextError>> {
        self.published.fetch_add(1, Ordering::Relaxed);
        let mut shared = self.shared.lock();
        if let Some(error) = &shared.error {
            return ready(Err(error.clone())).boxed();
        }
        let of_all = shared.secret.get_or_insert_with(|| secret.to_owned()).clone();
        if of_all == secret {
            shared.texts.insert(self.own, text.to_owned());
        }
        ready(Ok(of_all)).boxed()
    }

    fn others(&self) -> BoxFuture<'_, Result<Vec<String>, ReplicaTextError>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.lock();
        if let Some(error) = &shared.error {
            return ready(Err(error.clone())).boxed();
        }
        let others = shared.texts.iter().filter(|(of, _)| **of != self.own);
        ready(Ok(others.map(|(_, text)| text.clone()).collect())).boxed()
    }
}

fn replica(entries: usize) -> Arc<Top> {
    let redact = vec!["token".to_owned()];
    let options = TopOptions { entries, redact, threads: 1, share: true };
    Arc::new(Top::new(options, Arc::new(ManualClock::new(SECOND))))
}

/// Lets replicas share their lists for some seconds.
async fn share(replicas: &[Arc<Top>], texts: &[Texts], seconds: u64) {
    let shared = replicas.iter().zip(texts).map(|(top, texts)| top.share(Some(texts)));
    let time = Duration::from_millis(seconds * 1_000 - 500);
    let _ = tokio::time::timeout(time, futures_util::future::join_all(shared)).await;
}

/// Returns a list of all replicas, as one of them has it.
async fn list_all(top: &Top, texts: &Texts, query: &TopQuery<'_>) -> TopList {
    top.list_all(query, &top.others(Some(texts)).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_replica_lists_the_keys_of_all() {
    let (replicas, texts) = ([(); 3].map(|()| replica(100)), Texts::of_replicas(3));
    for (number, top) in replicas.iter().enumerate() {
        record(top, "all", 10, Outcome::Denied);
        record(top, &format!("user {number}"), number as u64 + 1, Outcome::Admitted(&[]));
        let limit = NearAdmission {
            limit: 1,
            name: "daily",
            unnamed: None,
            used: 8,
            n: 10,
            reset_after: SECOND,
        };
        let limit = NearAdmission { used: limit.used + number as u64 % 2, ..limit };
        record(top, "near", 1, Outcome::Admitted(&[limit]));
    }
    assert_eq!(replicas[0].others(None).await.unwrap_err(), NotShared::Off);
    assert_eq!(replicas[0].others(Some(&texts[0])).await.unwrap_err(), NotShared::NotYet);
    share(&replicas, &texts, 3).await;
    for (top, texts) in replicas.iter().zip(&texts) {
        let list = list_all(top, texts, &all(By::Hits)).await;
        let rows: Vec<_> = list.rows.iter().map(|row| (user(row), row.count, row.error)).collect();
        let wanted =
            [("all", 30, 0), ("near", 3, 0), ("user 2", 3, 0), ("user 1", 2, 0), ("user 0", 1, 0)];
        assert_eq!(rows, wanted);
        assert_eq!((list.scope, list.replicas, list.total, list.unlisted), (Scope::All, 3, 39, 0));
        let near = list_all(top, texts, &all(By::Near)).await.rows;
        assert_eq!((near.len(), near[0].count, near[0].near.as_ref().unwrap().used), (1, 3, 9));
        let denied = TopQuery { window: Window::Minute, limit: 1, ..all(By::Denied) };
        let denied = list_all(top, texts, &denied).await;
        assert_eq!((denied.rows.len(), denied.rows[0].count), (1, 30));
        let none = TopQuery { rule: Some("other"), ..all(By::Hits) };
        assert_eq!(list_all(top, texts, &none).await.rows, []);
    }
    assert_eq!(top_of(&replicas[0]), 10, "its own list stays");
    // A replica writes once a second, and reads at most once a second, if it is asked.
    assert!(texts.iter().all(|texts| texts.published.load(Ordering::Relaxed) == 3));
    assert!(texts.iter().all(|texts| texts.read.load(Ordering::Relaxed) == 1));
}

fn top_of(top: &Top) -> u64 {
    top.list(&all(By::Hits)).rows[0].count
}

#[tokio::test(start_paused = true)]
async fn hidden_values_leave_a_replica_as_equal_hashes_only() {
    let (replicas, texts) = ([(); 2].map(|()| replica(100)), Texts::of_replicas(2));
    let long = format!("s3cret{}", "x".repeat(2_000));
    for top in &replicas {
        for token in ["s3cret", &long] {
            let (domain, entries) = ("d", &[("token", token), ("user", "ann")][..]);
            let outcome = Outcome::Admitted(&[]);
            top.record(&Recorded { domain, entries, rule: "token_s3cret", hits: 2, outcome });
        }
    }
    share(&replicas, &texts, 2).await;
    let list = list_all(&replicas[0], &texts[0], &all(By::Hits)).await;
    assert_eq!((list.replicas, list.rows.len()), (2, 2), "{list:?}");
    assert!(list.rows.iter().all(|row| row.count == 4 && row.error == 0), "{list:?}");
    let written = texts[0].shared.lock();
    let secret = written.secret.clone().unwrap();
    assert_eq!(written.texts.len(), 2);
    for text in written.texts.values() {
        assert!(text.contains("hash:") && text.contains("ann"), "{text}");
        assert!(!text.contains("s3c") && !text.contains(&secret), "{text}");
    }
    let shown = |top: &Top| top.redaction().value(("token", "s3cret"), 0);
    assert_eq!(shown(&replicas[0]), shown(&replicas[1]));
    assert_ne!(shown(&replicas[0]), shown(&replica(1)), "others have another secret");
    assert!(!format!("{:?} {:?}", replicas[0], replicas[0].redaction()).contains(&secret));
}

#[tokio::test(start_paused = true)]
async fn rules_that_count_the_same_entries_have_rows_of_their_own() {
    let (replicas, texts) = ([(); 2].map(|()| replica(100)), Texts::of_replicas(2));
    for top in &replicas {
        for (rule, hits) in [("user", 1), ("user.call", 2), ("user", 1)] {
            let entries = &[("user", "ann")];
            top.record(&Recorded { domain: "d", entries, rule, hits, outcome: Outcome::Denied });
        }
    }
    share(&replicas, &texts, 2).await;
    let list = list_all(&replicas[0], &texts[0], &all(By::Denied)).await;
    let rows: Vec<_> = list.rows.iter().map(|row| (row.rule.as_deref(), row.count)).collect();
    assert_eq!(rows, [(Some("user"), 4), (Some("user.call"), 4)]);
}

#[tokio::test(start_paused = true)]
async fn where_the_store_refuses_or_fails_each_replica_has_its_own_lists() {
    let (replicas, texts) = ([replica(10)], Texts::of_replicas(1));
    let (top, texts) = (&replicas[0], &texts[..1]);
    record(top, "ann", 1, Outcome::Denied);
    let fail = |error| texts[0].shared.lock().error = error;
    fail(Some(StoreError::Unavailable.into()));
    share(&replicas, texts, 3).await;
    assert_eq!(top.others(Some(&texts[0])).await.unwrap_err(), NotShared::NotYet);
    fail(None);
    share(&replicas, texts, 1).await;
    assert!(top.others(Some(&texts[0])).await.is_ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    fail(Some(StoreError::TimedOut.into()));
    let failed = NotShared::Store(StoreError::TimedOut);
    assert_eq!(top.others(Some(&texts[0])).await.unwrap_err(), failed);
    fail(Some(ReplicaTextError::Refused("NOPERM".into())));
    texts[0].published.store(0, Ordering::Relaxed);
    share(&replicas, texts, 30).await;
    assert_eq!(texts[0].published.load(Ordering::Relaxed), 1, "it is off");
    assert_eq!(top.others(Some(&texts[0])).await.unwrap_err(), NotShared::Refused);
}

#[tokio::test(start_paused = true)]
async fn texts_that_no_replica_wrote_are_ignored() {
    let (replicas, texts) = ([(); 2].map(|()| replica(10)), Texts::of_replicas(2));
    replicas.iter().for_each(|top| record(top, "ann", 1, Outcome::Denied));
    share(&replicas, &texts, 2).await;
    let text = texts[1].shared.lock().texts[&1].clone();
    let altered = |from: &str, to: &str| text.replace(from, to);
    let of_another_secret = Top::new(
        TopOptions { entries: 1, redact: Vec::new(), threads: 1, share: true },
        Arc::new(ManualClock::new(0)),
    );
    for (text, replicas_merged) in [
        (text.clone(), 2),
        (String::new(), 1),
        ("{}".to_owned(), 1),
        (altered("\"version\":1", "\"version\":2"), 1),
        (of_another_secret.shared_text().1, 1),
        // Rows of keys that there are not, and with counts that cannot be, are not listed.
        (altered("[0,1,0]", "[9,1,0]"), 2),
        (altered("[0,1,0]", "[0,1,2]"), 2),
    ] {
        texts[0].shared.lock().texts.insert(1, text.clone());
        tokio::time::advance(Duration::from_secs(1)).await;
        let list = list_all(&replicas[0], &texts[0], &all(By::Hits)).await;
        assert_eq!((list.replicas, list.rows.len()), (replicas_merged, 1), "{text}");
    }
}

#[test]
fn a_text_has_no_more_than_fits() {
    let top = replica(1_024);
    let texts = |length: usize| {
        for number in 0..1_000_u64 {
            let (domain, value) = ("d", format!("{number:0length$}\u{1}\u{1}"));
            let (entries, outcome) = (&[("user", value.as_str())][..], Outcome::Denied);
            top.record(&Recorded { domain, entries, rule: "user", hits: 1 + number, outcome });
        }
        top.shared_text().1
    };
    let short = texts(4);
    assert!(short.len() < MAX_TEXT_BYTES / 2, "{}", short.len());
    assert_eq!(short.matches("\"user\",\"").count(), 100, "keys of several lists are written once");
    let long = texts(400);
    assert!((MAX_TEXT_BYTES / 4..=MAX_TEXT_BYTES).contains(&long.len()), "{}", long.len());
}

proptest! {
    #[test]
    fn counts_of_all_replicas_are_within_the_reported_error(
        hits in prop::collection::vec((0..3_usize, any::<u16>(), any::<u8>(), 1..20_u64), 1..3_000),
        entries in 1..300_usize,
        asked in 0..3_usize,
    ) {
        let replicas = [(); 3].map(|()| replica(entries));
        let mut exact: HashMap<String, u64> = HashMap::new();
        for (replica, a, b, hits) in hits {
            let user = (u32::from(a) * u32::from(b) / 65_536).to_string();
            record(&replicas[replica], &user, hits, Outcome::Denied);
            *exact.entry(user).or_default() += hits;
        }
        let secret = replicas[asked].redaction.secret();
        let others = replicas.iter().enumerate().filter(|(number, _)| *number != asked);
        let texts = others.map(|(_, top)| {
            assert!(top.redaction.adopt(&secret));
            top.shared_text().1
        });
        let others = Others::read(&texts.collect::<Vec<_>>());
        for (by, window) in [(By::Hits, Window::Minute), (By::Denied, Window::Hour)] {
            let list = replicas[asked].list_all(&TopQuery { window, ..all(by) }, &others);
            prop_assert_eq!(list.replicas, 3);
            check(&list, &exact);
        }
    }
}
