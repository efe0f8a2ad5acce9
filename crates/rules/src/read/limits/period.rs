//! Reads the period of a limit: units, durations, and windows that follow the calendar.

use std::iter;
use std::sync::Arc;

use super::fields::Fields;
use crate::read::reader::Reader;
use crate::syntax::tree::Node;
use weir_common::duration::read_duration;
use weir_limit::{Calendar, CalendarError, Unit};

impl Reader<'_> {
    /// Reads `period`, or `text` as the `unit` with its `unit_multiplier`.
    pub(super) fn unit(&mut self, fields: &Fields<'_>, text: &str) -> Option<(Unit, u32)> {
        let multiplier =
            fields.get("unit_multiplier").map(|node| (node, self.u32(node, "unit_multiplier")));
        if let Some(node) = fields.get("period") {
            if fields.get("unit").is_some() || multiplier.is_some() {
                let message = "config error, both `period` and `unit`";
                self.error(node.position, message, &node.shown(), "remove one of the two");
            }
            return self.period(node);
        }
        let Some(unit) = Unit::from_name(text) else {
            let help = match text {
                "" => {
                    "write the limit as a `rate`, such as 10/s, or add `unit: second`, minute, hour, day, week, \
                       month or year"
                }
                _ => "write one of second, minute, hour, day, week, month, year",
            };
            let message = format!("invalid rate limit unit '{text}'");
            self.error(fields.position("unit"), message, text, help);
            return None;
        };
        let (node, multiplier) = multiplier.unzip();
        let multiplier = multiplier.unwrap_or(1);
        if unit.period(multiplier).is_none() {
            let message = format!(
                "unit_multiplier {multiplier} makes a period that is not between one second and \
                 100 years"
            );
            let help = "write a number of at least 1, and a period of at most 100 years";
            let position = node.map_or(fields.position, |node| node.position);
            self.error(position, message, &multiplier.to_string(), help);
            return None;
        }
        Some((unit, multiplier))
    }

    /// Reads `period` as a multiple of the largest unit that divides it.
    fn period(&mut self, node: &Node<'_>) -> Option<(Unit, u32)> {
        let text = self.string(node, "period");
        let seconds = read_duration(&text).filter(|time| time.subsec_nanos() == 0);
        let found = seconds.and_then(|time| Unit::of_seconds(time.as_secs()));
        if found.is_none() {
            let message = format!("config error, `period` is '{text}'");
            let help = "write whole seconds from 1s to 100 years, such as 15m, 36h or 7d";
            self.error(node.position, message, &text, help);
        }
        found
    }

    /// Reads `align`, `time_zone` and `starts`: the calendar that windows follow, if any. The outer option is none after an error.
    pub(super) fn calendar(&mut self, fields: &Fields<'_>) -> Option<Option<Arc<Calendar>>> {
        let is_multiplied = fields.get("unit_multiplier").is_some_and(|node| node.shown() != "1");
        let unit = Unit::from_name(&fields.text("unit")).filter(|_| !is_multiplied);
        let is_calendar_month = self.options.calendar_months && unit == Some(Unit::Month);
        let starts = fields.get("starts");
        let align = match fields.get("align") {
            Some(node) => self.string(node, "align"),
            // A month of a fixed length where the rule says so.
            None if starts.is_some() || is_calendar_month => "calendar".to_owned(),
            None => "epoch".to_owned(),
        };
        let zone = fields.get("time_zone").map(|node| self.string(node, "time_zone"));
        match align.as_str() {
            "epoch" => {
                if let Some(node) = starts {
                    let message = "config error, both `align: epoch` and `starts`";
                    let help = "remove one of the two: `starts` follows the calendar";
                    self.error(node.position, message, &node.shown(), help);
                } else if let Some(zone) = zone {
                    let message = "config error, `time_zone` without `align: calendar`";
                    let help = "add `align: calendar`, or remove `time_zone`";
                    self.error(fields.position("time_zone"), message, &zone, help);
                }
                return Some(None);
            }
            "calendar" => {}
            _ => {
                let message = format!("config error, `align` is '{align}'");
                self.error(fields.position("align"), message, &align, "write epoch or calendar");
                return None;
            }
        }
        let zone = zone.as_deref().unwrap_or("UTC");
        let key = if fields.get("align").is_some() { "align" } else { "starts" };
        let (key, error) = match unit.map(|unit| Calendar::new(unit, zone)) {
            Some(Ok(calendar)) => {
                let calendar = match starts {
                    Some(node) => self.starts(node, iter::once(calendar))?,
                    None => calendar,
                };
                return Some(Some(Arc::new(calendar)));
            }
            Some(Err(error @ CalendarError::UnknownZone(_))) => ("time_zone", error.to_string()),
            Some(Err(error)) => (key, error.to_string()),
            None => (key, "only one day, week, month or year follows the calendar".to_owned()),
        };
        let help = "calendar windows are `unit: day`, week, month or year, and a `time_zone` is an IANA name such as \
                    Europe/Berlin";
        self.error(fields.position(key), format!("config error, {error}"), &fields.text(key), help);
        None
    }

    /// Reads where in its unit a window starts, of the first calendar that has such a start.
    pub(super) fn starts(
        &mut self,
        node: &Node<'_>,
        mut calendars: impl Iterator<Item = Calendar>,
    ) -> Option<Calendar> {
        let text = node.shown();
        let starting = calendars.find_map(|calendar| calendar.starting(&text));
        if starting.is_none() {
            let message = format!("config error, `starts` is '{text}'");
            let help = "a month starts on a day from 1 to 31, a week on a day such as monday, and a \
                        day at a time such as \"06:00\"";
            self.error(node.position, message, &text, help);
        }
        starting
    }
}
