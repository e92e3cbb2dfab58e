//! Data in master files is read as its RFC writes it, and as another implementation, hickory-proto, reads it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dnsweir_filter::MasterFile;
use hickory_proto::rr::RData;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};

/// The data of one record in a master file, as bytes.
fn data_of(text: &str) -> Result<Vec<u8>, String> {
    let text = format!("$TTL 60\na {text}\n");
    let mut records = MasterFile::new(&text, &"test".parse().unwrap());
    let record = records.next().unwrap();
    assert_eq!(records.next(), None);
    record
        .map(|record| record.data().to_vec())
        .map_err(|error| error.message)
}

/// What hickory-proto reads from the same text.
fn data_of_theirs(text: &str) -> Option<Vec<u8>> {
    let (rtype, data) = text.split_once(' ')?;
    let data = RData::try_from_str(rtype.parse().ok()?, data).ok()?;
    let mut wire = Vec::new();
    let mut encoder = BinEncoder::new(&mut wire);
    encoder.set_name_encoding(NameEncoding::Uncompressed);
    data.emit(&mut encoder).ok()?;
    Some(wire)
}

#[test]
fn data_in_text_is_read_alike() {
    for text in [
        "A 192.0.2.1",
        "AAAA 2001:db8::1",
        "CAA 0 issue \"letsencrypt.org; x=y\"",
        "CAA 128 iodef \"mailto:a@b.test\"",
        "CERT 1 12345 8 AQIDBA==",
        "CNAME b.test.",
        "CSYNC 66 3 A NS AAAA CAA",
        "HINFO \"PDP 11\" UNIX",
        "HTTPS 1 . alpn=h2,h3 port=443 ipv4hint=192.0.2.1,192.0.2.2 ech=AQIDBA== ipv6hint=2001:db8::1",
        "HTTPS 0 svc.test.",
        "SVCB 16 svc.test. mandatory=alpn,port alpn=\"h2\" no-default-alpn port=8443 key65280=abc",
        "MX 10 mail.test.",
        "NAPTR 100 50 s \"http+I2L+I2C+I2R\" \"\" _http._tcp.test.",
        "NS ns.test.",
        "OPENPGPKEY AQIDBAUG",
        "PTR host.test.",
        "SMIMEA 3 0 1 d2abde240d7cd3ee6b4b28c54df034b9 7983a1d16e8a410e4561cb106618e971",
        "SOA ns.test. root.test. 2026010100 1h 15m 4w 5m30s",
        "SRV 0 5 443 www.test.",
        "SSHFP 2 1 123456789abcdef67890123456789abcdef67890",
        "TLSA 3 1 1 d2abde240d7cd3ee6b4b28c54df034b97983a1d16e8a410e4561cb106618e971",
        "TXT \"a b\" c \"\"",
    ] {
        let theirs = data_of_theirs(text);
        assert!(theirs.is_some(), "{text}");
        assert_eq!(data_of(text).ok(), theirs, "{text}");
    }
}

