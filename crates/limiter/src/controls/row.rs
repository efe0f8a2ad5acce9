//! Rows of the table that replicas share: controls, and what is left of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Control, time};
use weir_limit::Micros;

/// A control, or what is left of one; as text the JSON of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Row {
    Tombstone(Tombstone),
    Control {
        #[serde(flatten)]
        control: Arc<Control>,
        /// Until when a tombstone follows its end: it has replaced one that expires later.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "time")]
        tombstone_until: Option<Micros>,
    },
}

/// A control that was deleted, or has ended before the one that it had replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tombstone {
    #[serde(rename = "deleted_at", with = "time")]
    pub at: Micros,
    #[serde(with = "time")]
    pub until: Micros,
}

impl Row {
    /// Returns when the row was written.
    pub fn at(&self) -> Micros {
        match self {
            Row::Control { control, .. } => control.at,
            Row::Tombstone(tombstone) => tombstone.at,
        }
    }

    /// Returns the control, expired or not.
    pub fn control(&self) -> Option<&Arc<Control>> {
        match self {
            Row::Control { control, .. } => Some(control),
            Row::Tombstone(_) => None,
        }
    }

    /// Returns when the row expires: with its control, or with the tombstone after that.
    pub fn expires_at(&self) -> Micros {
        match self {
            Row::Control { control, tombstone_until } => {
                let until = control.until.unwrap_or(Micros::MAX);
                tombstone_until.map_or(until, |tombstone_until| until.max(tombstone_until))
            }
            Row::Tombstone(tombstone) => tombstone.until,
        }
    }

    /// Returns when the row changes by itself: when its control or its tombstone expires.
    pub fn next_end(&self) -> Option<Micros> {
        match self {
            Row::Control { control, .. } => control.until,
            Row::Tombstone(tombstone) => Some(tombstone.until),
        }
    }

    /// Returns whether the row has expired at `now`.
    pub(crate) fn is_expired(&self, now: Micros) -> bool {
        self.expires_at() <= now
    }

    /// Turns a row whose control has expired into a tombstone, if one is to remain.
    pub fn end(&mut self, now: Micros) {
        if let Row::Control { control, tombstone_until: Some(until) } = self
            && control.is_expired(now)
        {
            *self = Row::Tombstone(Tombstone { at: control.at, until: *until });
        }
    }

    /// Returns the row as JSON text.
    pub fn text(&self) -> String {
        // It has only texts and numbers, which are always valid.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a row; none if it is not one, as of a newer version.
    pub fn read(name: &str, text: &str) -> Option<Row> {
        let row: Row = serde_json::from_str(text).ok()?;
        row.control().is_none_or(|control| control.id == name).then_some(row)
    }
}
