//! Clients that reset their requests.

use std::collections::HashMap;
use std::thread;

use super::*;

/// The header block of a call: POST, http, the path, the authority and application/grpc. The first
/// puts the last three into the table, the others refer to them.
fn header_block(is_first: bool) -> Vec<u8> {
    if !is_first {
        return vec![0x83, 0x86, 0xc0, 0xbf, 0xbe];
    }
    let mut block = vec![0x83, 0x86, 0x44, u8::try_from(PATH.len()).unwrap()];
    block.extend_from_slice(PATH.as_bytes());
    block.extend_from_slice(b"\x41\x04weir\x5f\x10application/grpc");
    block
}

/// A whole call.
fn call(number: u32, user: &str) -> Vec<u8> {
    let stream = 2 * number + 1;
    [frame(1, 4, stream, &header_block(number == 0)), frame(0, 1, stream, &asked(user))].concat()
}

/// A call that is reset as soon as it is sent.
fn reset_call(number: u32) -> Vec<u8> {
    [call(number, "ann"), frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes())].concat()
}

/// The frames of one direction.
struct Frames<R>(R);

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl<R: Read> Iterator for Frames<R> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }
}

impl Frame {
    /// The error code of a GOAWAY.
    fn go_away(&self) -> Option<u32> {
        (self.kind == 7).then(|| u32::from_be_bytes(self.payload[4..8].try_into().unwrap()))
    }

    /// Whether it ends a stream in good order.
    fn ends(&self, stream: u32) -> bool {
        self.kind == 1 && self.flags & 1 > 0 && self.stream == stream
    }
}

fn open(weir: &Weir) -> TcpStream {
    let mut socket = TcpStream::connect(weir.grpc).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&preface()).unwrap();
    socket
}

#[test]
fn resets_that_arrive_together_after_a_stall_do_not_end_the_connection() {
    let weir = setup().start();
    let mut socket = open(&weir);
    let mut number = 0;
    for resets in [200, 2_000] {
        weir.signal("STOP");
        let sent: Vec<u8> = (number..number + resets).flat_map(reset_call).collect();
        // Those that came after the stall are answered.
        let last = number + resets;
        let good: Vec<u8> = (last..last + 10).flat_map(|number| call(number, "bob")).collect();
        socket.write_all(&[sent, good].concat()).unwrap();
        weir.signal("CONT");
        number = last + 10;
        let mut frames = Frames(&socket);
        let end = frames.find(|frame| frame.ends(2 * number - 1) || frame.kind == 7);
        assert_eq!(end.expect("an answer").go_away(), None);
    }
}

#[tokio::test]
async fn a_client_that_only_resets_is_disconnected() {
    let mut weir = setup().start();
    let socket = open(&weir);
    let mut writer = socket.try_clone().unwrap();
    let attack = thread::spawn(move || {
        for from in (0..1_000_000).step_by(100) {
            let batch: Vec<u8> = (from..from + 100).flat_map(reset_call).collect();
            if writer.write_all(&batch).is_err() {
                return from;
            }
        }
        panic!("any number of resets is tolerated");
    });
    let reasons = tokio::task::spawn_blocking(move || {
        Frames(&socket).filter_map(|frame| frame.go_away()).collect::<Vec<_>>()
    });
    // Meanwhile others are served.
    assert_eq!(code(weir.grpc, request("shop", &[("user", "bob")])).await, Code::Ok);
    let reasons = reasons.await.unwrap();
    assert!(attack.join().unwrap() >= 10_000, "as many as follow a stall are tolerated");
    assert_eq!(reasons, [u32::from(h2::Reason::ENHANCE_YOUR_CALM)]);
    assert_eq!(code(weir.grpc, request("shop", &[("user", "cleo")])).await, Code::Ok);
    let logged = weir.until_said("closed an abusive gRPC connection").unwrap();
    let fields: HashMap<_, _> = logged.split(' ').filter_map(|f| f.split_once('=')).collect();
    assert!(fields["peer"].starts_with("127.0.0.1:"), "{logged}");
    assert!(logged.contains("error=too many resets"), "{logged}");
}
