//! Messages that are made to take memory and time, and sets that are refused again and again.

use prost_types::Any;
use weir::proto::envoy::service::discovery::v3::DiscoveryResponse;

use super::{any, asking, bad, of};
use crate::support::http;
use crate::support::management::{Management, TYPE_URL};
use crate::support::messages::messages;

/// Bytes of a message.
const SIZE: usize = 500_000;

/// What weir may take more for one, in bytes, and write to its log: `docs/rules.md` has the bound.
const MOST_MEMORY: u64 = (32 << 20) + 150 * SIZE as u64;
const MOST_LOG: usize = 200_000;

#[test]
fn bad_messages_are_not_amplified() {
    for (name, value) in messages(SIZE) {
        let server = Management::start();
        let weir = asking(server.address).start_unhealthy();
        server.sotw.next();
        let before = weir.peak_memory();
        let resources = vec![Any { type_url: TYPE_URL.to_owned(), value }];
        let answer = server.answer_to("1", resources);
        let more = weir.peak_memory() - before;
        assert!(more <= MOST_MEMORY, "{name}: {more} bytes");
        let said = weir.said().len();
        assert!(said <= MOST_LOG, "{name}: {said} bytes in the log");
        let why = answer.error_detail.map_or(0, |why| why.message.len());
        assert!(why <= 5_000, "{name}: {why} bytes for the server");
    }
}
