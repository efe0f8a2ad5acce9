//! The rule files of README.md and examples/.

use crate::support::weir::Setup;

#[test]
fn rule_files_of_the_readme_and_the_examples_are_valid() {
    let readme = include_str!("../../README.md");
    let mut rules = readme.split("```yaml\n").skip(1).map(|text| text.split("```").next().unwrap());
    let shown = rules.next().expect("README.md shows a rule file");
    let example = include_str!("../../examples/rules/example.yaml");
    for text in [shown, example] {
        let setup = Setup::new().file("rules.yaml", text).arg("check").arg("rules.yaml");
        let (status, output) = setup.run();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(output.contains(", 0 warnings"), "{output}");
    }
}
