//! Bans against a model that keeps every strike and every ban.

use proptest::prelude::*;

use super::*;

/// All strikes and bans of a key.
#[derive(Default)]
struct History {
    strikes: Vec<Micros>,
    bans: Vec<(Micros, Micros)>,
}

impl History {
    fn banned_until(&self, now: Micros) -> Option<Micros> {
        let lasting = |&&(began, until): &&(Micros, Micros)| (began..until).contains(&now);
        self.bans.iter().find(lasting).map(|&(_, until)| until)
    }

    /// The strikes that count at an instant, oldest first: those of the last ban do not.
    fn counting(&self, ban: &Ban, now: Micros) -> Vec<Micros> {
        let since = self.bans.last().map(|&(began, _)| began);
        let mut counting: Vec<Micros> = Vec::new();
        for &strike in self.strikes.iter().filter(|at| since.is_none_or(|since| **at > since)) {
            if counting.first().is_some_and(|first| strike - first >= ban.within) {
                counting.clear();
            }
            counting.push(strike);
        }
        match counting.first() {
            Some(first) if now - first >= ban.within => Vec::new(),
            _ => counting,
        }
    }

    /// The bans in a row at an instant.
    fn in_a_row(&self, ban: &Ban, now: Micros) -> usize {
        let forget = if ban.lengths.len() > 1 { ban.forget } else { 0 };
        let mut next = now;
        let row = self.bans.iter().rev().take_while(|&&(began, until)| {
            let counts = next < until + forget;
            next = began;
            counts
        });
        row.count()
    }

    fn strike(&mut self, ban: &Ban, now: Micros) {
        self.strikes.push(now);
        if self.counting(ban, now).len() >= usize::from(ban.after) {
            let step = self.in_a_row(ban, now).min(ban.lengths.len() - 1);
            self.bans.push((now, now + ban.lengths[step]));
        }
    }
}

/// How time passes: from the edges of what a ban counts by.
#[derive(Clone, Copy, Debug)]
enum Pass {
    Micros(Micros),
    Within(i64),
    Length(usize, i64),
    Forget(i64),
    /// To the end of the ban, if there is one.
    End(i64),
}

fn steps() -> impl Strategy<Value = Vec<(Pass, Op)>> {
    let edge = || -1_i64..=1;
    let pass = prop_oneof![
        6 => Just(Pass::Micros(0)),
        4 => (0..2 * SECOND).prop_map(Pass::Micros),
        2 => (0..100 * SECOND).prop_map(Pass::Micros),
        2 => edge().prop_map(Pass::Within),
        2 => (0_usize..4, edge()).prop_map(|(at, edge)| Pass::Length(at, edge)),
        1 => edge().prop_map(Pass::Forget),
        3 => edge().prop_map(Pass::End),
    ];
    let op = prop_oneof![
        1 => Just(Op::Take(0)),
        8 => (1_u64..4).prop_map(Op::Take),
        1 => Just(Op::Take(u64::MAX)),
        1 => (1_u64..4).prop_map(Op::Refund),
        1 => (0_u32..4).prop_map(|hits| Op::Add { hits, limits: u16::MAX }),
        1 => (0_u32..4, 0_u32..4).prop_map(|(least, more)| {
            let share = std::num::NonZeroU32::MIN;
            Op::UpTo(UpTo { least, most: least + more, share })
        }),
    ];
    prop::collection::vec((pass, op), 100)
}

