//! Requests of the Redis protocol: never a panic; weir's parser reads what redis-protocol reads, whatever the pieces
//! in which it arrives.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use weir::resp::parser::{MAX_ARGUMENTS, Parser, ProtocolError, read_integer};

/// The largest request.
const MAX: usize = 4 << 10;

type Words = Vec<Vec<u8>>;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, text)) = bytes.split_first() else { return };
    let whole = read_all(text, text.len());
    // A large request in one piece may be complete before it is too large.
    let pieces = read_all(text, usize::from(*piece));
    assert_eq!(whole.0, pieces.0, "in pieces of {piece} bytes");
    assert_eq!(whole.1, pieces.1, "in pieces of {piece} bytes");
    let first = Parser::default().read(text, MAX);
    let first = first.map(|request| {
        let request = request?;
        let words = request.arguments.iter().map(|range| text[range.clone()].to_vec());
        Some((words.collect::<Words>(), request.length))
    });
    if text.first() == Some(&b'*') {
        compare(text, first);
    }
    let integer = read_integer(text);
    let wanted = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    assert_eq!(integer, wanted.filter(|it| it.to_string().as_bytes() == text));
});

/// Compares what weir reads with what the other parser reads.
fn compare(text: &[u8], read: Result<Option<(Words, usize)>, ProtocolError>) {
    let other = decode_words(text);
    if let Ok(Some((words, length))) = &read
        && !words.is_empty()
    {
        assert!(words.len() <= MAX_ARGUMENTS && *length <= text.len());
        let written = encode(words);
        assert_eq!(decode_words(&written), Some((words.clone(), written.len())));
    }
    let Some((words, length)) = other else { return };
    match read {
        Ok(Some(read)) => assert_eq!(read, (words, length)),
        // weir refuses numbers with a plus sign or leading zeros, as Redis does, and what is too large.
        _ if words.len() > MAX_ARGUMENTS || length > MAX || encode(&words) != text[..length] => {}
        other => panic!("{other:?} in place of {words:?}"),
    }
}

/// Reads all requests of a text that arrives in pieces. Returns them, and the error after them if there is one.
fn read_all(text: &[u8], piece: usize) -> (Vec<Words>, Option<ProtocolError>) {
    let (mut parser, mut buffer, mut requests) = (Parser::default(), Vec::new(), Vec::new());
    for piece in text.chunks(piece.clamp(1, MAX / 2)) {
        buffer.extend_from_slice(piece);
        loop {
            match parser.read(&buffer, 4 * text.len() + MAX) {
                Ok(None) => break,
                Ok(Some(request)) => {
                    let words =
                        request.arguments.iter().map(|range| buffer[range.clone()].to_vec());
                    requests.push(words.collect());
                    buffer.drain(..request.length);
                }
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

/// Reads an array of strings at the start of a text.
fn decode_words(text: &[u8]) -> Option<(Words, usize)> {
    let (frame, length) = decode(text).ok().flatten()?;
    let OwnedFrame::Array(frames) = frame else { return None };
    let words = frames.into_iter().map(|frame| match frame {
        OwnedFrame::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    Some((words.collect::<Option<_>>()?, length))
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
