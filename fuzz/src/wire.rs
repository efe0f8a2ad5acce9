//! Protobuf input: valid messages, and bytes that are almost valid.

use arbitrary::{Result, Unstructured};
use prost::Message;
use prost::encoding::encode_varint;

/// The maximum nesting of the bytes from [`any`].
const MAX_LEVELS: usize = 4;

/// Changes an input: creates a message, extends one, damages one, or lets libFuzzer mutate it.
pub fn mutate<M: Message + Default>(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    make: impl Fn(&mut Unstructured<'_>) -> Result<M>,
) -> usize {
    let noise = noise(seed, 4096);
    let u = &mut Unstructured::new(&noise);
    let made = || Ok::<_, arbitrary::Error>(make(&mut Unstructured::new(&noise))?.encode_to_vec());
    // Concatenated encodings are a message: lists grow, single fields are replaced.
    let (keep, made) = match seed % 16 {
        0 => (0, made()),
        1 | 2 => (size, made()),
        3 => (0, any(u, MAX_LEVELS)),
        4 | 5 => (size, any(u, MAX_LEVELS)),
        // Encoded again by prost.
        6 => (0, M::decode(&data[..size]).map_or(made(), |message| Ok(message.encode_to_vec()))),
        _ => return libfuzzer_sys::fuzzer_mutate(data, size, max_size),
    };
    match made {
        Ok(made) if keep + made.len() <= max_size => {
            data[keep..keep + made.len()].copy_from_slice(&made);
            keep + made.len()
        }
        _ => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
    }
}

/// Pseudo-random bytes from a seed.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((z ^ (z >> 31)).to_le_bytes());
    }
    bytes
}

/// Fields with arbitrary numbers and types, independent of any message.
fn any(u: &mut Unstructured<'_>, levels: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        let number = match u.ratio(7, 8)? {
            true => u.int_in_range(1..=6)?,
            false => *u.choose(&[0, 15, 16, 1001, 19_000, (1 << 29) - 1, 1 << 29, 1 << 61])?,
        };
        // Mostly length-delimited fields, because nested messages are.
        let kind: u64 = *u.choose(&[0, 1, 2, 2, 2, 2, 3, 4, 5, 6, 7])?;
        varint(u, number << 3 | kind, &mut out)?;
        match kind {
            0 => {
                let value = number_at_an_edge(u)?;
                varint(u, value, &mut out)?;
            }
            1 => out.extend(u.arbitrary::<[u8; 8]>()?),
            2 => {
                let content = match levels > 0 && u.ratio(3, 4)? {
                    true => any(u, levels - 1)?,
                    false => u.arbitrary::<&str>()?.as_bytes().to_vec(),
                };
                let wrong: i64 = if u.ratio(1, 8)? { u.int_in_range(-2..=2)? } else { 0 };
                varint(u, (content.len() as i64 + wrong) as u64, &mut out)?;
                out.extend(content);
            }
            3 if levels > 0 => {
                // Decoders refuse a hundred levels.
                let more = if u.ratio(1, 8)? { u.int_in_range(94..=102)? } else { 0 };
                (0..more).for_each(|_| encode_varint(number << 3 | 3, &mut out));
                out.extend(any(u, levels - 1)?);
                (0..more).for_each(|_| encode_varint(number << 3 | 4, &mut out));
                if u.ratio(7, 8)? {
                    varint(u, number << 3 | 4, &mut out)?;
                }
            }
            5 => out.extend(u.arbitrary::<[u8; 4]>()?),
            _ => {}
        }
    }
    Ok(out)
}

/// A varint, sometimes longer than necessary.
fn varint(u: &mut Unstructured<'_>, value: u64, out: &mut Vec<u8>) -> Result<()> {
    encode_varint(value, out);
    if u.ratio(1, 8)?
        && let Some(last) = out.last_mut()
    {
        *last |= 0x80;
        out.extend(std::iter::repeat_n(0x80, u.int_in_range(0..=9)?));
        out.push(*u.choose(&[0, 1, 2, 0x7f])?);
    }
    Ok(())
}

/// A boundary value, or an arbitrary number.
pub fn number_at_an_edge(u: &mut Unstructured<'_>) -> Result<u64> {
    let edges =
        [0, 1, 2, 3, 5, 60, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, u64::MAX - 1, u64::MAX];
    if u.ratio(3, 4)? { Ok(*u.choose(&edges)?) } else { u.arbitrary() }
}
