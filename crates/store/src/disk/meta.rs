//! Reads and writes the file `meta` of the disk store: what all files of its directory have in common.
//!
//! | Bytes | |
//! | --- | --- |
//! | 8 | `weirdisk` |
//! | 4 | version of the format |
//! | 4 | length of what follows without the checksum |
//! | 8 | identity of the directory |
//! | 16 | secret of the fingerprints, the keyed hashes by which records name keys |
//! | 1 | the binary logarithm of the number of shards |
//! | 4 | checksum (CRC-32) of all above |
//! | 4 | `logs` once there was a log |
//!
//! Numbers are little-endian. Without the secret no record has a meaning, so the file has all that twice, in two pages.
//! Later versions keep the first three fields and the checksum.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::memory::fingerprint::random_secret;
use weir_common::regular;

/// The version of the format that this program reads and writes.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"weirdisk";

/// Follows the checksum once there was a log; other versions ignore it.
const HAS_LOGS: &[u8; 4] = b"logs";

const SECOND_COPY: usize = 4096;

/// No meta of any version is larger.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Differs between directories, so that no file of another is read.
    pub directory: u64,
    pub secret: [u64; 2],
    /// The binary logarithm of the number of shards.
    pub shard_bits: u8,
    /// Whether the directory has had a log, as it has ever since then.
    pub has_logs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaFile {
    Absent,
    Valid(Meta),
    /// The file has one valid copy of its content, and a damaged one.
    OneCopy(Meta),
    Version(u32),
    Damaged,
}

impl Meta {
    pub fn random(shard_bits: u8) -> Meta {
        let [directory, _] = random_secret();
        Meta { directory, secret: random_secret(), shard_bits, has_logs: false }
    }

    pub fn read(directory: &Path) -> io::Result<MetaFile> {
        let bytes = match regular::read(&directory.join("meta"), MAX_BYTES) {
            Ok(content) => content.bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(MetaFile::Absent),
            Err(error) => return Err(error),
        };
        let second = bytes.get(SECOND_COPY..).unwrap_or_default();
        Ok(match (decode(&bytes), decode(second)) {
            (Some(MetaFile::Valid(meta)), None) | (None, Some(MetaFile::Valid(meta))) => {
                MetaFile::OneCopy(meta)
            }
            // Not covered by the checksums.
            (Some(MetaFile::Valid(first)), Some(MetaFile::Valid(second))) => {
                MetaFile::Valid(Meta { has_logs: first.has_logs || second.has_logs, ..first })
            }
            (first, second) => first.or(second).unwrap_or(MetaFile::Damaged),
        })
    }

    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let mut bytes = self.encode();
        bytes.resize(SECOND_COPY, 0);
        bytes.extend_from_slice(&self.encode());
        regular::replace(directory, "meta".as_ref(), &bytes)
    }

    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend_from_slice(&self.directory.to_le_bytes());
        self.secret.iter().for_each(|half| fields.extend_from_slice(&half.to_le_bytes()));
        fields.push(self.shard_bits);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&fields);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        if self.has_logs {
            bytes.extend_from_slice(HAS_LOGS);
        }
        bytes
    }
}

/// Reads the copy at the start of `bytes`; none if it is damaged.
fn decode(bytes: &[u8]) -> Option<MetaFile> {
    let (head, rest) = bytes.split_first_chunk::<16>()?;
    let version = u32::from_le_bytes(*head[8..].first_chunk()?);
    let length = u32::from_le_bytes(*head[12..].first_chunk()?) as usize;
    let checksum = u32::from_le_bytes(*rest.get(length..)?.first_chunk()?);
    if !head.starts_with(MAGIC) || crc32fast::hash(bytes.get(..16 + length)?) != checksum {
        return None;
    }
    if version != VERSION {
        return Some(MetaFile::Version(version));
    }
    let half = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
    let meta = Meta {
        directory: half(0)?,
        secret: [half(8)?, half(16)?],
        shard_bits: *rest.get(24)?,
        has_logs: rest.get(length + 4..).is_some_and(|rest| rest.starts_with(HAS_LOGS)),
    };
    (length == 25 && meta.shard_bits <= 16).then_some(MetaFile::Valid(meta))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_damaged_copy_is_harmless() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, path) = (directory.path(), directory.path().join("meta"));
        assert_eq!(Meta::read(directory).unwrap(), MetaFile::Absent);
        let meta = Meta::random(13);
        meta.write(directory).unwrap();
        assert_eq!(Meta::read(directory).unwrap(), MetaFile::Valid(meta));
        let meta = Meta { has_logs: true, ..meta };
        meta.write(directory).unwrap();
        assert_eq!(Meta::read(directory).unwrap(), MetaFile::Valid(meta));
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).filter(|at| at % SECOND_COPY < 50) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let is_in_copy = at % SECOND_COPY < 45;
            let left = if is_in_copy { MetaFile::OneCopy(meta) } else { MetaFile::Valid(meta) };
            fs::write(&path, &bytes).unwrap();
            assert_eq!(Meta::read(directory).unwrap(), left, "{at}");
            bytes.truncate(at);
            fs::write(&path, &bytes).unwrap();
            let left = match at {
                ..45 => MetaFile::Damaged,
                // The checksum is whole, but not what follows.
                45..49 => MetaFile::OneCopy(Meta { has_logs: false, ..meta }),
                _ if at < SECOND_COPY + 45 => MetaFile::OneCopy(meta),
                _ => MetaFile::Valid(meta),
            };
            assert_eq!(Meta::read(directory).unwrap(), left, "{at}");
        }
    }

    #[test]
    fn a_later_version_is_recognized_whatever_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&7_u32.to_le_bytes());
        bytes.extend_from_slice(&3_u32.to_le_bytes());
        bytes.extend_from_slice(b"abc");
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        fs::write(directory.path().join("meta"), bytes).unwrap();
        assert_eq!(Meta::read(directory.path()).unwrap(), MetaFile::Version(7));
    }
}
