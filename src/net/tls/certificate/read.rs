//! Reads a certificate in DER.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::Certificate;
use super::der::{SEQUENCE, element, expect};
use super::subject::subject;

/// The tags of DER that lead to the dates, and those that they may have.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

impl Certificate {
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

/// Returns the first DNS name or URI of a certificate.
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
