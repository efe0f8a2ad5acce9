//! When a certificate expires.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The tags of DER that lead to the date, and those that it may have.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Returns when a certificate in DER expires, in seconds since 1970. None if it is malformed.
///
/// RFC 5280, 4.1: `Certificate { tbsCertificate { version?, serialNumber, signature, issuer,
/// validity { notBefore, notAfter }, … }, … }`.
pub(super) fn expiry(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (fields, _) = expect(SEQUENCE, certificate)?;
    let rest = expect(VERSION, fields).map_or(fields, |(_, rest)| rest);
    let (_, rest) = expect(INTEGER, rest)?;
    let (_, rest) = expect(SEQUENCE, rest)?;
    let (_, rest) = expect(SEQUENCE, rest)?;
    let (validity, _) = expect(SEQUENCE, rest)?;
    let (_, _, rest) = element(validity)?;
    let (tag, time, _) = element(rest)?;
    let time = std::str::from_utf8(time).ok()?;
    let time = match tag {
        // Two digits of the year; from 50 on they are of the 20th century.
        UTC_TIME if time.get(..2)?.parse::<u8>().ok()? >= 50 => format!("19{time}"),
        UTC_TIME => format!("20{time}"),
        GENERALIZED_TIME => time.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", time).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second())
}

/// Splits an element with this tag off. Returns its content, and what follows it.
fn expect(wanted: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(der)?;
    (tag == wanted).then_some((content, rest))
}

/// Splits an element off. Returns its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The number of bytes of the length.
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_both_formats_are_read() {
        for (year, seconds) in [(1999, 946_598_400), (2049, 2_524_521_600), (2050, 2_556_057_600)] {
            let mut params = rcgen::CertificateParams::new(["weir".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(1990, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            assert_eq!(expiry(certificate.der()), Some(seconds), "{year}");
            for length in 0..certificate.der().len() {
                assert_eq!(expiry(&certificate.der()[..length]), None);
            }
        }
    }
}
