//! Messages between the servers of a zone: requests, and responses filled with records, signed or not.

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder, MessageBuilder};
use domain::base::name::ToName;
use domain::base::rdata::{ComposeRecordData, ParseAnyRecordData, UnknownRecordData};
use domain::base::{
    HashCompressor, Message, Name as WireName, ParsedName, ParsedRecord, Record as Whole, Ttl,
};
use domain::dep::octseq::Parser;
use domain::rdata::AllRecordData;

use super::data::are_names_whole;
use super::text::type_text;
use super::tsig::{Key, Signer, Verifier, sign_request};
use super::{CLASS_IN, MESSAGE_MAXIMUM, QUESTION_TAIL, rcode_text, rtype, u16_at};

/// Bytes that a message is filled to: beyond, no pointer reaches (RFC 1035 section 4.1.4), so nothing is
/// compressed.
const FILLED: usize = 16 << 10;

/// Bytes reserved for a signature: two names, the longest MAC, and the fields between (RFC 8945 section 4.2).
const SIGNATURE: usize = 2 * 255 + 64 + 32;

/// A record of a zone, in wire format with uncompressed names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The owner, lowercased.
    pub owner: Box<[u8]>,
    /// The type.
    pub rtype: u16,
    /// The TTL, in seconds.
    pub ttl: u32,
    /// The data.
    pub data: Box<[u8]>,
}

/// Data whose names are compressed if their type allows it.
type Data<'d> = AllRecordData<&'d [u8], ParsedName<&'d [u8]>>;

impl Record {
    fn parsed(&self) -> Option<Data<'_>> {
        let rtype = Rtype::from_int(self.rtype);
        let known = Data::parse_any_rdata(rtype, &mut Parser::from_ref(&*self.data));
        // Data that violates the form of its type is passed unchanged.
        let unknown = || UnknownRecordData::from_octets(rtype, &*self.data).ok();
        known.ok().or_else(|| unknown().map(Data::Unknown))
    }
}

/// One message of a response.
pub struct Response(AnswerBuilder<HashCompressor<Vec<u8>>>);

impl Response {
    /// An empty response to a query with this ID; only the first of several repeats the question (RFC 5936
    /// section 2.2.1).
    pub fn new(id: u16, question: Option<&[u8]>) -> Option<Response> {
        let mut builder = MessageBuilder::from_target(HashCompressor::new(Vec::new())).ok()?;
        let header = builder.header_mut();
        header.set_id(id);
        header.set_qr(true);
        header.set_aa(true);
        builder.set_push_limit(FILLED);
        let mut builder = builder.question();
        if let Some((name, tail)) = question.and_then(|all| all.split_at_checked(all.len() - QUESTION_TAIL)) {
            let name = WireName::from_slice(name).ok()?;
            let (rtype, class) = (u16_at(tail, 0), u16_at(tail, 2));
            builder
                .push((name, Rtype::from_int(rtype), Class::from_int(class)))
                .ok()?;
        }
        Some(Response(builder.answer()))
    }

    /// Appends a record; returns false, with nothing changed, if the message is full.
    pub fn push(&mut self, record: &Record) -> bool {
        let is_empty = self.0.counts().ancount() == 0;
        if is_empty {
            // Otherwise a large record would fit into no message.
            self.0.set_push_limit(MESSAGE_MAXIMUM - SIGNATURE);
        }
        let pushed = self.try_push(record);
        self.0.set_push_limit(FILLED);
        pushed
    }

    fn try_push(&mut self, record: &Record) -> bool {
        let Ok(owner) = WireName::from_slice(&record.owner) else {
            return false;
        };
        let ttl = Ttl::from_secs(record.ttl);
        match record.parsed() {
            Some(data) => self.0.push((owner, Class::IN, ttl, data)).is_ok(),
            None => false,
        }
    }

    /// Returns the message, signed if there is a signer; none if there is no room for the signature.
    pub fn finish(self, signer: Option<&mut Signer>) -> Option<Vec<u8>> {
        finish(self.0.additional(), signer)
    }
}

