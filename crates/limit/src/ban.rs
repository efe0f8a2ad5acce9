//! Bans (`ban` in rules): a key (the entry values of a rule) that is denied often enough is denied for a while, even
//! where its limits allow. `Plan` counts and obeys them at each charge.
//!
//! A strike is a descriptor that the enforcing limits of its rule (those not in shadow mode) deny. Strikes count from
//! the first of them for `within`, then they start over. With the last of `after` strikes the ban begins, and the
//! strikes start over. Until it ends, everything that asks for hits is denied and charges nothing, and nothing prolongs
//! it. Of several bans in a row each may be longer; the row ends `forget` after the end of the last one.
//!
//! Source: `maxretry`, `findtime`, `bantime` and `bantime.increment` of fail2ban are `after`, `within`, `for` and the
//! list of lengths. There, time is that of a log; here it is that of the store.

use crate::saved::{self, SavedNumbers};
use crate::time::{MAX_PERIOD, Micros};

/// When a key is banned, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The strikes with which a ban begins; at least 1.
    pub after: u8,
    /// The time from the first strike within which strikes count together.
    pub within: Micros,
    /// The lengths of bans in a row, at least one: the last is that of all further ones.
    pub lengths: Box<[Micros]>,
    /// The time after a ban without another one, after which lengths start over.
    pub forget: Micros,
}

impl Ban {
    /// The most lengths of a ban.
    pub const MAX_LENGTHS: usize = 16;

    /// Returns the default of `forget` for bans of these lengths: ten times the last, at most 100 years.
    pub fn default_forget(lengths: &[Micros]) -> Micros {
        lengths.last().map_or(0, |last| last.saturating_mul(10).min(MAX_PERIOD))
    }

    /// Returns how long a ban is remembered after its end: not at all if each is as long as the first.
    pub fn forgets_after(&self) -> Micros {
        if self.lengths.len() > 1 { self.forget } else { 0 }
    }
}

/// The strikes and the ban of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanState {
    /// The strikes since the first one that counts.
    pub strikes: u8,
    /// The bans in a row, with the one that lasts; 0 once they are forgotten.
    pub bans: u8,
    /// When the strikes began that count, or with which the ban began.
    pub since: Micros,
    /// When the last ban began.
    pub began: Micros,
    /// When it ends.
    pub until: Micros,
}

impl BanState {
    /// The tag of a ban in saved states, which never changes: no algorithm has it.
    pub(crate) const TAG: u64 = 64;

    /// Returns the strikes that count at `now`.
    fn counting_strikes(&self, ban: &Ban, now: Micros) -> u8 {
        if now.saturating_sub(self.since) < ban.within { self.strikes } else { 0 }
    }

    /// Returns the bans in a row at `now`.
    fn bans_in_a_row(&self, ban: &Ban, now: Micros) -> u8 {
        let ends = self.until.saturating_add(ban.forgets_after());
        if now < ends { self.bans } else { 0 }
    }

    /// Moves a ban that a clock left ahead when it stepped back: it gets no longer. What has passed stays, as other
    /// numbers may still count it.
    pub(crate) fn advance(&mut self, now: Micros) {
        let ahead = self.began.saturating_sub(now);
        (self.began, self.until) = (self.began - ahead, self.until.saturating_sub(ahead));
    }

    /// Returns whether an advanced state is that of a banned key.
    pub fn is_banned(&self, now: Micros) -> bool {
        now < self.until
    }

    /// Counts a strike of a key that is not banned.
    pub(crate) fn strike(&mut self, ban: &Ban, now: Micros) {
        let before = self.counting_strikes(ban, now);
        self.since = if before == 0 { now } else { self.since.min(now) };
        self.strikes = before.saturating_add(1);
        if self.strikes >= ban.after {
            let bans = self.bans_in_a_row(ban, now);
            let step = usize::from(bans).min(ban.lengths.len().saturating_sub(1));
            let length = ban.lengths.get(step).copied().unwrap_or(0);
            (self.strikes, self.bans) = (0, bans.saturating_add(1));
            (self.began, self.until) = (now, now.saturating_add(length));
        }
    }

    /// Returns when the state means the same as none.
    pub(crate) fn expires(&self, ban: &Ban) -> Micros {
        let strikes = if self.strikes > 0 { self.since.saturating_add(ban.within) } else { 0 };
        let bans = if self.bans > 0 { self.until.saturating_add(ban.forgets_after()) } else { 0 };
        strikes.max(bans)
    }

    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        let BanState { strikes, bans, since, began, until } = *self;
        let numbers = [BanState::TAG, strikes.into(), bans.into(), since, began, until - began];
        numbers.into_iter().for_each(|number| saved::put(out, number));
    }

    /// Reads what [`save`](Self::save) has written behind its tag.
    pub(crate) fn restore(saved: &mut SavedNumbers<'_>) -> Option<BanState> {
        let mut short = || u8::try_from(saved.next()?).ok();
        let (strikes, bans) = (short()?, short()?);
        let (since, began) = (saved.next()?, saved.next()?);
        let until = began.checked_add(saved.next()?)?;
        Some(BanState { strikes, bans, since, began, until })
    }
}

/// What is known of a key's strikes and ban at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanReading {
    /// The strikes that count.
    pub strikes: u8,
    /// The strikes with which a ban begins.
    pub after: u8,
    /// The time since the first of the strikes, also of those with which the ban began; 0 without any.
    pub since: Micros,
    /// The time until the ban ends; 0 without one.
    pub ends_in: Micros,
    /// The bans in a row.
    pub bans: u8,
}

impl BanReading {
    pub(crate) fn new(ban: &Ban, mut state: BanState, now: Micros) -> BanReading {
        state.advance(now);
        let (strikes, is_banned) = (state.counting_strikes(ban, now), state.is_banned(now));
        let since = if strikes > 0 || is_banned { now.saturating_sub(state.since) } else { 0 };
        let ends_in = state.until.saturating_sub(now);
        let bans = state.bans_in_a_row(ban, now);
        BanReading { strikes, after: ban.after, since, ends_in, bans }
    }
}
