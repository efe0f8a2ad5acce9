//! `weir test --output junit`: the XML that continuous integration systems read.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::report::{FileReport, Report, TestReport};
use weir_common::escape::escape;

/// Prints the results as XML, with a `testsuite` for each file.
pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    let (failed, broken) = (report.failed(), report.broken());
    let tests = report.tests() + broken;
    writeln!(
        out,
        r#"<testsuites name="weir test" tests="{tests}" failures="{failed}" errors="{broken}">"#
    )?;
    for file in &report.files {
        print_file(file, out)?;
    }
    writeln!(out, "</testsuites>")
}

fn print_file(file: &FileReport, out: &mut impl Write) -> io::Result<()> {
    let name = xml(&file.name);
    let broken = usize::from(!file.problems.is_empty());
    let (tests, failed) = (file.tests.len() + broken, file.failed());
    writeln!(
        out,
        r#"  <testsuite name="{name}" tests="{tests}" failures="{failed}" errors="{broken}" skipped="0">"#
    )?;
    // A file with errors counts as one test that could not run.
    if let Some(first) = file.problems.first() {
        writeln!(out, r#"    <testcase name="{name}" classname="{name}">"#)?;
        let (message, text) = (xml(&first.message), lines(&file.rendered));
        writeln!(out, r#"      <error message="{message}">{text}</error>"#)?;
        writeln!(out, "    </testcase>")?;
    }
    for test in &file.tests {
        print_test(file, test, out)?;
    }
    writeln!(out, "  </testsuite>")
}

fn print_test(file: &FileReport, test: &TestReport, out: &mut impl Write) -> io::Result<()> {
    let (name, class) = (xml(&test.name), xml(&file.name));
    let line = test.position.line().unwrap_or_default();
    write!(out, r#"    <testcase name="{name}" classname="{class}" file="{class}" line="{line}""#)?;
    let Some(first) = test.failures.first() else { return writeln!(out, "/>") };
    writeln!(out, ">")?;
    let message = first.differences.first().map(ToString::to_string).unwrap_or_default();
    let message = format!("step {}: {message}", first.step);
    let mut text: Vec<String> =
        test.failures.iter().flat_map(|failure| failure.lines(&file.name)).collect();
    if test.omitted > 0 {
        text.push(format!("and {} more failed steps", test.omitted));
    }
    let (message, text) = (xml(&message), lines(&text.join("\n")));
    writeln!(out, r#"      <failure message="{message}">{text}</failure>"#)?;
    writeln!(out, "    </testcase>")
}

fn lines(text: &str) -> String {
    text.trim_end().lines().map(xml).collect::<Vec<_>>().join("\n")
}

/// Escapes text for content and quoted attributes. XML has no form for most control characters.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(out, r"\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::xml;

    #[test]
    fn text_is_escaped_for_xml() {
        assert_eq!(xml("a <b> & \"c\" 'd'"), "a &lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;");
        assert_eq!(xml("]]>\n\u{1b}\0\u{ffff}ü"), r"]]&gt;\n\u001b\u0000\uffffü");
    }
}
