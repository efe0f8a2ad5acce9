//! The progress bar of `weir replay`, on a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use super::input::Input;

/// Lines of the log between two updates of the bar.
const STRIDE: u64 = 1 << 14;

const BAR: &str = "{wide_bar} {percent:>3} %  {msg}  {eta} left";
const SPINNER: &str = "{spinner} {bytes} read  {msg}";

/// Shows how much of a log is read. It is on standard error, and only if that is a terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    read: Arc<AtomicU64>,
}

impl Progress {
    pub fn new(input: &Input) -> Progress {
        let (bar, template) = match input.bytes {
            Some(bytes) => (ProgressBar::new(bytes), BAR),
            None => (ProgressBar::new_spinner(), SPINNER),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar, read: input.read.clone() }
    }

    #[inline]
    pub fn show(&self, lines: u64) {
        if lines.is_multiple_of(STRIDE) && !self.bar.is_hidden() {
            let a_second = lines as f64 / self.bar.elapsed().as_secs_f64().max(0.001);
            let (lines, a_second) = (HumanCount(lines), HumanCount(a_second as u64));
            self.bar.set_message(format!("{lines} lines, {a_second}/s"));
            self.bar.set_position(self.read.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
