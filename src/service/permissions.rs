//! What clients may ask for beside hits, by where they came in.

use crate::limiter::{Descriptor, RequestError};

/// How a request came. It names the settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Grpc,
    Http,
}

/// What clients of a protocol may ask for. Everything, by default.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    pub protocol: Protocol,
    /// Limits of their own, in place of the rules'.
    pub allow_overrides: bool,
    /// Refunds of hits.
    pub allow_negative_hits: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        let protocol = Protocol::default();
        Permissions { protocol, allow_overrides: true, allow_negative_hits: true }
    }
}

impl Permissions {
    /// Whether anything is off.
    pub(super) fn are_limited(self) -> bool {
        !(self.allow_overrides && self.allow_negative_hits)
    }

    /// Checks a request.
    ///
    /// # Errors
    ///
    /// For the first descriptor that asks for what is off, with the setting.
    pub(super) fn check(self, descriptors: &[Descriptor<'_>]) -> Result<(), RequestError> {
        for (i, descriptor) in descriptors.iter().enumerate() {
            if descriptor.is_negative_hits && !self.allow_negative_hits {
                return Err(RequestError::BadDescriptor(i, self.no_negative_hits()));
            }
            if descriptor.limit.is_some() && !self.allow_overrides {
                return Err(RequestError::BadDescriptor(i, self.no_overrides()));
            }
        }
        Ok(())
    }

    fn no_negative_hits(self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "is_negative_hits is off here (setting grpc.allow_negative_hits)",
            Protocol::Http => "is_negative_hits is off here (setting http.allow_negative_hits)",
        }
    }

    fn no_overrides(self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "limit overrides are off here (setting grpc.allow_overrides)",
            Protocol::Http => "limit overrides are off here (setting http.allow_overrides)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Override;

    #[test]
    fn what_is_off_is_refused_with_the_setting_of_its_entrance() {
        let plain = Descriptor::default();
        let with_limit = Descriptor { limit: Some(Override::default()), ..plain };
        let refund = Descriptor { is_negative_hits: true, ..plain };
        for (protocol, group) in [(Protocol::Grpc, "grpc"), (Protocol::Http, "http")] {
            for (overrides, refunds) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let permissions = Permissions {
                    protocol,
                    allow_overrides: overrides,
                    allow_negative_hits: refunds,
                };
                assert_eq!(permissions.check(&[plain]), Ok(()));
                for (descriptor, allowed, setting) in [
                    (with_limit, overrides, "allow_overrides"),
                    (refund, refunds, "allow_negative_hits"),
                ] {
                    let checked = permissions.check(&[plain, descriptor]);
                    assert_eq!(checked.is_ok(), allowed, "{permissions:?}");
                    if let Err(refused) = checked {
                        let text = refused.to_string();
                        assert!(text.starts_with("descriptor 1: "), "{text}");
                        assert!(text.contains(&format!("setting {group}.{setting}")), "{text}");
                    }
                }
            }
        }
    }
}
