//! Which optional parts of a request clients may use, by protocol: limits in the request, refunds and settling.

use weir_limiter::{Budget, Descriptor, RequestError, ReservationStep};

/// How a request arrived. Error texts name the settings of its protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    #[default]
    Grpc,
    Http,
    Resp,
}

/// What clients of one protocol may use. Everything, by default.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    pub protocol: Protocol,
    /// Limits in the request, which replace those of the rules.
    pub allow_overrides: bool,
    /// Refunds (`is_negative_hits`), and settling and cancelling reserved hits.
    pub allow_negative_hits: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        let protocol = Protocol::default();
        Permissions { protocol, allow_overrides: true, allow_negative_hits: true }
    }
}

impl Permissions {
    /// Returns the error of the first descriptor that uses what is disabled.
    pub(super) fn check(self, descriptors: &[Descriptor<'_>]) -> Result<(), RequestError> {
        for (i, descriptor) in descriptors.iter().enumerate() {
            if descriptor.is_negative_hits && !self.allow_negative_hits {
                return Err(RequestError::BadDescriptor(i, self.no_negative_hits()));
            }
            if descriptor.budget.is_some_and(returns_hits) && !self.allow_negative_hits {
                return Err(RequestError::BadDescriptor(i, self.no_budget_settling()));
            }
            if descriptor.limit.is_some() && !self.allow_overrides {
                return Err(RequestError::BadDescriptor(i, self.no_overrides()));
            }
        }
        Ok(())
    }

    fn no_negative_hits(self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "is_negative_hits is disabled (setting grpc.allow_negative_hits)",
            Protocol::Http => "is_negative_hits is disabled (setting http.allow_negative_hits)",
            Protocol::Resp => "negative hits are disabled (setting resp.allow_negative_hits)",
        }
    }

    /// Returns why descriptors must not settle what is reserved, if so.
    pub(super) fn no_settling(self) -> Option<&'static str> {
        (!self.allow_negative_hits).then_some(match self.protocol {
            Protocol::Grpc => "settling is disabled (setting grpc.allow_negative_hits)",
            Protocol::Http => "settling is disabled (setting http.allow_negative_hits)",
            Protocol::Resp => "settling is disabled (setting resp.allow_negative_hits)",
        })
    }

    fn no_budget_settling(self) -> &'static str {
        match self.protocol {
            Protocol::Http => {
                "settling and cancelling are disabled: send the token of debug.write_token_file, or set \
                 http.allow_negative_hits"
            }
            Protocol::Grpc | Protocol::Resp => {
                "settling and cancelling are disabled (setting grpc.allow_negative_hits)"
            }
        }
    }

    fn no_overrides(self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "limit overrides are disabled (setting grpc.allow_overrides)",
            Protocol::Http => "limit overrides are disabled (setting http.allow_overrides)",
            Protocol::Resp => "limit overrides are disabled",
        }
    }
}

fn returns_hits(budget: &Budget<'_>) -> bool {
    !matches!(budget.step, ReservationStep::Reserve(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_limiter::Override;

    #[test]
    fn errors_name_the_setting_of_the_protocol() {
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
                    if let Err(error) = checked {
                        let text = error.to_string();
                        assert!(text.starts_with("descriptor 1: "), "{text}");
                        assert!(text.contains(&format!("setting {group}.{setting}")), "{text}");
                    }
                }
            }
        }
    }
}
