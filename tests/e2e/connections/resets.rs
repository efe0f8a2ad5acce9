//! Clients that reset their requests.

use std::collections::HashMap;
use std::thread;

use super::raw::{Frames, call, frame, late_call, open, open_call, reset, reset_call};
use super::*;

#[test]
fn resets_that_arrive_together_after_a_stall_do_not_close_the_connection() {
    let weir = setup().start();
    let (ann, bob) = (framed_request("ann"), framed_request("bob"));
    let mut socket = open(&weir);
    let mut number = 0;
    for resets in [200, 2_000] {
        weir.signal("STOP");
        let sent: Vec<u8> =
            (number..number + resets).flat_map(|number| reset_call(number, &ann)).collect();
        // Requests after the stall are answered.
        let last = number + resets;
        let good: Vec<u8> = (last..last + 10).flat_map(|number| call(number, &bob)).collect();
        socket.write_all(&[sent, good].concat()).unwrap();
        weir.signal("CONT");
        number = last + 10;
        let mut frames = Frames(&socket);
        let end = frames.find(|frame| frame.ends(number - 1) || frame.kind == 7);
        assert_eq!(end.expect("a response").go_away(), None);
    }
}

#[test]
fn calls_that_time_out_before_they_are_written_do_not_close_the_connection() {
    let weir = setup().start();
    let (ann, bob) = (framed_request("ann"), framed_request("bob"));
    let mut socket = open(&weir);
    socket.write_all(&call(0, &ann)).unwrap();
    let mut number = 1;
    // More than h2 would allow for the life of a connection, and each in one read, or in several.
    for round in 0..100 {
        let late: Vec<u8> =
            (number..number + 30).flat_map(|number| late_call(number, &ann)).collect();
        number += 30;
        let good = call(number, &bob);
        for part in [late, good].concat().chunks(if round % 2 == 0 { 1 << 20 } else { 999 }) {
            socket.write_all(part).unwrap();
        }
        let end = Frames(&socket).find(|frame| frame.ends(number) || frame.kind == 7);
        assert_eq!(end.expect("a response").go_away(), None, "after {number} calls");
        number += 1;
    }
}

/// Asserts that a client that sends `batches` after `start` is disconnected, and that others are served meanwhile.
async fn assert_disconnected(
    setup: Setup,
    start: Vec<u8>,
    batches: impl Iterator<Item = Vec<u8>> + Send + 'static,
) {
    let mut weir = setup.start();
    let socket = open(&weir);
    let mut writer = socket.try_clone().unwrap();
    let attack = thread::spawn(move || {
        writer.write_all(&start).unwrap();
        let sent = batches.take_while(|batch| writer.write_all(batch).is_ok()).count();
        assert!(sent < BATCHES, "the connection is not closed");
        sent * BATCH as usize
    });
    let reasons = tokio::task::spawn_blocking(move || {
        Frames(&socket).filter_map(|frame| frame.go_away()).collect::<Vec<_>>()
    });
    // Other clients are served meanwhile.
    assert_eq!(code(weir.grpc, request("shop", &[("user", "bob")])).await, Code::Ok);
    let reasons = reasons.await.unwrap();
    assert!(attack.join().unwrap() >= 10_000, "the resets after a stall are tolerated");
    assert_eq!(reasons, [u32::from(h2::Reason::ENHANCE_YOUR_CALM)]);
    assert_eq!(code(weir.grpc, request("shop", &[("user", "cleo")])).await, Code::Ok);
    let logged = weir.until_said("closed an abusive gRPC connection").unwrap();
    let fields: HashMap<_, _> = logged.split(' ').filter_map(|f| f.split_once('=')).collect();
    assert!(fields["peer"].starts_with("127.0.0.1:"), "{logged}");
    assert!(logged.contains("error=too many resets"), "{logged}");
}

/// Resets of a batch.
const BATCH: u32 = 100;

const BATCHES: usize = 10_000;

/// Returns batches of what is sent for each number from 0 on.
fn batches(of: impl Fn(u32) -> Vec<u8> + Send + 'static) -> impl Iterator<Item = Vec<u8>> + Send {
    (0..BATCHES as u32)
        .map(move |batch| (batch * BATCH..(batch + 1) * BATCH).flat_map(&of).collect())
}

#[tokio::test]
async fn a_client_that_only_resets_is_disconnected() {
    let resets = batches(|number| [open_call(number), reset(number)].concat());
    assert_disconnected(setup(), Vec::new(), resets).await;
}

#[tokio::test]
async fn a_client_that_writes_to_closed_streams_is_disconnected() {
    // Streams below one that was opened are closed.
    let last = BATCH * BATCHES as u32;
    let start = [open_call(0), open_call(last)].concat();
    let resets = batches(|number| frame(0, 0, 2 * number + 3, &[]));
    assert_disconnected(setup(), start, resets).await;
}

#[tokio::test]
async fn a_client_that_opens_more_streams_than_are_allowed_is_disconnected() {
    let setup = setup().env("WEIR__GRPC__MAX_STREAMS", "1");
    let resets = batches(|number| open_call(number + 1));
    assert_disconnected(setup, open_call(0), resets).await;
}
