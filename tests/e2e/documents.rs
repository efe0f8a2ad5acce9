//! What the documents show is true.

use crate::support::weir::Setup;

#[test]
fn the_rule_files_of_readme_and_examples_are_good() {
    let readme = include_str!("../../README.md");
    let mut rules = readme.split("```yaml\n").skip(1).map(|text| text.split("```").next().unwrap());
    let shown = rules.next().expect("README.md shows a rule file");
    let example = include_str!("../../examples/rules/example.yaml");
    for text in [shown, example] {
        let setup = Setup::new().file("rules.yaml", text).arg("check").arg("rules.yaml");
        let (status, said) = setup.run();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(said.contains(", 0 warnings"), "{said}");
    }
}
