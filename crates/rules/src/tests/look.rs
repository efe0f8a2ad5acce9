//! The exact rendering of problems.

use super::file;
use crate::{Loaded, Problems, RuleOptions};

fn rendered(text: &str) -> String {
    let files = vec![file("rules.yaml", text)];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    loaded.render(loaded.problems.iter())
}

#[test]
fn several_problems() {
    let text = "\
domain: shop
descriptors:
  - key: api_key
    rate_limt:
      unit: minute
  - key: path
    rate_limit:
      unit: fortnight
      requests_per_unit: \"5\"
      shadow_mode: true
  - key:\tpath
";
    let wanted = "\
rules.yaml:4:5: error: config error, unknown key 'rate_limt'
 4 |     rate_limt:
   |     ^^^^^^^^^
  help: did you mean `rate_limit`?
rules.yaml:8:13: error: invalid rate limit unit 'fortnight'
 8 |       unit: fortnight
   |             ^^^^^^^^^
  help: write one of second, minute, hour, day, week, month, year
rules.yaml:9:26: error: error loading config file: cannot use 5 as a number for `requests_per_unit`
 9 |       requests_per_unit: \"5\"
   |                          ^
  help: write a whole number from 0 to 4294967295, without quotes
rules.yaml:10:7: warning: 'shadow_mode' has no effect here
 10 |       shadow_mode: true
    |       ^^^^^^^^^^^
  help: `shadow_mode` belongs in a descriptor, beside `key`, or an item of `rate_limits`
rules.yaml:11:10: error: duplicate descriptor composite key 'shop.path'
 11 |   - key: path
    |          ^^^^
  note: the first is at rules.yaml:6:10
  help: a descriptor must be unique on its level: merge the two
";
    assert_eq!(rendered(text), wanted);
}

#[test]
fn a_carriage_return_ends_a_line() {
    let wanted = "\
rules.yaml:3:3: error: config error, unknown key 'kye'
 3 | - kye: k
   |   ^^^
  help: did you mean `key`?
";
    let text = "domain: d\rdescriptors:\r\n- kye: k\r  key: k\r";
    assert_eq!(rendered(text), wanted);
}

#[test]
fn long_lines_are_cut_around_the_problem() {
    let many: String = (0..50).map(|i| format!("{{ key: k{i} }}, ")).collect();
    for line in rendered(&format!("domain: d\ndescriptors: [{many} {{ kye: k }}]\n")).lines() {
        assert!(line.chars().count() < 130, "{line}");
    }
}
