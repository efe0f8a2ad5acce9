//! Golden bytes of every layout in the table of packed formats: states in Redis depend on them, and so do replicas
//! of other versions.

use std::fmt::Write;
use std::sync::Arc;

use super::PlanCodec;
use super::Reader;
use weir_limit::*;

/// 2023-11-15, 12:00 UTC and 123 µs.
const NOW: Micros = 1_700_049_600 * SECOND + 123;
const MINUTE: Micros = 60 * SECOND;

fn limit(algorithm: Algorithm) -> Limit {
    Limit { charge_denied: false, algorithm, ..Limit::fixed_window(10, Unit::Minute, 1).unwrap() }
}

fn fixed_window(n: u32) -> Limit {
    limit(Algorithm::FixedWindow(FixedWindow { n, period: MINUTE, calendar: None }))
}

fn calendar_window() -> Limit {
    let calendar = Calendar::new(Unit::Day, "Europe/Berlin").map(Arc::new).ok();
    limit(Algorithm::FixedWindow(FixedWindow { n: 10, period: 86_400 * SECOND, calendar }))
}

fn sliding_window() -> Limit {
    limit(Algorithm::SlidingWindow(SlidingWindow { n: 10, period: MINUTE }))
}

fn sliding_log(n: u32) -> Limit {
    limit(Algorithm::SlidingLog(SlidingLog { n, period: MINUTE }))
}

fn bucketed_window() -> Limit {
    limit(Algorithm::BucketedWindow(BucketedWindow { n: 10, period: MINUTE, buckets: 4 }))
}

fn token_bucket() -> Limit {
    let (capacity, amount, interval, strict, max_debt) = (10, 2, SECOND, true, 5);
    limit(Algorithm::TokenBucket(TokenBucket { capacity, amount, interval, strict, max_debt }))
}

fn gcra() -> Limit {
    limit(Algorithm::Gcra(Gcra::new(10, MINUTE, 7, 3).unwrap()))
}

fn concurrency(hold_id: Option<&str>) -> Limit {
    let hold_id = hold_id.map(Into::into);
    limit(Algorithm::Concurrency(Concurrency { n: 10, timeout: MINUTE, hold_id }))
}

fn reduce_bucket(at: Option<u64>) -> Limit {
    let bucket = ReduceBucket { max: 10, refill: 3, interval: 5_000, strict: at.is_some(), at };
    bucket.plan().limits()[0].clone()
}

