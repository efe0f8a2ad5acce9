//! What is shown, compared with a list of all samples.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use weir_rules::HitTotals;

/// The start of a minute.
const START: u64 = 1_700_000_040;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn durations(counts: &[u64]) -> HistogramSnapshot {
    let bounds = (1..counts.len()).map(|bound| bound as f64 / 1e3).collect();
    HistogramSnapshot { bounds, counts: counts.to_vec(), sum: 0.0, exemplars: Vec::new() }
}

/// Rules of one domain, with their counters.
struct Rules(Vec<(String, HitTotals)>);

impl Counters for Rules {
    fn rule_count(&self) -> usize {
        self.0.len()
    }

    fn name(&self, at: usize) -> (&str, &str) {
        ("shop", &self.0[at].0)
    }

    fn totals(&self, at: &mut dyn Iterator<Item = usize>) -> HitTotals {
        at.fold(HitTotals::default(), |mut sum, at| {
            sum += self.0[at].1;
            sum
        })
    }
}

/// Counters of rules, of which some are active, and a history of them.
#[derive(Default)]
struct Bench {
    history: History,
    second: u64,
    all: Counts,
    /// Whether each is active, and its counters.
    rules: Vec<(String, bool, HitTotals)>,
    durations: Vec<u64>,
    is_new_set: bool,
    is_shadow: bool,
}

impl Bench {
    fn of(names: impl Iterator<Item = String>) -> Bench {
        let rules = names.map(|name| (name, true, HitTotals::default())).collect();
        Bench { second: START, rules, is_new_set: true, ..Bench::default() }
    }

    fn five() -> Bench {
        Bench::of(NAMES.into_iter().map(str::to_owned))
    }

    /// Counts hits of a rule by outcome.
    fn hit(&mut self, rule: usize, [within, over, would_be_over, errors]: Counts) {
        let totals = &mut self.rules[rule].2;
        totals.hits += within + over + would_be_over;
        totals.within_limit += within;
        totals.over_limit += over + would_be_over;
        totals.shadow_mode += would_be_over;
        totals.store_errors += errors;
    }

    /// Lets a second pass, or more, and samples.
    fn sample_after(&mut self, seconds: u64) {
        self.second += seconds;
        let rules = self.rules.iter().filter(|(_, is_active, _)| *is_active);
        let rules = Rules(rules.map(|(name, _, totals)| (name.clone(), *totals)).collect());
        self.history.sample(&Sample {
            now: self.second * SECOND + 20_000,
            is_new_set: std::mem::take(&mut self.is_new_set),
            all: self.all,
            rules: &rules,
            is_shadow: self.is_shadow,
            durations: &durations(&self.durations),
        });
    }

    fn read(&self, step: StepLength, rule: Option<&str>) -> HistoryAnswer {
        self.history.read(self.second * SECOND + 30_000, step, rule.map(|rule| ("shop", rule)))
    }

    /// Returns what was within the limit in the last steps, oldest first.
    fn last_within(&self, step: StepLength, rule: Option<&str>, steps: usize) -> Vec<Option<u32>> {
        let within = self.read(step, rule).series.within_limit;
        within[within.len() - steps..].to_vec()
    }
}

