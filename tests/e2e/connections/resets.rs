//! Clients that reset their requests.

use std::collections::HashMap;
use std::thread;

use super::raw::{Frames, call, open, reset_call};
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

#[tokio::test]
async fn a_client_that_only_resets_is_disconnected() {
    let mut weir = setup().start();
    let socket = open(&weir);
    let mut writer = socket.try_clone().unwrap();
    let ann = framed_request("ann");
    let attack = thread::spawn(move || {
        for from in (0..1_000_000).step_by(100) {
            let batch: Vec<u8> =
                (from..from + 100).flat_map(|number| reset_call(number, &ann)).collect();
            if writer.write_all(&batch).is_err() {
                return from;
            }
        }
        panic!("the connection is not closed");
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
