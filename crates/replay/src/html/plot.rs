//! Plots of requests over time, as SVG. Only shapes are in the SVG, which stretches with the page; labels
//! are text of the page, so that they keep their size on a phone.

use std::io::{self, Write};

use super::axis::{Bins, Tick, number_label, number_ticks};
use super::text::number;

/// The height of the plot in units of the SVG.
const HEIGHT: u64 = 1_000;
/// The width of a bin.
const BIN_WIDTH: usize = 20;
/// The least height of a bar, so that one denied request of a million is seen.
const MIN_HEIGHT: u64 = 14;
/// Plots with more bins have no gaps between the bars.
const MAX_SEPARATE_BARS: usize = 60;
/// A bar is no wider than this part of the plot.
const MAX_BAR_WIDTH: f64 = 0.08;
const TIME_TICKS: usize = 8;
const NUMBER_TICKS: u64 = 5;

/// One kind of requests in each bin. A plot's layers are drawn over one another, all from 0.
#[derive(Debug)]
pub(super) struct Layer<'a> {
    /// The class of the layer in the style sheet, which sets its colour.
    pub class: &'static str,
    /// The noun of what the layer counts: `requests`.
    pub name: &'static str,
    pub values: &'a [u64],
}

/// A mark on a plot.
#[derive(Debug)]
pub(super) struct Mark {
    /// The place of the mark on the axis, from 0 to 1.
    pub place: f64,
    pub width: f64,
    /// What is marked, as HTML.
    pub text: String,
}

/// A plot with axes.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    /// What is plotted, as HTML.
    pub title: &'a str,
    /// Colours and their meanings: none where the title says it.
    pub legend: &'a [(&'static str, &'static str)],
    /// What the plot shows, for readers who do not see it.
    pub description: &'a str,
    pub layers: &'a [Layer<'a>],
    /// The largest value of the axis; that of the layers if it is smaller.
    pub at_least: u64,
    /// A time that is marked.
    pub mark: Option<Mark>,
    /// The class of the plot in the style sheet, which sets its height.
    pub size: &'static str,
}