#[test]
fn data_in_text_is_read_as_its_rfc_writes_it() {
    let cases: [(&str, &[u8]); 20] = [
        (
            r#"TXT "a \" b" c\"d \195\188 ; comment"#,
            b"\x05a \" b\x03c\"d\x02\xc3\xbc",
        ),
        (r#"TXT "a""b;" c"d e""#, b"\x01a\x02b;\x04cd e"),
        ("MX 10 mail", b"\0\x0a\x04mail\x04test\0"),
        ("CNAME @", b"\x04test\0"),
        (r"NS a\.b.", b"\x03a.b\0"),
        ("DNAME b.", b"\x01b\0"),
        ("RP a b.", b"\x01a\x04test\0\x01b\0"),
        ("DS 1 13 2 C0 DE", b"\0\x01\x0d\x02\xc0\xde"),
        ("DNSKEY 256 3 13 A AAA", b"\x01\0\x03\x0d\0\0\0"),
        ("URI 10 1 \"a:b\"", b"\0\x0a\0\x01a:b"),
        ("SPF a", b"\x01a"),
        (
            "NAPTR 1 2 u \"\" \"!x!a  b!\" .",
            b"\0\x01\0\x02\x01u\0\x08!x!a  b!\0",
        ),
        (r"TYPE65280 \# 2 c0 de", b"\xc0\xde"),
        (r"TYPE65280 \# 0", b""),
        (r"A \# 4 c0000201", b"\xc0\0\x02\x01"),
        (r"RRSIG \# 2 c00c", b"\xc0\x0c"),
        // RFC 9460 appendix D.2.
        (
            r#"SVCB 1 a. key667="hello\210qoo""#,
            b"\0\x01\x01a\0\x02\x9b\0\x09hello\xd2qoo",
        ),
        (
            r#"SVCB 16 a. alpn="f\\\\oo\\,bar,h2""#,
            b"\0\x10\x01a\0\0\x01\0\x0c\x08f\\oo,bar\x02h2",
        ),
        (
            r"SVCB 16 a. alpn=f\\\092oo\092,bar,h2",
            b"\0\x10\x01a\0\0\x01\0\x0c\x08f\\oo,bar\x02h2",
        ),
        (
            "SVCB 16 . port=53 alpn=h2 mandatory=port,alpn",
            b"\0\x10\0\0\0\0\x04\0\x01\0\x03\0\x01\0\x03\x02h2\0\x03\0\x02\0\x35",
        ),
    ];
    for (text, data) in cases {
        assert_eq!(data_of(text).as_deref(), Ok(data), "{text}");
    }
}

#[test]
fn data_that_is_none_is_refused_with_its_reason() {
    let long = format!("TXT {}", "a".repeat(256));
    for (text, reason) in [
        ("A", "the data of A is incomplete"),
        ("A 1.2.3", "\"1.2.3\" is not an IPv4 address"),
        ("A 192.0.2.1 x", "\"x\" is too much for A"),
        ("AAAA 192.0.2.1", "\"192.0.2.1\" is not an IPv6 address"),
        ("ANY x", "\"ANY\" is not a record type"),
        ("CSYNC 1 3 NOSUCH", "\"NOSUCH\" is not the name of a type"),
        ("DS 1 2 3", "the data of DS is incomplete"),
        ("DS 1 2 3 abc", "\"abc\" is not in hexadecimal"),
        (
            "HTTPS 1 . alpn=h2 alpn=h3",
            "\"alpn=h2\" is not a parameter of a service",
        ),
        ("HTTPS 1 . alpn", "\"alpn\" is not a parameter of a service"),
        (
            "HTTPS 1 . ipv4hint=::1",
            "\"ipv4hint=::1\" is not a parameter of a service",
        ),
        ("HTTPS 1 . key4=x", "the data has not the form of HTTPS"),
        (
            "HTTPS 1 . nosuch=1",
            "\"nosuch=1\" is not a parameter of a service",
        ),
        ("MX +1 a.", "\"+1\" is not a number that fits"),
        ("MX 70000 a.", "\"70000\" is not a number that fits"),
        ("MX 10 a..b", "\"a..b\" is not a name: "),
        ("MX 10", "\"\" is not a name: "),
        (r"NS \# 2 c00c", "the data has not the form of NS"),
        (r"TXT \# 0", "the data has not the form of TXT"),
        ("OPENPGPKEY AQI", "\"AQI\" is not in base64"),
        ("SOA a. b. 1 2 3 4 x", "\"x\" is not a time in seconds"),
        ("TXT", "the data of TXT is incomplete"),
        ("TXT \"a", "\"\\\"a\" is not a string of up to 255 bytes"),
        (&long, "\"aaaa"),
        (
            "TYPE65280 x",
            r"data of TYPE65280 is read in hexadecimal only: \# 2 c0de",
        ),
        (
            r"TYPE65280 \# 3 c0de",
            r"after \# are a length, and as many bytes in hexadecimal",
        ),
    ] {
        let error = data_of(text).unwrap_err();
        assert!(error.starts_with(reason), "{text}: {error}");
    }
}
