//! Reads the subject and the dates of an X.509 certificate, to report its expiry in metrics, `/status` and the log.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use webpki::EndEntityCert;

/// The tags of DER, the encoding of certificates.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SET: u8 = 0x31;

/// The attribute types that RFC 4514 names, without STREET, which no server has.
const NAMES: [(&[u8], &str); 8] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// As in RFC 4514: `CN=weir,O=Example`. Without a subject, the first DNS name or URI.
    pub subject: String,
    /// The first second in which it is valid, since 1970.
    pub not_before: i64,
    /// The last second in which it is valid, since 1970.
    pub not_after: i64,
}

impl Certificate {
    /// Returns the first certificate of a PEM file; none if it is malformed.
    pub fn from_pem(pem: &[u8]) -> Option<Certificate> {
        Certificate::from_der(&CertificateDer::from_pem_slice(pem).ok()?)
    }

    /// Returns the end, for people; none if it is no date.
    pub fn expires(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.not_after).ok()
    }

    /// Reads a certificate. None if it is malformed.
    ///
    /// RFC 5280, 4.1: `Certificate { tbsCertificate { version?, serialNumber, signature, issuer,
    /// validity { notBefore, notAfter }, subject, … }, … }`.
    pub fn from_der(certificate: &CertificateDer<'_>) -> Option<Certificate> {
        let (fields, _) = expect(SEQUENCE, certificate)?;
        let (fields, _) = expect(SEQUENCE, fields)?;
        let rest = expect(VERSION, fields).map_or(fields, |(_, rest)| rest);
        let (_, rest) = expect(INTEGER, rest)?;
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (_, rest) = expect(SEQUENCE, rest)?;
        let (validity, rest) = expect(SEQUENCE, rest)?;
        let (name, _) = expect(SEQUENCE, rest)?;
        let (not_before, validity) = time(validity)?;
        let (not_after, _) = time(validity)?;
        let subject = match name {
            [] => alternative_name(certificate),
            name => subject(name),
        };
        Some(Certificate { subject: subject.unwrap_or_default(), not_before, not_after })
    }
}

fn alternative_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
    names.next().map(str::to_owned)
}

/// Reads a time, in seconds since 1970. Returns what follows it, too.
fn time(der: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, time, rest) = element(der)?;
    let time = std::str::from_utf8(time).ok()?;
    let time = match tag {
        // Two digits of the year; from 50 on they are of the 20th century.
        UTC_TIME if time.get(..2)?.parse::<u8>().ok()? >= 50 => format!("19{time}"),
        UTC_TIME => format!("20{time}"),
        GENERALIZED_TIME => time.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", time).ok()?;
    Some((time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second(), rest))
}

/// Returns a name in DER, `SEQUENCE OF SET OF SEQUENCE { type, value }`, as text; none if it is malformed.
fn subject(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (part, rest) = expect(SET, name)?;
        parts.push(relative_name(part)?);
        name = rest;
    }
    // The text starts with the last part.
    parts.reverse();
    Some(parts.join(","))
}

fn relative_name(mut part: &[u8]) -> Option<String> {
    let mut attributes = Vec::new();
    while !part.is_empty() {
        let (attribute, rest) = expect(SEQUENCE, part)?;
        let (kind, value) = expect(OBJECT_IDENTIFIER, attribute)?;
        let (_, value, _) = element(value)?;
        let value = escaped(&String::from_utf8_lossy(value));
        attributes.push(format!("{}={value}", attribute_type(kind)));
        part = rest;
    }
    Some(attributes.join("+"))
}

/// Returns the name of an attribute type, or its numbers: `1.2.840.113549`.
fn attribute_type(kind: &[u8]) -> String {
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == kind) {
        return (*name).to_owned();
    }
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in kind {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            // The first has two numbers in it.
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".")
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text
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
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn signed(params: &CertificateParams) -> CertificateDer<'static> {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn dates_of_both_formats_are_read() {
        for (year, seconds) in [(1999, 946_598_400), (2049, 2_524_521_600), (2050, 2_556_057_600)] {
            let mut params = CertificateParams::new(["weir".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(1990, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 12, 31);
            let der = signed(&params);
            let read = Certificate::from_der(&der).unwrap();
            assert_eq!((read.not_before, read.not_after), (631_152_000, seconds), "{year}");
            for length in 0..der.len() {
                assert_eq!(Certificate::from_der(&CertificateDer::from(&der[..length])), None);
            }
        }
    }

    #[test]
    fn the_subject_is_text_and_without_one_a_name_takes_its_place() {
        let subject = |attributes: &[(DnType, &str)], names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name = DistinguishedName::new();
            for (attribute, value) in attributes {
                params.distinguished_name.push(attribute.clone(), *value);
            }
            Certificate::from_der(&signed(&params)).unwrap().subject
        };
        let organization = (DnType::OrganizationName, "Sünde, Co");
        let name = (DnType::CommonName, "weir.edge");
        let own = (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 311]), "x");
        assert_eq!(subject(&[organization, name], &["a.test"]), "CN=weir.edge,O=Sünde\\, Co");
        assert_eq!(subject(&[own], &[]), "1.3.6.1.4.1.311=x");
        assert_eq!(subject(&[], &["a.test", "b.test"]), "a.test");
        assert_eq!(subject(&[], &[]), "");
    }

    #[test]
    fn nonsense_in_a_certificate_is_no_panic() {
        let mut params = CertificateParams::new(["weir".to_owned()]).unwrap();
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![9])];
        let der = signed(&params).to_vec();
        for place in 0..der.len() {
            for byte in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = der.clone();
                broken[place] = byte;
                let _ = Certificate::from_der(&broken.into());
            }
        }
    }
}
