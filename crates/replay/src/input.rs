//! Reads the lines of the log of `weir replay`: plain or gzip, from a file or standard input.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use memchr::memchr;

/// The longest line. Longer ones are reported and skipped.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(super) struct Lines {
    input: Box<dyn Read>,
    buffer: Vec<u8>,
    /// The part of the buffer that is not read yet.
    start: usize,
    end: usize,
    is_at_end: bool,
}

/// A line, without its line break.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine<'l> {
    Line(&'l [u8]),
    TooLong,
}

/// A log, and how far it is read.
pub struct Input {
    pub(crate) lines: Lines,
    pub(crate) name: String,
    /// The size of the file; none if it has none.
    pub(crate) bytes: Option<u64>,
    /// The bytes that are read. If the file is compressed, compressed ones.
    pub(crate) read: Arc<AtomicU64>,
}

impl Input {
    /// Opens a file, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Input, String> {
        let (file, name, bytes): (Box<dyn Read>, _, _) = if path.as_os_str() == "-" {
            (Box::new(io::stdin()), "<stdin>".to_owned(), None)
        } else {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
            let metadata =
                file.metadata().map_err(|error| format!("cannot read {name}: {error}"))?;
            if metadata.is_dir() {
                return Err(format!("{name} is a directory: write the path of one log file"));
            }
            (Box::new(file), name, metadata.is_file().then_some(metadata.len()))
        };
        Input::new(file, name, bytes)
    }

    /// Reads a log of that name and size, if it has one.
    pub fn new(
        log: impl Read + 'static,
        name: String,
        bytes: Option<u64>,
    ) -> Result<Input, String> {
        let read = Arc::new(AtomicU64::new(0));
        let log = Counted { input: log, read: read.clone() };
        let lines = Lines::new(log).map_err(|error| format!("cannot read {name}: {error}"))?;
        Ok(Input { lines, name, bytes, read })
    }
}

impl Lines {
    /// Reads lines of a text, which may be compressed.
    pub fn new(mut input: impl Read + 'static) -> io::Result<Lines> {
        let mut start = Vec::new();
        input.by_ref().take(GZIP.len() as u64).read_to_end(&mut start)?;
        let is_gzip = start == GZIP;
        let input = io::Cursor::new(start).chain(input);
        let input: Box<dyn Read> = match is_gzip {
            true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, input))),
            false => Box::new(input),
        };
        let buffer = vec![0; MAX_LINE_BYTES];
        Ok(Lines { input, buffer, start: 0, end: 0, is_at_end: false })
    }

    /// Returns the next line; none at the end. `is_open_after` returns whether the line break after a part of a line
    /// is quoted, given whether the one before was.
    #[inline]
    pub fn next(
        &mut self,
        is_open_after: impl Fn(bool, &[u8]) -> bool,
    ) -> io::Result<Option<NextLine<'_>>> {
        let (mut searched, mut is_open) = (0, false);
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = memchr(b'\n', &unread[searched..]) {
                let at = searched + at;
                is_open = is_open_after(is_open, &unread[searched..at]);
                searched = at + 1;
                if !is_open {
                    let line = self.start..self.start + at;
                    self.start = line.end + 1;
                    return Ok(Some(NextLine::Line(&self.buffer[line])));
                }
                continue;
            }
            if !self.is_at_end && unread.len() < self.buffer.len() {
                self.fill()?;
                continue;
            }
            if !self.is_at_end {
                self.skip_line()?;
                return Ok(Some(NextLine::TooLong));
            }
            // The last line, which may have no line break.
            let line = self.start..self.end;
            self.start = self.end;
            return Ok((!line.is_empty()).then(|| NextLine::Line(&self.buffer[line])));
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        self.is_at_end = read == 0;
        Ok(())
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += at + 1;
                return Ok(());
            }
            self.start = self.end;
            if self.is_at_end {
                return Ok(());
            }
            self.fill()?;
        }
    }
}

struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    /// Returns a few bytes at once.
    struct Slow(Vec<u8>, usize);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn has_odd_quotes(is_open: bool, line: &[u8]) -> bool {
        is_open ^ (line.iter().filter(|byte| **byte == b'"').count() % 2 == 1)
    }

    fn lines(text: &[u8], at_once: usize, opens: fn(bool, &[u8]) -> bool) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Slow(text.to_vec(), at_once)).unwrap();
        let mut found = Vec::new();
        while let Some(line) = lines.next(opens).unwrap() {
            found.push(match line {
                NextLine::Line(line) => Some(line.to_vec()),
                NextLine::TooLong => None,
            });
        }
        found
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn quoted_line_breaks_belong_to_the_line() {
        let found = lines(b"a,\"b\nc\"\nd\n\"e\n", 3, has_odd_quotes);
        assert_eq!(
            found,
            [Some(b"a,\"b\nc\"".to_vec()), Some(b"d".to_vec()), Some(b"\"e\n".to_vec())]
        );
    }

    #[test]
    fn long_lines_are_skipped() {
        let long = vec![b'x'; 2 * MAX_LINE_BYTES + 7];
        let text = [b"a\n", &long[..], b"\nb"].concat();
        assert_eq!(
            lines(&text, 1 << 16, |_, _| false),
            [Some(b"a".to_vec()), None, Some(b"b".to_vec())]
        );
        let fits = vec![b'x'; MAX_LINE_BYTES - 1];
        let text = [&fits[..], b"\nb"].concat();
        assert_eq!(lines(&text, 1 << 16, |_, _| false), [Some(fits), Some(b"b".to_vec())]);
    }

    #[test]
    fn a_quote_that_never_closes_costs_one_line() {
        let text = [b"\"a\n", &b"bb\n".repeat(MAX_LINE_BYTES / 2)[..]].concat();
        let found = lines(&text, 1 << 16, has_odd_quotes);
        assert_eq!(found[..2], [None, Some(b"bb".to_vec())]);
        assert_eq!(found.len(), 1 + MAX_LINE_BYTES / 2);
    }

    #[test]
    fn a_damaged_gzip_file_is_an_error() {
        let whole = gzip(&b"line\n".repeat(1_000));
        let mut found = Lines::new(Slow(whole[..whole.len() - 9].to_vec(), 100)).unwrap();
        let error = loop {
            match found.next(|_, _| false) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no error"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text(
            text in "[ab\n]{0,30}", at_once in 1..9usize, is_gzip in any::<bool>(),
        ) {
            // Rotated logs are sometimes several gzip files in a row.
            let (first, second) = text.as_bytes().split_at(text.len() / 2);
            let bytes = match is_gzip {
                true => [gzip(first), gzip(second)].concat(),
                false => text.clone().into_bytes(),
            };
            let found: Vec<String> = lines(&bytes, at_once, |_, _| false)
                .into_iter()
                .map(|line| String::from_utf8(line.unwrap()).unwrap())
                .collect();
            let expected: Vec<&str> = text.strip_suffix('\n').unwrap_or(&text).split('\n').collect();
            let expected = if text.is_empty() { Vec::new() } else { expected };
            prop_assert_eq!(found, expected);
        }
    }
}