/// Signs a complete response.
pub fn signed(message: &[u8], signer: &mut Signer) -> Option<Vec<u8>> {
    let message = Message::from_octets(message).ok()?;
    let mut builder = MessageBuilder::from_target(HashCompressor::new(Vec::new())).ok()?;
    *builder.header_mut() = message.header();
    builder.set_push_limit(MESSAGE_MAXIMUM - SIGNATURE);
    let mut builder = builder.question();
    for question in message.question() {
        builder.push(question.ok()?).ok()?;
    }
    let (_, answer, authority, additional) = message.sections().ok()?;
    let mut builder = builder.answer();
    for record in answer {
        builder.push(with_data(&record.ok()?)?).ok()?;
    }
    let mut builder = builder.authority();
    for record in authority {
        builder.push(with_data(&record.ok()?)?).ok()?;
    }
    let mut builder = builder.additional();
    for record in additional {
        builder.push(with_data(&record.ok()?)?).ok()?;
    }
    finish(builder, Some(signer))
}

fn with_data<'r>(record: &ParsedRecord<'r, &'r [u8]>) -> Option<Whole<ParsedName<&'r [u8]>, Data<'r>>> {
    record.to_any_record().ok()
}

fn finish(
    mut builder: AdditionalBuilder<HashCompressor<Vec<u8>>>,
    signer: Option<&mut Signer>,
) -> Option<Vec<u8>> {
    builder.clear_push_limit();
    let whole = signer.is_none_or(|signer| signer.sign(&mut builder));
    let message = builder.finish().into_target();
    (whole && message.len() <= MESSAGE_MAXIMUM).then_some(message)
}

/// The records in the answer section of a response with this ID, which may be one of several.
///
/// # Errors
/// The response is invalid, or reports an error, in words.
pub fn records(message: &[u8], id: u16) -> Result<Vec<Record>, String> {
    let message = Message::from_octets(message).map_err(|_| "it sent something that is not a message")?;
    let header = message.header();
    if header.id() != id || !header.qr() {
        return Err("it sent something that does not answer the request".into());
    }
    if header.rcode() != Rcode::NOERROR || header.tc() {
        let said = rcode_text(header.rcode().to_int().into());
        return Err(format!("it says {said}"));
    }
    let answer = message.answer().map_err(|_| "its message is malformed")?;
    answer
        .map(|record| read(&record.map_err(|_| "its message is malformed")?))
        .collect()
}

fn read(record: &ParsedRecord<'_, &[u8]>) -> Result<Record, String> {
    let owner = record.owner().to_vec();
    let shown = || format!("{} {}", record.owner(), type_text(record.rtype().to_int()));
    if record.class() != Class::IN {
        return Err(format!("{} is not of class IN", shown()));
    }
    let whole =
        with_data(record).ok_or_else(|| format!("the data of {} has not the form of its type", shown()))?;
    let mut data = Vec::new();
    match whole.data().compose_rdata(&mut data) {
        Ok(()) => {}
        Err(never) => match never {},
    }
    if !are_names_whole(record.rtype().to_int(), &data) {
        return Err(format!("the data of {} has not the form of its type", shown()));
    }
    Ok(Record {
        owner: owner.as_slice().to_ascii_lowercase().into(),
        rtype: record.rtype().to_int(),
        ttl: record.ttl().as_secs(),
        data: data.into(),
    })
}

