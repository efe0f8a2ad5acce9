//! What Redis clients may take, from the group `resp`.

use super::options::timeout;
use super::{SettingError, Settings};
use crate::resp::{BUFFERED_REQUESTS, Limits, MAX_REQUEST_BYTES, MIN_REQUEST_BYTES};

impl Settings {
    /// Returns what Redis clients may take.
    pub fn resp_limits(&self) -> Limits {
        let resp = &self.resp;
        Limits {
            timeout: timeout(*resp.timeout),
            max_request: *resp.max_request,
            max_buffered: *resp.max_buffered,
        }
    }

    pub(super) fn check_resp(&self, errors: &mut Vec<SettingError>) {
        let (max_request, max_buffered) = (&self.resp.max_request, &self.resp.max_buffered);
        if !(MIN_REQUEST_BYTES..=MAX_REQUEST_BYTES).contains(&**max_request) {
            let message = format!("is {}", max_request.text);
            errors.push(max_request.error(&message, "write a size from 4KiB to 16MiB"));
            return;
        }
        let least = **max_request * BUFFERED_REQUESTS;
        if **max_buffered < least {
            let message = format!(
                "is {}, which is less than {BUFFERED_REQUESTS} times resp.max_request ({})",
                max_buffered.text, max_request.text
            );
            let help = format!("write {least} or more, or a smaller resp.max_request");
            errors.push(max_buffered.error(&message, help));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::{Inputs, Settings};

    fn load(max_request: &str, max_buffered: &str) -> Result<Settings, Vec<String>> {
        let env =
            [("WEIR__RESP__MAX_REQUEST", max_request), ("WEIR__RESP__MAX_BUFFERED", max_buffered)];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let inputs = Inputs { env: env.into(), ..Inputs::default() };
        let texts = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
        Settings::load(&inputs).map_err(texts)
    }

    #[test]
    fn sizes_of_requests_have_bounds() {
        for size in ["4KiB", "16MiB"] {
            assert!(load(size, "512MiB").is_ok(), "{size}");
        }
        for size in ["0", "4095", "16777217", "100GiB"] {
            assert_eq!(
                load(size, "1GiB").unwrap_err(),
                [format!(
                    "WEIR__RESP__MAX_REQUEST: resp.max_request is {size}; write a size from 4KiB \
                     to 16MiB"
                )]
            );
        }
    }

    #[test]
    fn a_connection_has_room_for_the_largest_request() {
        assert!(load("512KiB", "16MiB").is_ok());
        assert_eq!(
            load("512KiB", "16777215").unwrap_err(),
            [
                "WEIR__RESP__MAX_BUFFERED: resp.max_buffered is 16777215, which is less than 32 times \
              resp.max_request (512KiB); write 16777216 or more, or a smaller resp.max_request"
            ]
        );
    }
}