impl Plot<'_> {
    pub fn print(&self, bins: &Bins, out: &mut impl Write) -> io::Result<()> {
        let largest = largest(self.layers).max(self.at_least);
        let (step, count) = number_ticks(largest, NUMBER_TICKS);
        let top = step.saturating_mul(count);
        writeln!(out, r#"<figure class="plot {}">"#, self.size)?;
        write!(out, "<figcaption><span>{}</span>", self.title)?;
        if !self.legend.is_empty() {
            write!(out, r#"<span class="legend">"#)?;
            for (class, meaning) in self.legend {
                write!(out, r#"<span><i class="{class}"></i>{meaning}</span>"#)?;
            }
            write!(out, "</span>")?;
        }
        if let Some(Mark { text, .. }) = &self.mark {
            write!(out, r#"<span class="legend"><span><i class="mark"></i>{text}</span></span>"#)?;
        }
        writeln!(out, "</figcaption>")?;
        write!(out, r#"<div class="ys" aria-hidden="true">"#)?;
        for i in 0..=count {
            let label = number_label(step.saturating_mul(i));
            write!(out, r#"<span style="bottom:{:.2}%">{label}</span>"#, percent(i, count))?;
        }
        writeln!(out, "</div>")?;
        let ticks = bins.ticks(TIME_TICKS);
        writeln!(out, r#"<div class="area">"#)?;
        let width = bins.count * BIN_WIDTH;
        open_svg(width, self.description, out)?;
        for i in 1..=count {
            let y = HEIGHT - HEIGHT * i / count.max(1);
            write!(out, r#"<path class="grid" d="M0 {y}H{width}"/>"#)?;
        }
        for tick in &ticks {
            let x = tick.place * width as f64;
            write!(out, r#"<path class="grid" d="M{x:.1} 0V{HEIGHT}"/>"#)?;
        }
        for layer in self.layers {
            write_bars(layer, bins.count, top, out)?;
        }
        write!(out, r#"<path class="base" d="M0 {HEIGHT}H{width}"/>"#)?;
        self.print_tooltips(bins, out)?;
        writeln!(out, "</svg>")?;
        if let Some(Mark { place, width, .. }) = self.mark {
            let (left, width) = (place * 100.0, width * 100.0);
            writeln!(
                out,
                r#"<div class="mark" aria-hidden="true" style="left:{left:.2}%;width:{width:.2}%"></div>"#
            )?;
        }
        writeln!(out, "</div>")?;
        print_times(&ticks, out)?;
        writeln!(out, "</figure>")
    }

    /// Prints the numbers of each bin, which a browser shows under the pointer.
    fn print_tooltips(&self, bins: &Bins, out: &mut impl Write) -> io::Result<()> {
        for bin in 0..bins.count {
            let value = |layer: &Layer<'_>| layer.values.get(bin).copied().unwrap_or_default();
            if self.layers.iter().all(|layer| value(layer) == 0) {
                continue;
            }
            let x = bin * BIN_WIDTH;
            write!(
                out,
                r#"<path class="hit" d="M{x} 0h{BIN_WIDTH}v{HEIGHT}h-{BIN_WIDTH}z"><title>{}"#,
                bins.label(bin)
            )?;
            for (i, layer) in self.layers.iter().enumerate() {
                let separator = if i == 0 { ": " } else { ", " };
                write!(out, "{separator}{} {}", number(value(layer)), layer.name)?;
            }
            writeln!(out, "</title></path>")?;
        }
        Ok(())
    }
}

fn print_times(ticks: &[Tick], out: &mut impl Write) -> io::Result<()> {
    write!(out, r#"<div class="xs" aria-hidden="true">"#)?;
    for (i, tick) in ticks.iter().enumerate() {
        // A narrow page shows every second label, or every third: those with both classes.
        let class = match (ticks.len(), i % 2) {
            (0..=4, _) | (_, 0) => "",
            _ => r#" class="wide""#,
        };
        write!(out, r#"<span{class} style="left:{:.2}%">{}"#, tick.place * 100.0, tick.label)?;
        if let Some(day) = &tick.day {
            write!(out, "<b>{day}</b>")?;
        }
        write!(out, "</span>")?;
    }
    writeln!(out, "</div>")
}

/// Prints a small plot without axes.
pub(super) fn print_small(
    layers: &[Layer<'_>],
    bins: usize,
    description: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    open_svg(bins * BIN_WIDTH, description, out)?;
    let top = largest(layers).max(1);
    for layer in layers {
        write_bars(layer, bins, top, out)?;
    }
    write!(out, r#"<path class="base" d="M0 {HEIGHT}H{}"/></svg>"#, bins * BIN_WIDTH)
}

fn open_svg(width: usize, description: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        r#"<svg viewBox="0 0 {width} {HEIGHT}" preserveAspectRatio="none" role="img"><title>{description}</title>"#
    )
}

fn largest(layers: &[Layer<'_>]) -> u64 {
    layers.iter().flat_map(|layer| layer.values).copied().max().unwrap_or_default()
}

/// Writes the bars of a layer as one path. Equal neighbours without a gap become one.
fn write_bars(layer: &Layer<'_>, bins: usize, top: u64, out: &mut impl Write) -> io::Result<()> {
    if layer.values.iter().all(|value| *value == 0) {
        return Ok(());
    }
    write!(out, r#"<path class="{}" d=""#, layer.class)?;
    let part = match bins {
        0..=MAX_SEPARATE_BARS => (bins as f64 * MAX_BAR_WIDTH).min(0.84),
        _ => 1.0,
    };
    let gap = BIN_WIDTH as f64 * (1.0 - part) / 2.0;
    let mut from = 0;
    for equal in layer.values.chunk_by(|a, b| gap == 0.0 && a == b) {
        let (value, to) = (equal.first().copied().unwrap_or_default(), from + equal.len());
        if value > 0 {
            let height = HEIGHT as u128 * u128::from(value) / u128::from(top.max(1));
            let y = HEIGHT - u64::try_from(height).unwrap_or(HEIGHT).clamp(MIN_HEIGHT, HEIGHT);
            let (left, right) = ((from * BIN_WIDTH) as f64 + gap, (to * BIN_WIDTH) as f64 - gap);
            write!(out, "M{left} {HEIGHT}V{y}H{right}V{HEIGHT}z")?;
        }
        from = to;
    }
    writeln!(out, r#""/>"#)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