#[test]
fn a_second_has_what_was_counted_in_it() {
    let mut bench = Bench::five();
    bench.durations = vec![0; 4];
    bench.sample_after(1);
    // Of the first, only a shadow mode lets one pass.
    bench.all = [3, 2, 1, 4];
    bench.durations = vec![0, 10, 0, 0];
    bench.hit(1, [5, 6, 7, 8]);
    bench.sample_after(1);
    bench.sample_after(1);
    let answer = bench.read(StepLength::Second, None);
    assert_eq!(answer.step_seconds, 1);
    assert_eq!((&*answer.from, &*answer.until), ("2023-11-14T22:09:03Z", "2023-11-14T22:14:03Z"));
    let series = &answer.series;
    let last = |of: &[Option<u32>]| of[296..].to_vec();
    let wanted = |count| vec![None, Some(0), Some(count), Some(0)];
    assert_eq!(last(&series.within_limit), wanted(2));
    assert_eq!(last(&series.over_limit), wanted(2));
    assert_eq!(last(&series.would_be_over_limit), wanted(1));
    assert_eq!(last(&series.errors), wanted(4));
    assert_eq!(series.p50_ms.as_ref().unwrap()[297..], [None, Some(1.5), None]);
    assert_eq!(series.p99_ms.as_ref().unwrap()[297..], [None, Some(1.99), None]);
    let rules = answer.rules.unwrap();
    let wanted = HistoryRule {
        domain: "shop".to_owned(),
        rule: "b".to_owned(),
        within_limit: 5,
        over_limit: 6,
        would_be_over_limit: 7,
        errors: 8,
    };
    assert_eq!(rules, [wanted]);
    let rule = bench.read(StepLength::Second, Some("b"));
    assert_eq!((rule.rules, rule.series.p50_ms.as_ref()), (None, None));
    assert_eq!(rule.series.over_limit[297..], [Some(0), Some(6), Some(0)]);

    // Ten seconds are shown when they are over.
    assert_eq!(bench.last_within(StepLength::TenSeconds, None, 1), [None]);
    bench.sample_after(7);
    assert_eq!(bench.last_within(StepLength::TenSeconds, None, 1), [Some(2)]);
    assert_eq!(bench.last_within(StepLength::TenSeconds, Some("b"), 1), [Some(5)]);
    let answer = bench.read(StepLength::TenSeconds, None);
    assert_eq!((&*answer.from, &*answer.until), ("2023-11-14T21:14:10Z", "2023-11-14T22:14:10Z"));
    assert_eq!(answer.series.p50_ms.unwrap()[359], Some(1.5));
}

#[test]
fn in_the_global_shadow_mode_nothing_is_over() {
    let mut bench = Bench { is_shadow: true, ..Bench::five() };
    bench.hit(0, [1, 2, 3, 0]);
    bench.sample_after(1);
    let rules = bench.read(StepLength::Second, None).rules.unwrap();
    assert_eq!((rules[0].over_limit, rules[0].would_be_over_limit), (0, 5));
}

#[test]
fn what_was_not_sampled_is_unknown() {
    let mut bench = Bench::five();
    bench.sample_after(1);
    // A machine that was suspended, and then a thread that was late.
    for (after, nulls) in [(100, 99), (2, 1), (7_200, 299)] {
        bench.all[WITHIN] += 7;
        bench.sample_after(after);
        let mut wanted = vec![None; nulls];
        wanted.push(Some(7));
        assert_eq!(bench.last_within(StepLength::Second, None, nulls + 1), wanted);
    }
    // Nothing more is sampled.
    bench.second += 10;
    assert_eq!(bench.last_within(StepLength::Second, None, 11)[..2], [Some(7), None]);
    bench.second += 2 * 3_600;
    let series = bench.read(StepLength::TenSeconds, None).series;
    assert_eq!(series.within_limit, vec![None; 360]);
}

#[test]
fn a_clock_that_steps_back_hides_nothing_that_follows() {
    let mut bench = Bench::five();
    for _ in 0..100 {
        bench.all[WITHIN] += 1;
        bench.sample_after(1);
    }
    bench.second -= 50;
    assert_eq!(bench.last_within(StepLength::Second, None, 2), [Some(1); 2]);
    for _ in 0..20 {
        bench.all[WITHIN] += 10;
        bench.hit(0, [3, 0, 0, 0]);
        bench.sample_after(1);
    }
    // Seconds that the clock has shown twice.
    assert_eq!(bench.last_within(StepLength::Second, None, 20), vec![Some(11); 20]);
    assert_eq!(bench.last_within(StepLength::Second, Some("a"), 20), vec![Some(3); 20]);
}

/// What a sample added to each of the counts: for all, and for each active rule.
struct Added {
    second: u64,
    all: Counts,
    rules: [Option<Counts>; 5],
}

/// The naive history: all samples.
#[derive(Default)]
struct Model {
    samples: Vec<Added>,
    /// The number of the sample with which each active rule appeared.
    since: [Option<usize>; 5],
    before: [Counts; 5],
}

