//! Draws one run: above, the requests and those admitted; below, how many count at each instant. The
//! background is light, so that the picture is readable on any page.

use std::fmt::{self, Write};

use weir_limit::{Micros, SECOND};

use super::simulate::{END, N, Run};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const BIN: Micros = SECOND / 2;

const UPPER: Panel = Panel { top: 92.0, height: 140.0, most: 8 };
const LOWER: Panel = Panel { top: 272.0, height: 140.0, most: 20 };

const INK: &str = "#24292f";
const FAINT: &str = "#6b7280";
const GRID: &str = "#e5e7eb";
const ASKED: &str = "#cbd0d8";
const ADMITTED: &str = "#2563eb";
const LIMIT: &str = "#c2410c";

/// A diagram over time, from zero to `most`.
struct Panel {
    top: f64,
    height: f64,
    most: u32,
}

impl Panel {
    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn y(&self, value: usize) -> f64 {
        self.bottom() - self.height * (value as f64 / f64::from(self.most)).min(1.0)
    }

    /// Draws grid lines, numbers and the title on the left.
    fn axes(&self, out: &mut String, step: usize, title: &str) -> fmt::Result {
        for value in (0..=self.most as usize).step_by(step) {
            let y = self.y(value);
            writeln!(out, r#"<path d="M{LEFT} {y:.1}H{:.1}" stroke="{GRID}"/>"#, WIDTH - RIGHT)?;
            let y = y + 4.0;
            text(out, (LEFT - 8.0, y), "end", FAINT, &value.to_string())?;
        }
        for second in (0..=60).step_by(10) {
            let x = x(second * SECOND);
            writeln!(
                out,
                r#"<path d="M{x:.1} {:.1}V{:.1}" stroke="{GRID}"/>"#,
                self.top,
                self.bottom() + 5.0
            )?;
            let place = (x, self.bottom() + 19.0);
            text(out, place, "middle", FAINT, &second.to_string())?;
        }
        let middle = self.top + self.height / 2.0;
        writeln!(out, r#"<g transform="translate(22 {middle:.1}) rotate(-90)">"#)?;
        text(out, (0.0, 0.0), "middle", INK, title)?;
        writeln!(out, "</g>")
    }
}

fn x(at: Micros) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / END as f64
}

pub fn svg(run: &Run) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = draw(run, &mut out);
    out
}

fn draw(run: &Run, out: &mut String) -> fmt::Result {
    let Run { name, numbers, .. } = run;
    let (asked, admitted) = (run.asked.len(), run.admitted().count());
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif" font-size="12">"#
    )?;
    writeln!(out, "<title>{name}, {numbers}: {admitted} of {asked} requests admitted</title>")?;
    writeln!(
        out,
        r##"<rect x="0.5" y="0.5" width="{}" height="{}" rx="8" fill="#ffffff" stroke="#d0d7de"/>"##,
        WIDTH - 1.0,
        HEIGHT - 1.0
    )?;
    writeln!(
        out,
        r#"<text x="{LEFT}" y="34" font-size="18" font-weight="600" fill="{INK}">{name}</text>"#
    )?;
    let subtitle = format!("{numbers}; {admitted} of {asked} requests admitted");
    text(out, (LEFT, 54.0), "start", FAINT, &subtitle)?;
    legend(run, out)?;

    UPPER.axes(out, 2, "requests per half second")?;
    bars(out, run.asked.iter().map(|(at, _)| *at), ASKED)?;
    bars(out, run.admitted(), ADMITTED)?;

    LOWER.axes(out, 5, run.counted)?;
    count(run, out)?;
    let limit = LOWER.y(N as usize);
    writeln!(
        out,
        r#"<path d="M{LEFT} {limit:.1}H{:.1}" stroke="{LIMIT}" stroke-width="1.5" stroke-dasharray="6 4"/>"#,
        WIDTH - RIGHT
    )?;
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    text(out, (middle, HEIGHT - 16.0), "middle", INK, "seconds")?;
    writeln!(out, "</svg>")
}

fn text(
    out: &mut String,
    (x, y): (f64, f64),
    anchor: &str,
    colour: &str,
    text: &str,
) -> fmt::Result {
    writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" fill="{colour}">{text}</text>"#
    )
}

fn legend(run: &Run, out: &mut String) -> fmt::Result {
    let y = 74.0;
    for (at, colour, what) in [(0.0, ASKED, "asked, not admitted"), (150.0, ADMITTED, "admitted")] {
        let (x, top) = (LEFT + at, y - 5.0);
        writeln!(
            out,
            r#"<rect x="{x:.1}" y="{top:.1}" width="12" height="10" rx="1.5" fill="{colour}"/>"#
        )?;
        text(out, (x + 18.0, y + 4.0), "start", INK, what)?;
    }
    // An estimate of the width of the text.
    let last = 290.0 + 6.8 * run.counted.len() as f64;
    for (at, colour, dashes, what) in
        [(240.0, ADMITTED, "none", run.counted), (last, LIMIT, "6 4", "limit")]
    {
        let x = LEFT + at;
        writeln!(
            out,
            r#"<path d="M{x:.1} {y}h22" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>"#
        )?;
        text(out, (x + 28.0, y + 4.0), "start", INK, what)?;
    }
    Ok(())
}

/// Draws a bar for each half second with requests.
fn bars(out: &mut String, times: impl Iterator<Item = Micros>, colour: &str) -> fmt::Result {
    let mut bins = vec![0; (END / BIN) as usize];
    times.for_each(|at| bins[(at / BIN) as usize] += 1);
    for (i, &count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (left, right) = (x(i as Micros * BIN), x((i as Micros + 1) * BIN));
        let y = UPPER.y(count);
        writeln!(
            out,
            r#"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{:.1}" fill="{colour}"/>"#,
            left + 0.5,
            right - left - 1.0,
            UPPER.bottom() - y,
        )?;
    }
    Ok(())
}

/// Draws the number of admitted requests that count at each instant.
fn count(run: &Run, out: &mut String) -> fmt::Result {
    let mut changes = std::collections::BTreeMap::new();
    for at in run.admitted() {
        *changes.entry(at).or_insert(0) += 1;
        // A request exactly one period old no longer counts.
        *changes.entry(at + run.counts_for).or_insert(0) -= 1;
    }
    let mut level = 0_usize;
    let mut path = format!("M{LEFT} {:.1}", LOWER.y(0));
    for (at, change) in changes.into_iter().filter(|(at, change)| *at <= END && *change != 0) {
        level = level.saturating_add_signed(change);
        write!(path, "H{:.1}V{:.1}", x(at), LOWER.y(level))?;
    }
    let end = x(END);
    writeln!(
        out,
        r#"<path d="{path}H{end:.1}V{:.1}Z" fill="{ADMITTED}" fill-opacity="0.12"/>"#,
        LOWER.y(0)
    )?;
    writeln!(
        out,
        r#"<path d="{path}H{end:.1}" fill="none" stroke="{ADMITTED}" stroke-width="1.75" stroke-linejoin="round"/>"#
    )
}