fn plan<const N: usize>(limits: [Limit; N]) -> Plan {
    Plan::new(limits.into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Every layout of a rule, and one with all flags set but strict.
fn plans() -> Vec<Plan> {
    let flags = Limit { requests_per_unit: 0, shadow_mode: true, charge_denied: true, ..gcra() };
    vec![
        plan([fixed_window(10)]),
        plan([fixed_window(10), fixed_window(20)]),
        plan([calendar_window()]),
        plan([sliding_window()]),
        plan([sliding_log(10)]),
        plan([bucketed_window()]),
        plan([token_bucket()]),
        plan([gcra()]),
        plan([concurrency(None)]),
        plan([concurrency(Some("id"))]),
        plan([flags]),
        plan([reduce_bucket(None)]),
        plan([reduce_bucket(Some(0))]),
    ]
}

#[test]
fn rules_are_written_in_the_same_bytes() {
    let mut text = String::new();
    for plan in plans() {
        let mut rule = Vec::new();
        PlanCodec(&plan).write_rule(NOW, &mut rule);
        let _ =
            writeln!(text, "{} {:#b} {}", plan.shape(), PlanCodec(&plan).algorithms(), hex(&rule));
    }
    assert_eq!(text, RULES, "{text}");
}

#[test]
fn rules_of_the_special_scripts_are_written_in_the_same_bytes() {
    let mut text = String::new();
    for plan in [plan([gcra()]), plan([fixed_window(10), fixed_window(20)])] {
        let mut rule = Vec::new();
        PlanCodec(&plan).write_numbers(&mut rule);
        let _ = writeln!(text, "{} {}", plan.shape(), hex(&rule));
    }
    assert_eq!(text, NUMBERS, "{text}");
}

/// Returns what a look finds in a state: whether it is allowed, used, remaining, reset and wait.
fn look(plan: &Plan, text: &[u8], rest: &[u8]) -> Option<(bool, u64, u64, Micros, Option<Micros>)> {
    let reply = [text, rest].concat();
    let mut reader = Reader(&reply);
    let mut state = PlanCodec(plan).read_state(text.len() as u32, &mut reader, NOW)?;
    assert!(reader.0.is_empty());
    let look = plan.charge(&mut state, NOW, Op::Take(0), Some("b")).decision;
    Some((look.allowed, look.used_before, look.remaining, look.reset_after, look.retry_after))
}

fn wide(number: u64) -> Vec<u8> {
    number.to_le_bytes()[..7].to_vec()
}

fn short(number: u32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

#[test]
fn states_are_read_from_the_same_bytes() {
    let noon = NOW - 123;
    let layout = vec![1];
    let window = [wide(noon), short(4)].concat();
    let counter = (noon / MINUTE % ((1 << 20) - 2) + 1) << 33 | 4;
    let ring: Vec<u8> = [1, 2, 0, 3, 1].into_iter().flat_map(short).collect();
    let head = [short(0), short(2), short(10), wide(noon + 7), wide(7)].concat();
    let view = [wide(2), wide(noon - 5)].concat();
    let hold = [wide(noon), vec![9; 8], wide(noon), short(3)].concat();
    let holds = [short(27), layout.clone(), hold].concat();
    let nothing = Vec::new();
    let mut text = String::new();
    for (limits, state, rest) in [
        (vec![fixed_window(10)], counter.to_string().into_bytes(), &nothing),
        (vec![fixed_window(10); 2], [&layout[..], &window, &window].concat(), &nothing),
        (
            vec![calendar_window()],
            [&layout[..], &wide(1_700_002_800 * SECOND), &short(4)].concat(),
            &nothing,
        ),
        (
            vec![sliding_window()],
            [&layout[..], &wide(noon / MINUTE), &short(2), &short(3)].concat(),
            &nothing,
        ),
        (vec![sliding_log(10)], [&layout[..], &head].concat(), &view),
        (
            vec![bucketed_window()],
            [&layout[..], &wide(noon / (MINUTE / 4)), &wide(7), &ring].concat(),
            &nothing,
        ),
        (vec![token_bucket()], [&layout[..], &wide(4), &wide(noon)].concat(), &nothing),
        (vec![gcra()], [&layout[..], &wide(noon + 9_000_000), &short(0)].concat(), &nothing),
        (vec![concurrency(None)], [&layout[..], &wide(4), &wide(noon)].concat(), &nothing),
        (vec![concurrency(Some("id"))], vec![], &holds),
        (
            vec![reduce_bucket(None)],
            [&layout[..], &short(4), &wide(noon / 1_000 - 5_000)].concat(),
            &nothing,
        ),
        (
            vec![bucketed_window(), gcra(), sliding_log(10)],
            [
                &layout[..],
                &wide(noon / (MINUTE / 4)),
                &wide(7),
                &wide(noon + 9_000_000),
                &short(0),
                &head,
                &ring,
            ]
            .concat(),
            &view,
        ),
    ] {
        let plan = Plan::new(limits);
        let _ = writeln!(text, "{} {:?}", plan.shape(), look(&plan, &state, rest));
        // Neither longer, nor shorter, nor of another layout.
        for broken in [[&state[..], &[0]].concat(), vec![2; state.len().max(1)]] {
            assert_eq!(look(&plan, &broken, rest), None, "{plan:?}");
        }
    }
    assert_eq!(text, STATES, "{text}");
}

const RULES: &str = "\
f60 0b10000000010 010a000a00000000000000879303000000
f60+f60 0b10 0201000a0000000000000087930300000001001400000000000000879303000000
f86400@Europe/Berlin 0b110 0102000a0000000000000060d71d140000007c2ba1100a0600dc02bf240a06003cdadc380a06009cb1fa4c0a06
s60 0b1000 0103000a00000000000000879303000000
l60 0b10000 0104000a00000000000000879303000000
b60/4 0b100000 0105000a0000000000000087930300000005000000000000c0e1e400000000
t1000000us 0b1000000 0106040a00000000000040420f00000000020000000000000f000000000000
g60/1 0b10000000 0107000700000000000001000000000000808d5b00000000010000000000000a00000000000000879303000000
c 0b100000000 0108000a00000000000000879303000000
h 0b1000000000 0109000a00000000000000879303000000
g60/1 0b10000000 01070b0700000000000001000000000000808d5b00000000010000000000000a00000000000000879303000000
r10/3/5000ms 0b100000000000 010b010a00000000000003000000000000881300000000000000000000000000000000000000
r10/3/5000ms 0b100000000000 010b010a00000000000003000000000000881300000000000100000000000001000000000000
";
const NUMBERS: &str = "\
g60/1 0700000000000001000000000000808d5b00000000010000000000000a0000000000000087930300000000
f60+f60 020a0000000000000087930300000000140000000000000087930300000000
";
const STATES: &str = "\
f60 Some((true, 4, 6, 59999877, None))
f60+f60 Some((true, 4, 6, 59999877, None))
f86400@Europe/Berlin Some((true, 4, 6, 39599999877, None))
s60 Some((true, 5, 5, 119999877, None))
l60 Some((true, 2, 8, 59999877, None))
b60/4 Some((true, 7, 3, 74999877, None))
t1000000us Some((true, 4, 6, 1999877, None))
g60/1 Some((true, 2, 5, 8999877, None))
c Some((true, 4, 6, 59999877, None))
h Some((true, 3, 7, 59999877, None))
r10/3/5000ms Some((true, 1, 9, 20000000, None))
b60/4+g60/1+l60 Some((true, 7, 3, 74999877, None))
";