impl Model {
    /// Returns the counts of the last complete steps.
    fn series(&self, step: StepLength, rule: Option<usize>) -> Vec<Option<[u32; 4]>> {
        let (seconds, kept) = STEPS[step as usize];
        // The first sample of each step, and what it has in all.
        let mut steps: BTreeMap<u64, (usize, Counts)> = BTreeMap::new();
        for (number, sample) in self.samples.iter().enumerate() {
            let counts = match rule {
                None => sample.all,
                Some(rule) => sample.rules[rule].unwrap_or_default(),
            };
            let (_, sum) = steps.entry(sample.second / seconds).or_insert((number, [0; 4]));
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let since = rule.map_or(Some(0), |rule| self.since[rule]);
        let end = (self.samples.last().unwrap().second + 1) / seconds;
        let shown = (end - kept as u64..end).map(|step| {
            let (first, counts) = steps.get(&step)?;
            (*first >= since?).then(|| counts.map(|count| count as u32))
        });
        shown.collect()
    }
}

/// What happens before a sample: how many seconds pass, what each rule counts, whether each is active and
/// whether its counters start over.
type Action = (u64, [[u8; 4]; 5], [bool; 5], [bool; 5]);

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let seconds =
        prop_oneof![20 => Just(1u64), 4 => 2..5u64, 1 => 20..400u64, 1 => 3_000..9_000u64];
    let active = prop_oneof![
        20 => Just([true; 5]),
        1 => any::<[bool; 5]>(),
        // As in the last set.
        20 => Just([true, true, true, false, false]),
    ];
    let restarts = prop_oneof![10 => Just([false; 5]), 1 => any::<[bool; 5]>()];
    prop::collection::vec((seconds, any::<[[u8; 4]; 5]>(), active, restarts), 1..400)
}

fn series(answer: &HistorySeries) -> Vec<Option<[u32; 4]>> {
    let HistorySeries { within_limit, over_limit, would_be_over_limit, errors, .. } = answer;
    let counts = (0..within_limit.len()).map(|at| {
        let of = [&within_limit[at], &over_limit[at], &would_be_over_limit[at], &errors[at]];
        let counts: Vec<u32> = of.into_iter().flatten().copied().collect();
        counts.try_into().ok()
    });
    counts.collect()
}