fn ban() -> impl Strategy<Value = Ban> {
    let time = || prop_oneof![Just(1), Just(SECOND), 1..90 * SECOND];
    let lengths = prop::collection::vec(time(), 1..4);
    (1_u8..4, time(), lengths, time()).prop_map(|(after, within, lengths, forget)| Ban {
        after,
        within,
        lengths: lengths.into(),
        forget,
    })
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let counting = Limit { charge_denied: true, ..fixed(2, 60 * SECOND) };
    prop::sample::select(vec![
        vec![counting.clone()],
        vec![fixed(3, SECOND), counting],
        vec![gcra(3, 10 * SECOND, 3), Limit { shadow_mode: true, ..fixed(1, 60 * SECOND) }],
        vec![log(2, 10 * SECOND)],
        vec![bucket(3, 1, 2 * SECOND)],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn bans_are_those_of_the_whole_history(limits in limits(), ban in ban(), steps in steps()) {
        let plan = Plan::new(limits.clone()).with_ban(ban.clone());
        let (mut state, mut now) = (State::default(), NOON);
        // The limits without bans, and everything that struck.
        let mut without = Driver::new(limits);
        let mut history = History::default();
        for (pass, op) in steps {
            let (pass, edge) = match pass {
                Pass::Micros(pass) => (pass, 0),
                Pass::Within(edge) => (ban.within, edge),
                Pass::Length(at, edge) => (ban.lengths[at % ban.lengths.len()], edge),
                Pass::Forget(edge) => (ban.forget, edge),
                Pass::End(edge) => (history.banned_until(now).unwrap_or(now) - now, edge),
            };
            now += pass.saturating_add_signed(edge);
            without.now = now;
            let charged = plan.charge(&mut state, now, op, None);
            let asks = op.asks();
            let banned = history.banned_until(now);
            let mut expected = match banned.filter(|_| asks.is_some()) {
                Some(_) => {
                    let look = without.charge(Op::Add { hits: 0, limits: 0 }).decision;
                    prop_assert_eq!(charged.decision.limit, 0);
                    Decision { limit: 0, used_before: without.used()[0], ..look }
                }
                None if banned.is_some() => match op {
                    Op::UpTo(up_to) => without.charge(Op::UpTo(UpTo { most: 0, ..up_to })).decision,
                    op => without.charge(op).decision,
                },
                None => without.charge(op).decision,
            };
            let strikes = banned.is_none() && asks > Some(0) && !expected.allowed;
            if strikes {
                history.strike(&ban, now);
            }
            let until = history.banned_until(now).filter(|_| asks.is_some());
            if let Some(until) = until {
                let ends_in = until - now;
                expected = Decision {
                    allowed: false,
                    banned: true,
                    ban_begins: strikes,
                    remaining: 0,
                    reset_after: ends_in,
                    retry_after: Some(ends_in),
                    ..expected
                };
            }
            prop_assert_eq!(&charged.decision, &expected, "{:?} at {}", op, now - NOON);

            let read = plan.inspect(&state, now, &[]).ban.unwrap();
            prop_assert_eq!(usize::from(read.strikes), history.counting(&ban, now).len());
            prop_assert_eq!(usize::from(read.bans), history.in_a_row(&ban, now));
            let ends_in = history.banned_until(now).map_or(0, |until| until - now);
            prop_assert_eq!(read.ends_in, ends_in);

            // What has expired means the same as nothing.
            let later = charged.expires.max(now);
            prop_assert_eq!(
                plan.inspect(&state, later, &[]).ban,
                plan.inspect(&State::default(), later, &[]).ban
            );
            let mut saved = Vec::new();
            state.save_limits(&mut saved);
            crate::saved::put_log(&mut saved, state.log_len(), match state.log() {
                HitLog::Stamps(stamps) => stamps.iter(),
                HitLog::Summary(_) => unreachable!(),
            });
            let restored = State::restore(&saved);
            prop_assert_eq!(restored.as_ref(), Some(&state));
        }
    }
}

fn login(after: u8, lengths: &[Micros]) -> Ban {
    let forget = 10 * lengths.last().unwrap();
    Ban { after, within: 600 * SECOND, lengths: lengths.into(), forget }
}

/// A plan of five a minute with bans, and the state of a key.
fn banning(ban: Ban) -> Driver {
    let window = Limit { charge_denied: true, ..fixed(5, 60 * SECOND) };
    let mut driver = Driver::new(vec![window]);
    driver.plan = driver.plan.with_ban(ban);
    driver
}

#[test]
fn a_ban_begins_with_the_last_strike_and_ends_for_certain() {
    let mut key = banning(login(3, &[3_600 * SECOND]));
    assert!(key.take(5).allowed);
    for strike in 1..=3 {
        let denied = key.take(1);
        assert_eq!((denied.allowed, denied.ban_begins), (false, strike == 3));
    }
    let until = key.now + 3_600 * SECOND;
    for pass in [0, 1, 600 * SECOND, 2_999 * SECOND] {
        key.now += pass;
        let denied = key.take(u64::from(u32::MAX));
        assert!(denied.banned && !denied.ban_begins);
        assert_eq!(denied.retry_after, Some(until - key.now));
        assert_eq!(denied.reset_after, until - key.now);
    }
    key.now = until - 1;
    assert_eq!(key.take(0).retry_after, Some(1));
    key.now = until;
    // Denied hits were charged to nothing, and no denial during the ban was a strike.
    assert_eq!(key.take(5).remaining, 0);
    assert_eq!(key.plan.inspect(&key.state, key.now, &[]).ban.unwrap().strikes, 0);
}

#[test]
fn what_is_no_strike_bans_nobody() {
    let window = Limit { charge_denied: true, ..fixed(2, 60 * SECOND) };
    let shadow = Limit { shadow_mode: true, ..fixed(1, 60 * SECOND) };
    let held = Concurrency { n: 1, timeout: 60 * SECOND, hold_id: None };
    let held = limit(1, Algorithm::Concurrency(held), false);
    let plan = Plan::new(vec![window, shadow, held]).with_ban(login(1, &[SECOND]));
    let mut key = Driver { plan, state: State::default(), now: NOON };
    assert!(key.take(1).allowed);
    // By the concurrency limit alone, which has one in flight.
    let denied = key.take(1);
    assert_eq!((denied.allowed, denied.banned), (false, false));
    for op in [Op::Take(0), Op::Add { hits: 9, limits: u16::MAX }, Op::Refund(1), Op::Take(0)] {
        assert!(!key.charge(op).decision.banned, "{op:?}");
    }
    let mut controlled = Driver { plan: key.plan.clone().with_bans_of(&key.plan), ..key.clone() };
    assert!(!controlled.take(1).allowed);
    let read = controlled.plan.inspect(&controlled.state, NOON, &[]).ban.unwrap();
    assert_eq!((read.strikes, read.bans), (0, 0));
    assert!(key.take(1).banned, "the same hits by the rule itself");
}

#[test]
fn unconditional_operations_work_during_a_ban() {
    let mut key = banning(login(1, &[60 * SECOND]));
    assert!(key.take(6).banned);
    assert!(key.charge(Op::Add { hits: 2, limits: u16::MAX }).decision.allowed);
    assert_eq!(key.used(), [8]);
    assert!(key.charge(Op::Refund(8)).decision.allowed);
    assert_eq!(key.used(), [0]);
    let share = std::num::NonZeroU32::MIN;
    let granted = key.charge(Op::UpTo(UpTo { least: 0, most: 5, share })).decision;
    assert_eq!((granted.allowed, granted.granted), (true, 0));
    assert!(key.take(1).banned);
    assert_eq!(key.used(), [0]);
}

#[test]
fn other_numbers_keep_strikes_and_bans_and_a_clock_that_steps_back_lengthens_none() {
    let mut key = banning(login(2, &[10 * SECOND, 100 * SECOND]));
    assert!(key.plan.shape().ends_with("+ban"));
    key.take(5);
    key.take(1);
    let shape = key.plan.shape().to_owned();
    key.plan = banning(login(2, &[10 * SECOND])).plan;
    assert_eq!(key.plan.shape(), shape);
    let began = key.take(1);
    assert_eq!((began.ban_begins, began.retry_after), (true, Some(10 * SECOND)));
    key.plan = banning(login(2, &[SECOND])).plan;
    key.now -= 3_600 * SECOND;
    assert_eq!(key.take(1).retry_after, Some(10 * SECOND));
    key.now += 10 * SECOND;
    assert!(!key.take(1).banned);
}

#[test]
fn a_ban_fills_its_key_and_strikes_keep_it() {
    let mut key = banning(login(2, &[10 * SECOND, 20 * SECOND]));
    key.take(5);
    let struck = key.charge(Op::Take(1));
    assert_eq!(struck.fill, Fill::Full);
    key.now += 120 * SECOND;
    let look = key.charge(Op::Take(0));
    assert_eq!((look.fill, look.expires), (Fill::High, key.now + 480 * SECOND));
    key.take(6);
    let banned = key.charge(Op::Take(0));
    assert_eq!((banned.fill, banned.expires), (Fill::Full, key.now + 10 * SECOND + 200 * SECOND));
    assert!(size_of::<State>() <= 56, "{}", size_of::<State>());
    assert!(size_of::<BanState>() <= 100);
}