/// A request from one server of a zone to another.
#[derive(Debug, Clone, Copy)]
pub enum Request<'r> {
    /// Asks whether the zone has changed (RFC 1034 section 4.3.5).
    Soa,
    /// Asks for the whole zone (RFC 5936).
    Axfr,
    /// Asks for the changes since this SOA record (RFC 1995).
    Ixfr(&'r Record),
    /// Announces a change: this is the SOA record now (RFC 1996).
    Notify(&'r Record),
}

impl Request<'_> {
    /// The type of its question.
    pub fn qtype(&self) -> u16 {
        match self {
            Request::Soa | Request::Notify(_) => rtype::SOA,
            Request::Axfr => rtype::AXFR,
            Request::Ixfr(_) => rtype::IXFR,
        }
    }

    /// The message for the zone of this name, signed if there is a key, with the verifier for its response.
    pub fn message(&self, id: u16, zone: &[u8], key: Option<&Key>) -> Option<(Vec<u8>, Option<Verifier>)> {
        let mut builder = MessageBuilder::from_target(HashCompressor::new(Vec::new())).ok()?;
        let header = builder.header_mut();
        header.set_id(id);
        if let Request::Notify(_) = self {
            // RFC 1996 sections 3.3 and 3.7: AA is set.
            header.set_opcode(Opcode::NOTIFY);
            header.set_aa(true);
        }
        let zone = WireName::from_slice(zone).ok()?;
        let (qtype, class) = (Rtype::from_int(self.qtype()), Class::from_int(CLASS_IN));
        let mut builder = builder.question();
        builder.push((zone, qtype, class)).ok()?;
        let mut builder = builder.answer();
        let known = |soa: &Record| (zone, class, Ttl::from_secs(soa.ttl));
        if let Request::Notify(soa) = self {
            let (owner, class, ttl) = known(soa);
            builder.push((owner, class, ttl, soa.parsed()?)).ok()?;
        }
        let mut builder = builder.authority();
        if let Request::Ixfr(soa) = self {
            let (owner, class, ttl) = known(soa);
            builder.push((owner, class, ttl, soa.parsed()?)).ok()?;
        }
        let mut builder = builder.additional();
        let verifier = match key {
            Some(key) => Some(sign_request(key, &mut builder)?),
            None => None,
        };
        Some((builder.finish().into_target(), verifier))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::name::Name;
    use super::super::tsig::check;
    use super::*;

    fn key() -> Key {
        Key::new(&Name::parse("k.example").unwrap(), "hmac-sha256", &[7; 32]).unwrap()
    }

    fn record(rtype: u16, data: &[u8]) -> Record {
        Record {
            owner: b"\x03www\x07example\0"[..].into(),
            rtype,
            ttl: 60,
            data: data.into(),
        }
    }

    /// Records are read as they were written, with names in data uncompressed.
    #[test]
    fn records_come_as_they_went() {
        let target = b"\x04mail\x07example\0";
        let written = [
            record(rtype::A, &[192, 0, 2, 1]),
            record(rtype::MX, &[&[0, 10][..], target].concat()),
            record(rtype::CNAME, target),
            record(rtype::TXT, b"\x02hi\x00"),
            record(65_280, &[1, 2, 3]),
        ];
        let mut response = Response::new(7, None).unwrap();
        assert!(written.iter().all(|record| response.push(record)));
        let message = response.finish(None).unwrap();
        assert!(message.len() < 120, "compressed: {}", message.len());
        assert_eq!(records(&message, 7).unwrap(), written);
        assert!(records(&message, 8).is_err(), "another ID");
        let mut bad = message.clone();
        bad[3] |= 5;
        assert_eq!(records(&bad, 7).unwrap_err(), "it says REFUSED");
    }

    #[test]
    fn data_has_the_form_of_its_type() {
        for (rtype, data) in [
            (rtype::A, &[1, 2, 3][..]),
            (rtype::MX, &[0]),
            (rtype::CNAME, b"\x05a\0"),
        ] {
            let mut response = Response::new(7, None).unwrap();
            assert!(response.push(&record(rtype, data)));
            let message = response.finish(None).unwrap();
            let said = records(&message, 7).unwrap_err();
            assert!(
                said.contains("has not the form of its type") || said.contains("malformed"),
                "{said}"
            );
        }
    }

    /// A record gets its own message if it needs one.
    #[test]
    fn long_records_are_sent_and_those_that_are_too_long_are_not() {
        let mut response = Response::new(7, None).unwrap();
        assert!(response.push(&record(65_280, &[0; 60_000])));
        assert!(!response.push(&record(rtype::A, &[192, 0, 2, 1])), "it is full");
        let (message, _) = Request::Axfr.message(7, b"\x07example\0", Some(&key())).unwrap();
        let super::super::tsig::Checked::Signed(mut signer) = check(Some(&key()), &message) else {
            panic!("not signed");
        };
        assert!(
            response
                .finish(Some(&mut signer))
                .is_some_and(|message| message.len() > 60_000)
        );
        let mut response = Response::new(7, None).unwrap();
        assert!(!response.push(&record(65_280, &[0; 65_500])));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(message in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = records(&message, 0);
            let _ = check(Some(&key()), &message);
            let _ = check(None, &message);
        }

        #[test]
        fn no_damage_makes_it_panic(at in 0usize..200, value: u8, cut in 0usize..200) {
            let soa = record(rtype::SOA, &[&b"\x02ns\x07example\0\0"[..], &[0; 20]].concat());
            let (mut message, verifier) = Request::Ixfr(&soa).message(7, b"\x07example\0", Some(&key())).unwrap();
            if let Some(octet) = message.get_mut(at) {
                *octet = value;
            }
            message.truncate(message.len() - cut.min(message.len()));
            let _ = check(Some(&key()), &message);
            let _ = records(&message, 7);
            let _ = verifier.unwrap().check(&mut message);
        }
    }
}
