//! Reads `ban` (deny a key for a while after many denials) of a rule, and checks it against the rule's limits.

use super::limits::LimitFields;
use super::reader::Reader;
use crate::model::key::Section;
use crate::syntax::tree::{Content, Node};
use weir_limit::{AlgorithmKind, Ban, Limit, Micros};

impl Reader<'_> {
    /// Reads the keys of `ban`, and checks what does not depend on the rule.
    pub(super) fn ban_fields(&mut self, node: &Node<'_>) -> Option<Ban> {
        let (mut after, mut within, mut lengths, mut forget) = (None, None, None, None);
        for (field, value) in self.fields(node, Section::Ban) {
            match field {
                _ if value.is_null() => {}
                "after" => after = Some(self.number(value, field)),
                "within" => within = Some(self.duration(value, field)),
                "for" => lengths = Some(self.ban_lengths(value)),
                _ => forget = Some(self.duration(value, field)),
            }
        }
        for (field, is_missing) in
            [("after", after.is_none()), ("within", within.is_none()), ("for", lengths.is_none())]
        {
            if is_missing {
                let message = format!("config error, `ban` without `{field}`");
                let help = "write `ban: { after: 10, within: 10m, for: 1h }`: after ten denials within ten \
                            minutes, an hour";
                self.error(node.position, message, "", help);
            }
        }
        let lengths = lengths??;
        let forget = forget.unwrap_or_else(|| Some(Ban::default_forget(&lengths)))?;
        let after = u8::try_from(after??).ok()?;
        Some(Ban { after, within: within??, lengths: lengths.into(), forget })
    }

    /// Reads the lengths of bans: one, or a list.
    fn ban_lengths(&mut self, node: &Node<'_>) -> Option<Vec<Micros>> {
        let Content::List(items) = node.content() else {
            return self.duration(node, "for").map(|length| vec![length]);
        };
        if !(1..=Ban::MAX_LENGTHS).contains(&items.len()) {
            let message = format!("config error, {} items in `for`", items.len());
            let help = format!(
                "write 1 to {} lengths, such as [1m, 10m, 1h]: the last is that of all further bans",
                Ban::MAX_LENGTHS
            );
            self.error(node.position, message, "", &help);
            return None;
        }
        items.iter().map(|item| self.duration(item, "for")).collect()
    }

    /// Reads the `ban` of a descriptor with these limits; none after an error.
    pub(super) fn ban(
        &mut self,
        node: &Node<'_>,
        is_quota: bool,
        limits: Option<&LimitFields>,
    ) -> Option<Ban> {
        let ban = self.ban_fields(node);
        let Some(fields) = limits else {
            let help = "write `rate`, `rate_limit` or `rate_limits` beside it, or remove it";
            self.error(node.position, "config error, `ban` without a limit", "", help);
            return None;
        };
        let limits = &fields.limits;
        // Invalid limits are reported.
        let are_valid = limits.len() == fields.places.len();
        let is_concurrency = |limit: &Limit| limit.algorithm.kind() == AlgorithmKind::Concurrency;
        // What is written beside `key` is no mode of a limit.
        let strikes = |limit: &Limit| !limit.shadow_mode && !is_concurrency(limit);
        let causes = [
            (
                self.together,
                "under `charge: together`",
                "a request that is denied there charges nothing, and so counts no denial (`charge` may be in an \
                 overlay)",
            ),
            (is_quota, "beside `quota_mode`", "the denial of a quota does not deny the request"),
            (
                are_valid && limits.is_empty(),
                "beside `unlimited`",
                "without a limit nothing is denied",
            ),
            (
                limits.iter().any(|limit| limit.requests_per_unit == 0),
                "beside a limit of 0",
                "it denies every request anyway",
            ),
            (
                are_valid && !limits.is_empty() && limits.iter().all(is_concurrency),
                "with concurrency alone",
                "what denies must be a limit of hits: add one to `rate_limits`",
            ),
            (
                are_valid && !limits.iter().all(is_concurrency) && !limits.iter().any(strikes),
                "beside limits of hits that are all in `shadow_mode`",
                "only what enforces denies; set `shadow_mode` beside `key` to try the whole rule",
            ),
        ];
        for (_, cause, why) in causes.into_iter().filter(|(applies, ..)| *applies) {
            let message = format!("config error, `ban` {cause}");
            let help = format!("remove one of the two: {why}");
            self.error(node.position, message, "", &help);
        }
        ban
    }
}
