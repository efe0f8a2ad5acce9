use std::sync::{Arc, Mutex};

use tracing::subscriber::with_default;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use super::super::json::{Names, json};
use super::*;

const HOSTILE: &str = "a\n2026 ERROR forged\r\u{1b}[2J\u{9b}31m\u{7f}\u{2028}\u{202e}z";

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the output for an event that contains `HOSTILE` in all places.
fn logged<L: Layer<Registry> + Send + Sync>(
    make: impl FnOnce(Box<dyn Fn() -> Written + Send + Sync>) -> L,
) -> String {
    let written = Written::default();
    let out = written.clone();
    let layer = make(Box::new(move || out.clone()));
    with_default(tracing_subscriber::registry().with(layer), || {
        let _span = tracing::info_span!("span", hostile = HOSTILE, shown = %HOSTILE).entered();
        let error = std::io::Error::other(HOSTILE);
        let source: &dyn std::error::Error = &error;
        tracing::info!(text = HOSTILE, shown = %HOSTILE, debug = ?[HOSTILE], source, "say {HOSTILE}");
    });
    String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
}

fn is_plain(text: &str) -> bool {
    weir_common::escape::escape(text) == text
}

#[test]
fn text_has_no_control_characters_and_one_unindented_line_per_event() {
    let logged = logged(|out| text(out, false));
    let lines: Vec<&str> = logged.strip_suffix('\n').unwrap().split('\n').collect();
    assert!(lines.iter().all(|line| is_plain(line)), "{logged:?}");
    assert_eq!(lines.len(), 2, "{logged:?}");
    assert!(lines[0].ends_with("say a"), "{logged:?}");
    let shown = r"2026 ERROR forged\r\u001b[2J\u009b31m\u007f\u2028\u202ez";
    assert!(lines[1].starts_with(&format!("    {shown} text=\"a\\n2026 ERR")), "{logged:?}");
    assert!(lines[1].contains(&format!(r" shown=a\n{shown} ")), "{logged:?}");
    assert!(lines[1].ends_with(&format!(r" source=a\n{shown}")), "{logged:?}");
}

#[test]
fn on_a_terminal_only_the_colors_of_the_formatter_remain() {
    let logged = logged(|out| text(out, true));
    assert!(logged.contains("\u{1b}[3mshown\u{1b}[0m\u{1b}[2m=\u{1b}[0ma\\n2026"), "{logged:?}");
    let mut plain = logged;
    for code in ["0", "1", "2", "3", "32"] {
        plain = plain.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert!(plain.lines().all(is_plain), "{plain:?}");
}

#[test]
fn json_has_no_control_characters_and_keeps_the_values() {
    let logged = logged(|out| json(Names::Own, out));
    let line = logged.strip_suffix('\n').unwrap();
    assert!(is_plain(line), "{logged:?}");
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(event["message"], format!("say {HOSTILE}"));
    for field in ["text", "shown", "source"] {
        assert_eq!(event[field], HOSTILE, "{field}");
    }
}

#[test]
fn lines_of_a_recorded_request_have_its_ids() {
    let ids = spans::TraceIds { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span: 0xf067 };
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "000000000000f067");
    let end = format!(" trace_id={trace} span_id={span}\n");
    for has_colors in [false, true] {
        assert!(!logged(|out| text(out, has_colors)).contains("trace_id"));
    }
    for logged in [logged(|out| json(Names::Own, out)), logged(|out| json(Names::Reference, out))] {
        assert!(!logged.contains("trace_id"), "{logged}");
    }
    let _entered = spans::enter(ids);
    let text = logged(|out| text(out, false));
    assert!(text.ends_with(&end), "{text:?}");
    for logged in [logged(|out| json(Names::Own, out)), logged(|out| json(Names::Reference, out))] {
        let line = logged.strip_suffix('\n').unwrap();
        assert!(is_plain(line), "{logged:?}");
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&event["trace_id"], &event["span_id"]), (&trace.into(), &span.into()));
        assert_eq!(event["text"], HOSTILE);
    }
}

#[test]
fn json_of_the_reference_has_its_names_and_keeps_the_values() {
    let logged = logged(|out| json(Names::Reference, out));
    let line = logged.strip_suffix('\n').unwrap();
    assert!(is_plain(line), "{logged:?}");
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(event["@message"], format!("say {HOSTILE}"));
    assert_eq!(event["level"], "info");
    let time = event["@timestamp"].as_str().unwrap();
    assert!(time.len() == "2026-11-22T04:26:53.123456789Z".len() && time.ends_with('Z'));
    time.parse::<jiff::Timestamp>().unwrap();
    for field in ["text", "shown", "source"] {
        assert_eq!(event[field], HOSTILE, "{field}");
    }
}