/// Returns what counters have grown by, as [`Counts`] that exclude each other.
fn growth(before: Counts, totals: &HitTotals) -> Counts {
    let [within, over, would_be_over, errors] = std::array::from_fn(|at| {
        let now = [totals.within_limit, totals.over_limit, totals.shadow_mode, totals.store_errors];
        if now[at] >= before[at] { now[at] - before[at] } else { now[at] }
    });
    [within, over.saturating_sub(would_be_over), would_be_over, errors]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// With gaps, reloads and counters that start over, all series are those of a list of all samples.
    #[test]
    fn series_are_those_of_the_samples(actions in actions()) {
        let mut bench = Bench::five();
        let mut model = Model::default();
        for (seconds, counts, active, restarts) in actions {
            let mut added = Added { second: 0, all: [0; 4], rules: [None; 5] };
            for rule in 0..5 {
                let (_, is_active, totals) = &mut bench.rules[rule];
                bench.is_new_set |= *is_active != active[rule];
                if !active[rule] || !*is_active || restarts[rule] {
                    *totals = HitTotals::default();
                }
                *is_active = active[rule];
                if !active[rule] {
                    (model.since[rule], model.before[rule]) = (None, [0; 4]);
                    continue;
                }
                bench.hit(rule, counts[rule].map(u64::from));
                let totals = &bench.rules[rule].2;
                added.rules[rule] = Some(growth(model.before[rule], totals));
                let HitTotals { within_limit, over_limit, shadow_mode, store_errors, .. } = *totals;
                model.before[rule] = [within_limit, over_limit, shadow_mode, store_errors];
                model.since[rule].get_or_insert(model.samples.len());
            }
            added.all = counts[0].map(u64::from);
            let would_be_over = added.all[WOULD_BE_OVER];
            bench.all = std::array::from_fn(|at| bench.all[at] + added.all[at]);
            bench.all[WITHIN] += would_be_over;
            bench.sample_after(seconds);
            added.second = bench.second - 1;
            model.samples.push(added);
        }
        for step in [StepLength::Second, StepLength::TenSeconds] {
            let answer = bench.read(step, None);
            prop_assert_eq!(series(&answer.series), model.series(step, None));
            for (rule, name) in NAMES.iter().enumerate() {
                let wanted = model.series(step, Some(rule));
                prop_assert_eq!(series(&bench.read(step, Some(name)).series), wanted.clone());
                let sums = wanted.into_iter().flatten().fold([0; 4], |mut sums, counts| {
                    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
                    sums
                });
                let mut rules = answer.rules.iter().flatten();
                let shown = rules.find(|shown| shown.rule == *name).map(|it| {
                    [it.within_limit, it.over_limit, it.would_be_over_limit, it.errors]
                });
                prop_assert_eq!(shown.unwrap_or_default(), sums);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever was busy before, the busiest rules have series after some minutes.
    #[test]
    fn the_busiest_rules_have_series(
        rates in prop::collection::vec((0..100u64, 0..100u64), 210..260)
    ) {
        let mut bench = Bench::of((0..rates.len()).map(|rule| format!("rule{rule}")));
        for second in 0..1_200 {
            for (rule, (first, then)) in rates.iter().enumerate() {
                let rate = if second < 300 { *first } else { *then };
                bench.hit(rule, [rate, 0, 0, 0]);
            }
            // A reload in between, with other rules before those that were there.
            if second == 700 {
                bench.rules.insert(0, ("new".to_owned(), true, HitTotals::default()));
                bench.rules.rotate_left(1);
                bench.is_new_set = true;
            }
            bench.sample_after(1);
        }
        let listed = bench.read(StepLength::Second, None).rules.unwrap();
        prop_assert!(listed.len() <= ring::SLOTS);
        let recent = |(first, then): &(u64, u64)| 300 * first + 900 * then;
        let mut sorted: Vec<u64> = rates.iter().map(recent).collect();
        sorted.sort_unstable_by_key(|hits| Reverse(*hits));
        for (rule, rate) in rates.iter().enumerate() {
            // With room for the margin, and for the weight that hits lose meanwhile.
            let is_busy = recent(rate) > sorted[ring::SLOTS - 1] * 2 && rate.1 > 0;
            let name = format!("rule{rule}");
            let shown = listed.iter().find(|shown| shown.rule == name);
            prop_assert!(!is_busy || shown.is_some(), "{} {:?}", name, rate);
            if let Some(shown) = shown {
                // Those that have just taken a slot have fewer.
                prop_assert!(shown.within_limit <= rate.1 * 300);
                let series = bench.last_within(StepLength::Second, Some(&name), 300);
                prop_assert!(series.iter().flatten().all(|count| u64::from(*count) == rate.1));
            }
        }
    }
}

#[test]
fn rules_beyond_the_slots_and_with_long_names_have_no_series_and_cost_no_more() {
    let long = "x".repeat(busy::MAX_NAME_BYTES);
    let names = std::iter::once(long.clone()).chain((0..40_000).map(|rule| format!("rule{rule}")));
    let mut bench = Bench::of(names);
    for _ in 0..20 {
        bench.hit(0, [1_000, 0, 0, 0]);
        bench.hit(39_000, [1_000, 0, 0, 0]);
        bench.hit(29_000, [1_000, 0, 0, 0]);
        bench.sample_after(1);
    }
    let listed = bench.read(StepLength::Second, None).rules.unwrap();
    let listed: Vec<&str> = listed.iter().map(|rule| &*rule.rule).collect();
    assert_eq!(listed, ["rule28999"]);
    assert_eq!(bench.last_within(StepLength::Second, Some(&long), 1), [None]);
}

#[test]
fn rules_of_one_name_have_one_series() {
    let mut bench = Bench::of(["a", "b", "a", "a"].into_iter().map(str::to_owned));
    for round in 0..3 {
        bench.hit(0, [1, 0, 0, 0]);
        bench.hit(1, [7, 0, 0, 0]);
        bench.hit(2, [10, 0, 0, 0]);
        bench.sample_after(1);
        assert_eq!(bench.last_within(StepLength::Second, Some("a"), 1), [Some(11)], "{round}");
        let rules = bench.read(StepLength::Second, None).rules.unwrap();
        assert_eq!(rules.len(), 2, "{rules:?}");
        // A reload with another order.
        bench.rules.swap(0, 2);
        bench.is_new_set = true;
    }
}

#[test]
fn a_reload_allocates_no_rows() {
    let names = |from: usize| (from..from + busy::MAX_RULES).map(|rule| format!("rule{rule}"));
    let mut bench = Bench::of(names(0));
    let rows = |bench: &Bench| {
        let state = bench.history.0.lock();
        (state.busy.rows.as_ptr() as usize, state.busy.rows.capacity())
    };
    let before = rows(&bench);
    for from in [0, 10_000, 0] {
        bench.rules = Bench::of(names(from)).rules;
        bench.is_new_set = true;
        bench.sample_after(1);
        assert_eq!(rows(&bench), before, "{from}");
    }
}
