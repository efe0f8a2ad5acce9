//! Converts rates in short form: `10/s, 200/m burst 50`.

use super::Converted;
use super::domain::{Algorithm, Domain, Limit, PathEntry};
use crate::cli::shorthand::Rate;
use weir_common::descriptor::RuleDescriptorArg;

/// Whether a text is one rate or several.
pub(super) fn are_rates(text: &str) -> bool {
    let mut rates = parts(text).peekable();
    rates.peek().is_some() && rates.all(|part| parse(part).is_ok())
}

/// Whether a part of a text is a rate.
pub(super) fn have_rate(text: &str) -> bool {
    parts(text).any(|part| parse(part).is_ok())
}

/// Converts rates to the limits of one rule.
pub(super) fn convert(text: &str, domain: &str, descriptor: &RuleDescriptorArg) -> Converted {
    let mut converted = Converted::default();
    let mut domain = Domain::new(domain);
    let path: Vec<PathEntry> = descriptor.0.clone();
    for part in parts(text) {
        let added = parse(part).and_then(|limit| domain.add(path.clone(), limit));
        if let Err(error) = added {
            converted.left_out.push(format!("{part}: {error}"));
        }
    }
    if !domain.is_empty() {
        converted.rules.push(domain.text());
    }
    converted
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty())
}

/// Parses a rate that `burst N` or `burst=N` may follow.
fn parse(part: &str) -> Result<Limit, String> {
    let (rate, burst) = match part.split_once("burst") {
        None => (part, None),
        Some((rate, burst)) => {
            let burst = burst.trim_start().trim_start_matches('=').trim_start();
            let burst = burst.parse::<u32>().ok().filter(|burst| *burst > 0);
            (rate, Some(burst.ok_or("the burst is not a number above 0; write burst 50")?))
        }
    };
    let Rate { requests, unit, multiplier } = rate.trim().parse()?;
    let name = String::new();
    let algorithm = burst.map_or(Algorithm::FixedWindow, Algorithm::Gcra);
    Ok(Limit { name, requests_per_unit: requests, unit, multiplier, algorithm })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::convert::domain::tests::errors;

    fn converted(text: &str) -> Converted {
        convert(text, "shop", &"user,path=/a".parse().unwrap())
    }

    #[test]
    fn rates_become_the_limits_of_one_rule() {
        let converted = converted("10/s, 200/m burst 50");
        assert!(converted.left_out.is_empty());
        assert_eq!(
            converted.rules[0].text,
            "\
domain: shop
descriptors:
  - key: user
    descriptors:
      - key: path
        value: /a
        rate_limits:
          - unit: second
            requests_per_unit: 10
          - algorithm: gcra
            unit: minute
            requests_per_unit: 200
            burst: 50
"
        );
    }

    #[test]
    fn other_parts_are_left_out() {
        let converted = converted("10/s, fast, 1/m burst 0, 300/15m burst=20");
        assert_eq!(
            converted.left_out,
            [
                "fast: write a number and a unit, such as 10/s, 200/m or 300/15m",
                "1/m burst 0: the burst is not a number above 0; write burst 50",
            ]
        );
        assert!(converted.rules[0].text.contains("unit_multiplier: 15"));
        assert!(self::converted("fast").rules.is_empty());
        assert!(have_rate("10/s, fast") && !have_rate("rules/10/s"));
        assert!(are_rates("10/s") && !are_rates("10/s, fast") && !are_rates(""));
    }

    proptest! {
        #[test]
        fn what_is_converted_loads(text in "([0-9]{1,11}/[0-9]{0,3}(s|m|d|mo|y)( burst [0-9]{1,4})?,? ?){1,20}") {
            for rules in converted(&text).rules {
                prop_assert_eq!(errors(&rules), "");
            }
        }
    }
}
