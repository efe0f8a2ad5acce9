//! The bucket of `RL.REDUCE` at the ends of its ranges; the random schedules of the stores compare it
//! with its formula.

use super::*;

/// A bucket's packed state, on a clock in milliseconds.
struct Bucket {
    bucket: ReduceBucket,
    state: Packed,
}

impl Bucket {
    fn new(max: u32, refill: u32, interval: u64) -> Bucket {
        let bucket = ReduceBucket { max, refill, interval, strict: false, at: None };
        Bucket { bucket, state: Packed::default() }
    }

    fn charge(&mut self, bucket: ReduceBucket, now: u64, hits: u64) -> ChargeOutcome {
        let (plan, op) = (bucket.plan(), Op::Take(hits));
        assert!(plan.packs() && plan.needs_expiry() && !plan.repeats_denials());
        assert!(!plan.per_second());
        plan.charge_packed(&mut self.state, now * 1_000, op, None)
    }

    /// Returns the tokens before.
    fn take(&mut self, now: u64, hits: u64) -> u64 {
        let decision = self.charge(self.bucket, now, hits).decision;
        self.bucket.tokens_before(hits, &decision)
    }

    fn take_strictly(&mut self, now: u64, hits: u64) -> u64 {
        let bucket = ReduceBucket { strict: true, ..self.bucket };
        let decision = self.charge(bucket, now, hits).decision;
        bucket.tokens_before(hits, &decision)
    }
}

#[test]
fn refills_come_at_intervals_after_the_first_charge() {
    let mut bucket = Bucket::new(10, 3, 5_000);
    assert_eq!(bucket.take(2_000, 1), 10);
    assert_eq!(bucket.take(2_000, 5), 9);
    // More than there are: denied, and nothing is left.
    assert_eq!(bucket.take(2_000, 5), 4);
    assert_eq!(bucket.take(6_999, 1), 0);
    assert_eq!(bucket.take(7_000, 1), 3);
    assert_eq!(bucket.take(16_999, 1), 5);
    assert_eq!(bucket.take(17_000, 4), 7);
}

#[test]
fn a_strict_charge_that_leaves_nothing_restarts_the_interval() {
    let mut bucket = Bucket::new(10, 3, 5_000);
    assert_eq!(bucket.take_strictly(0, 10), 10);
    assert_eq!(bucket.take_strictly(4_000, 1), 0);
    assert_eq!(bucket.take_strictly(8_999, 1), 0);
    assert_eq!(bucket.take_strictly(13_999, 2), 3);
    // A charge that leaves some does not, and neither does one that is not strict.
    assert_eq!(bucket.take_strictly(18_998, 0), 1);
    assert_eq!(bucket.take_strictly(18_999, 1), 4);
    assert_eq!(bucket.take(20_000, 9), 3);
    assert_eq!(bucket.take(23_998, 9), 0);
    assert_eq!(bucket.take(23_999, 1), 3);
}

#[test]
fn numbers_at_the_ends_do_not_overflow() {
    let mut bucket = Bucket::new(u32::MAX, u32::MAX, 1);
    let bucket_at = |at| ReduceBucket { at: Some(at), ..bucket.bucket };
    let end = ReduceBucket::END - 1;
    let (first, last) = (bucket_at(0), bucket_at(end));
    assert_eq!(bucket.charge(first, 1, u64::MAX).decision.used_before, 0);
    assert_eq!(bucket.charge(first, 1, 1).decision.used_before, u64::from(u32::MAX));
    assert_eq!(bucket.charge(last, 1, u64::MAX).decision.used_before, 0);
    let mut slow = Bucket::new(u32::MAX, 1, u64::MAX);
    let charged = slow.charge(slow.bucket, 1, 1);
    assert_eq!(charged.expires, Micros::MAX);
    assert_eq!(slow.take(1 << 40, 0), u64::from(u32::MAX) - 1);
}

#[test]
fn waits_are_exact() {
    let mut bucket = Bucket::new(10, 3, 5_000);
    bucket.take(2_000, 10);
    let denied = bucket.charge(bucket.bucket, 3_500, 4).decision;
    assert_eq!((denied.allowed, denied.retry_after), (false, Some(8_500_000)));
    assert_eq!(bucket.take(11_999, 0), 3);
    assert_eq!(bucket.take(12_000, 0), 6);
    assert_eq!(bucket.charge(bucket.bucket, 12_000, 11).decision.retry_after, None);
}

#[test]
fn the_key_has_the_numbers_but_not_the_options_of_a_charge() {
    let bucket = ReduceBucket { max: 10, refill: 3, interval: 5_000, strict: false, at: None };
    assert_eq!(bucket.plan().shape(), "r10/3/5000ms");
    let other = ReduceBucket { strict: true, at: Some(7), ..bucket };
    assert_eq!(other.plan().shape(), bucket.plan().shape());
}

#[test]
fn replicas_share_a_bucket() {
    let share = |max, refill, interval, replicas| {
        let bucket = ReduceBucket { max, refill, interval, strict: true, at: Some(1) };
        let share = bucket.plan().replica_share(replicas);
        share.shape().to_owned()
    };
    assert_eq!(share(10, 10, 1_000, 1), "r10/10/1000ms");
    assert_eq!(share(10, 10, 1_000, 2), "r5/5/1000ms");
    assert_eq!(share(10, 1, 1_000, 3), "r4/1/3000ms");
    assert_eq!(share(10, 100, 1_000, 5), "r2/2/1000ms");
    assert_eq!(share(1, 1, u64::MAX, u32::MAX), format!("r1/1/{}ms", u64::MAX));
}
