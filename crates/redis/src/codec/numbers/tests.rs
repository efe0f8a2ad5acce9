//! The scripts declare the same numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::codec::format::FIXED_WINDOW;
use crate::codec::{modules, reservation};
use crate::counter;

/// The scripts that are not of one algorithm.
const SCRIPTS: [(&str, &str); 7] = [
    ("prelude.lua", include_str!("../../lua/prelude.lua")),
    ("rules.lua", include_str!("../../lua/rules.lua")),
    ("charge.lua", include_str!("../../lua/charge.lua")),
    ("reserve.lua", include_str!("../../lua/reserve.lua")),
    ("lone_reserve.lua", include_str!("../../lua/lone_reserve.lua")),
    ("lone_gcra.lua", include_str!("../../lua/lone_gcra.lua")),
    ("windows.lua", include_str!("../../lua/windows.lua")),
];
const COUNTER: &str = include_str!("../../lua/counter.lua");

/// Evaluates such as `2 ^ 32 - 16`, from left to right.
fn evaluate(expression: &str) -> Option<f64> {
    let mut tokens = expression.split_whitespace();
    let mut value: f64 = tokens.next()?.parse().ok()?;
    while let Some(operator) = tokens.next() {
        let operand: f64 = tokens.next()?.parse().ok()?;
        value = match operator {
            "^" => value.powf(operand),
            "*" => value * operand,
            "+" => value + operand,
            "-" => value - operand,
            _ => return None,
        };
    }
    Some(value)
}

/// Returns the constants that lines of the form `local A, B = 1, 2` declare.
fn constants(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let declarations = text.lines().filter_map(|line| {
        let (names, values) = line.trim().strip_prefix("local ")?.split_once(" = ")?;
        Some(names.split(", ").zip(values.split(", ")))
    });
    declarations.flatten().filter_map(|(name, value)| {
        let is_constant = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_constant.then(|| Some((name, evaluate(value)?))).flatten()
    })
}

/// Checks every declaration, and that each of the numbers is declared somewhere.
fn check(texts: &[(&str, &str)], numbers: &[(&str, u64)]) {
    let numbers: BTreeMap<&str, u64> = numbers.iter().copied().collect();
    let mut declared = BTreeSet::new();
    for (file, text) in texts {
        for (name, value) in constants(text) {
            if let Some(&number) = numbers.get(name) {
                assert_eq!(value, number as f64, "{name} in {file}");
                declared.insert(name);
            }
        }
    }
    assert_eq!(declared, numbers.into_keys().collect());
}

#[test]
fn scripts_declare_the_same_numbers() {
    let mut texts = SCRIPTS.to_vec();
    texts.extend(modules().map(|module| ("an algorithm", module.text)));
    check(
        &texts,
        &[
            ("LAYOUT", LAYOUT.into()),
            ("COUNTS_DENIED", COUNTS_DENIED.into()),
            ("SHADOW", SHADOW.into()),
            ("STRICT", STRICT.into()),
            ("NEVER", NEVER.into()),
            ("TOGETHER", TOGETHER.into()),
            ("QUOTA_PASSES", QUOTA_PASSES.into()),
            ("ENFORCED", ENFORCED.into()),
            ("QUOTA", QUOTA.into()),
            ("ROLES", ROLES.into()),
            ("FAILURE_DENIES_ENTRY", FAILURE_DENIES_ENTRY.into()),
            ("FAILURE_DENIES_REQUEST", FAILURE_DENIES_REQUEST.into()),
            ("TAKE", op::TAKE.into()),
            ("UNDO", op::UNDO.into()),
            ("ADD", op::ADD.into()),
            ("UPTO", op::UPTO.into()),
            ("RESERVE", op::RESERVE.into()),
            ("CANCEL", op::CANCEL.into()),
            ("OR_CHARGE", op::OR_CHARGE.into()),
            ("OR_RESERVE", op::OR_RESERVE.into()),
            ("RESERVATIONS", reservation::MODULE.number.into()),
            ("FAILURES", FAILURES.into()),
            ("INVALID", u64::from(FAILURES) + CORRUPT),
            ("WRONG_TYPE", WRONG_TYPE),
            ("OTHER", OTHER),
            ("CLOCK_SKEW", CLOCK_SKEW),
            ("MAX_COUNT", u32::MAX.into()),
            ("WINDOWS", counter::WINDOWS),
            ("COUNTS", counter::COUNTS),
            ("STATES", counter::STATES),
        ],
    );
}

#[test]
fn the_script_of_counters_declares_the_same_numbers() {
    check(
        &[("counter.lua", COUNTER)],
        &[
            ("LOOK", counter_op::LOOK.into()),
            ("TAKE", counter_op::TAKE.into()),
            ("ADMIT", counter_op::ADMIT.into()),
            ("REFUND", counter_op::REFUND.into()),
            ("UNDO", counter_op::UNDO.into()),
            ("REPAIR", counter_op::REPAIR.into()),
            ("FAILURES", COUNTER_FAILURES),
            ("STEP", COUNTER_FAILURE_STEP),
            ("WRONG_TYPE", WRONG_TYPE),
            ("CORRUPT", CORRUPT),
            ("OTHER", OTHER),
            ("MAX_COUNT", u32::MAX.into()),
            ("WINDOWS", counter::WINDOWS),
            ("COUNTS", counter::COUNTS),
            ("STATES", counter::STATES),
        ],
    );
}

#[test]
fn modules_declare_their_numbers() {
    let mut numbers = BTreeSet::new();
    for module in modules() {
        assert!(numbers.insert(module.number) && module.number < 16, "{}", module.number);
        let declared: BTreeMap<&str, f64> = constants(module.text).collect();
        assert_eq!(declared.get("NUMBER"), Some(&module.number.into()), "{}", module.text);
        let borrowed = module.borrows.then(|| f64::from(FIXED_WINDOW));
        assert_eq!(declared.get("FIXED_WINDOW").copied(), borrowed, "{}", module.text);
    }
    assert_eq!(FIXED_WINDOW, 1);
}

#[test]
fn failures_differ_from_states() {
    assert_eq!(failure(u32::MAX - 16), None);
    assert_eq!(failure(u32::MAX - 14), Some(StoreError::WrongType));
    assert_eq!(failure(u32::MAX - 9), Some(StoreError::ClockSkew));
    assert_eq!(failure(u32::MAX), Some(StoreError::Unavailable));
    assert_eq!(counter_failure((1 << 54) - 1), None);
    assert_eq!(counter_failure((1 << 54) + 8), Some(StoreError::Corrupt));
}
