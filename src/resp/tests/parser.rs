//! Requests in pieces, hostile ones, and the redis crate as another reader of the same bytes.

use proptest::prelude::*;

use crate::resp::parser::{Parser, ProtocolError, read_integer};

const MAX: usize = 1 << 16;

type Words = Vec<Vec<u8>>;

/// Reads all requests of a text that arrives in pieces of `piece` bytes.
fn read_all(text: &[u8], piece: usize) -> Result<Vec<Words>, ProtocolError> {
    let (mut parser, mut buffer, mut requests) = (Parser::default(), Vec::new(), Vec::new());
    for piece in text.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
        while let Some(request) = parser.read(&buffer, MAX)? {
            let words = request.arguments.iter().map(|range| buffer[range.clone()].to_vec());
            requests.push(words.collect());
            buffer.drain(..request.length);
        }
    }
    Ok(requests)
}

fn encode(words: &Words) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
    text
}

fn words(words: &[&str]) -> Words {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn people_can_type_requests() {
    assert_eq!(
        read_all(b"PING\r\n\r\n echo\thi \nQUIT\r\n", 3),
        Ok(vec![words(&["PING"]), words(&[]), words(&["echo", "hi"]), words(&["QUIT"])])
    );
    assert_eq!(read_all(b"ECHO \"a b\"  'c\"'\n", 99), Ok(vec![words(&["ECHO", "a b", "c\""])]));
    for unbalanced in
        ["ECHO \"a\r\n", "ECHO 'a'b\r\n", "ECHO \"a\\n\"\r\n", "ECHO a\"b\r\n", "ECHO a'b c'\r\n"]
    {
        assert_eq!(read_all(unbalanced.as_bytes(), 99), Err(ProtocolError::Quotes));
    }
    assert_eq!(read_all(&[b'a'; 5_000], 99), Err(ProtocolError::LongLine));
}

#[test]
fn invalid_requests_are_named() {
    for (text, error) in [
        ("*a\r\n", ProtocolError::ArrayLength),
        ("*1025\r\n", ProtocolError::ArrayLength),
        ("*1\r\n:1\r\n", ProtocolError::NotAString),
        ("*1\r\n$-1\r\n", ProtocolError::StringLength),
        ("*1\r\n$x\r\n", ProtocolError::StringLength),
        ("*1\r\n$65537\r\n", ProtocolError::TooLarge),
        ("*1\r\n$9223372036854775807\r\n", ProtocolError::TooLarge),
        ("*00000000000000000000000000000000001\r\n", ProtocolError::LongNumber),
    ] {
        assert_eq!(read_all(text.as_bytes(), 1), Err(error), "{text}");
    }
    // Many strings that are each small enough.
    let large = encode(&vec![vec![b'x'; 1_000]; 70]);
    assert_eq!(read_all(&large, 4_096), Err(ProtocolError::TooLarge));
    // However a request of this size and one byte more arrive.
    let of_length =
        |length: usize| encode(&vec![vec![b'x'; length - "*1\r\n$65522\r\n\r\n".len()]]);
    for piece in [1, 4_096, MAX - 1, MAX, MAX + 1] {
        assert!(read_all(&of_length(MAX), piece).is_ok(), "{piece}");
        assert_eq!(read_all(&of_length(MAX + 1), piece), Err(ProtocolError::TooLarge), "{piece}");
    }
    assert_eq!(read_all(b"*0\r\n*-1\r\n", 1), Ok(vec![words(&[]), words(&[])]));
}

#[test]
fn integers_are_read_as_redis_reads_them() {
    for (text, value) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        ("1 ", None),
        ("1.0", None),
    ] {
        assert_eq!(read_integer(text.as_bytes()), value, "{text}");
    }
}

proptest! {
    #[test]
    fn requests_arrive_in_any_pieces(
        requests in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
        piece in 1..50usize,
    ) {
        let text: Vec<u8> = requests.iter().flat_map(encode).collect();
        prop_assert_eq!(read_all(&text, piece), Ok(requests));
    }

    /// Whatever both readers accept, they read the same.
    #[test]
    fn the_redis_crate_reads_the_same(
        text in prop::collection::vec(prop_oneof![
            Just(&b"*1\r\n"[..]), Just(&b"*2\r\n"[..]), Just(&b"$1\r\n"[..]), Just(&b"$0\r\n"[..]), Just(&b"\r\n"[..]), Just(&b"a\r\n"[..]),
            Just(&b"$3\r\nabc\r\n"[..]), Just(&b"$-1\r\n"[..]), Just(&b":1\r\n"[..]),
        ], 1..8),
    ) {
        let text = [&b"*1\r\n"[..], &text.concat()].concat();
        let first = read_all(&text, 7).ok().and_then(|requests| requests.into_iter().next());
        let value = redis::parse_redis_value(&text).ok();
        let strings = |value: redis::Value| match value {
            redis::Value::Array(values) => values
                .into_iter()
                .map(|value| match value {
                    redis::Value::BulkString(bytes) => Some(bytes),
                    _ => None,
                })
                .collect::<Option<Words>>(),
            _ => None,
        };
        if let (Some(first), Some(value)) = (first, value.and_then(strings)) {
            prop_assert_eq!(first, value);
        }
    }

    #[test]
    fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..200), piece in 1..20usize) {
        let _ = read_all(&text, piece);
        let text = [b"*3\r\n$", &text[..]].concat();
        let _ = read_all(&text, piece);
    }
}
