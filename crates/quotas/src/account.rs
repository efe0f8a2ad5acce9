//! What one client was granted of a bucket and has reported, and so what of it can be returned to the store. Pure.
//!
//! A client that applies a new grant drops what is left of the one before. So once a report must have been made after
//! that, what it has not used of earlier grants will never be used. When a report was made is not known, only when it
//! arrived: it counts as made after a grant was applied that was sent [`REPORT_DELAY`] before. As its numbers may also
//! have hits of later grants, what is returned comes one report late, and is never too much:
//!
//! ```text
//! returned now = granted before the newest grant that was applied − all that was reported − all that was returned
//! ```
//!
//! Hits count for the window that they were charged in, so each window has its own sums. A denial is a grant of 0 hits.
//! What is granted again, without the store, counts as returned and as granted.

use std::sync::Arc;

use smallvec::SmallVec;
use weir_limit::{Micros, Plan, SECOND, Undo};

/// How long after a grant was sent a report arrives that was made with it: longer than both take on their ways.
pub const REPORT_DELAY: Micros = 4 * SECOND;

/// Hits that were charged for a client.
#[derive(Clone, Debug)]
pub struct Granted {
    pub hits: u32,
    /// What returns hits of them, whatever their number; none if the store itself has not charged them, or returning them
    /// is not worth it.
    pub undo: Option<Undo>,
    pub plan: Arc<Plan>,
    /// The end of their window, in the store's time.
    pub window_end: Micros,
}

/// The grants and reports of one bucket of one client.
#[derive(Debug, Default)]
pub struct Account {
    /// Grants that may still be used, or whose use may not be reported yet; oldest first.
    open: SmallVec<[Sent; 2]>,
    /// The most hits that the client may use, or has used without a report of it.
    pub unreported: u64,
    window: Option<Box<Window>>,
}

#[derive(Debug)]
struct Sent {
    at: Micros,
    hits: u32,
    /// Whether they may be returned: the store charged them in the current window.
    is_returnable: bool,
}

impl Sent {
    fn is_applied(&self, now: Micros) -> bool {
        self.at.saturating_add(REPORT_DELAY) <= now
    }
}

/// The sums of the window of the newest grant that the store made.
#[derive(Debug)]
struct Window {
    plan: Arc<Plan>,
    end: Micros,
    /// What returns hits of the window, whatever their number.
    undo: Undo,
    /// Hits of grants that are replaced at the client.
    replaced: u64,
    reported: u64,
    returned: u64,
}

/// What follows from a report.
#[derive(Debug, Default)]
pub struct Settled {
    /// Hits that the client has admitted beyond what it was granted.
    pub excess: u64,
    /// Hits that the client will not use: to be returned, or granted again.
    pub unused: Option<Granted>,
}

impl Granted {
    /// Returns a grant of 0 hits.
    pub fn none(plan: Arc<Plan>, window_end: Micros) -> Granted {
        Granted { hits: 0, undo: None, plan, window_end }
    }

    /// Takes up to `most` unused hits of another grant, if they count for the same window. Returns their number.
    pub fn take(&mut self, unused: &mut Granted, most: u32) -> u32 {
        let limits = |undo: Option<Undo>| undo.map(|undo| undo.limits);
        let is_same = self.window_end == unused.window_end
            && Arc::ptr_eq(&self.plan, &unused.plan)
            && (self.hits == 0 || limits(self.undo) == limits(unused.undo));
        let hits = if is_same { unused.hits.min(most) } else { 0 };
        if hits > 0 {
            unused.hits -= hits;
            self.hits = self.hits.saturating_add(hits);
            self.undo = unused.undo;
        }
        hits
    }
}

impl Account {
    /// Adds a grant that is sent to the client now.
    pub fn grant(&mut self, now: Micros, granted: Granted) {
        let Granted { hits, undo, plan, window_end: end } = granted;
        if let Some(undo) = undo {
            let continues = |window: &Window| {
                window.end == end
                    // Rules that were loaded anew may charge another key.
                    && Arc::ptr_eq(&window.plan, &plan)
                    && window.undo.limits == undo.limits
            };
            if !self.window.as_deref().is_some_and(continues) {
                // Hits of another window cannot be returned.
                self.open.iter_mut().for_each(|sent| sent.is_returnable = false);
                let (replaced, reported, returned) = Default::default();
                let window = Window { plan, end, undo, replaced, reported, returned };
                self.window = Some(Box::new(window));
            }
        }
        self.open.push(Sent { at: now, hits, is_returnable: undo.is_some() });
        self.unreported = self.unreported.saturating_add(hits.into());
    }

    /// Adds that the client is sent what replaces its grants.
    pub fn replace(&mut self, now: Micros) {
        if self.open.iter().any(|sent| sent.hits > 0) {
            self.open.push(Sent { at: now, hits: 0, is_returnable: false });
        }
    }

    /// Settles a report that arrives now, of hits that the client has admitted since its last one.
    pub fn report(&mut self, now: Micros, admitted: u64) -> Settled {
        let excess = admitted.saturating_sub(self.unreported);
        let newest = self.open.iter().rposition(|sent| sent.is_applied(now)).unwrap_or(0);
        let returnable = |sent: &Sent| if sent.is_returnable { u64::from(sent.hits) } else { 0 };
        let replaced: u64 = self.open.drain(..newest).map(|sent| returnable(&sent)).sum();
        let usable = self.open.iter().map(|sent| u64::from(sent.hits)).sum();
        self.unreported = self.unreported.saturating_sub(admitted).min(usable);
        let Some(window) = self.window.as_deref_mut() else {
            return Settled { excess, unused: None };
        };
        window.replaced += replaced;
        window.reported = window.reported.saturating_add(admitted);
        let settled = window.reported.saturating_add(window.returned);
        let unused = window.replaced.saturating_sub(settled);
        let hits = u32::try_from(unused).unwrap_or(u32::MAX);
        window.returned += u64::from(hits);
        let (undo, plan, window_end) = (Some(window.undo), window.plan.clone(), window.end);
        let unused = (hits > 0).then_some(Granted { hits, undo, plan, window_end });
        Settled { excess, unused }
    }

    /// Returns whether a report that arrives now was made after the newest grant was applied.
    pub fn is_applied(&self, now: Micros) -> bool {
        self.open.last().is_none_or(|sent| sent.is_applied(now))
    }

    /// Keeps unused hits of the last report for a later grant.
    pub fn keep_unused(&mut self, unused: &mut Granted) {
        if let Some(window) = self.window.as_deref_mut() {
            window.returned -= u64::from(std::mem::take(&mut unused.hits));
        }
    }
}
