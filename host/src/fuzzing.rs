//! Entry points of the fuzz targets in `fuzz/`, with the invariants that must hold for any input.
//!
//! Each takes arbitrary bytes and panics if an invariant is broken. The tests below run them on arbitrary
//! bytes, too, so that they keep working.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a broken promise is told by panicking"
)]

use std::path::Path;

use dnsweir_os::clock::Uptime;

use crate::cache::{Cache, Entry, Insertion, Key, KeyFlags, KeyHasher, Kind, Stored};
use crate::dns::name::Name;
use crate::dns::query::Query;
use crate::dns::records::Answer;
use crate::dns::reply::{self, Body, Head, Ttl};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, build};
pub use crate::filter::look_at_module as module;
use crate::filter::{self, Decision, Outcome};
use crate::listen::framing::{FRAME_MAXIMUM, Frames, KEPT_MAXIMUM, READ, Scratch};
pub use crate::serve::fuzzing::response_path;
pub use crate::source::fuzzing::{slice, zone};
use crate::{config, dns};

/// A message from a client: it is served, answered with an error, or ignored; a reply is a message that fits.
pub fn query(octets: &[u8]) {
    let mut out = [0; MESSAGE_MAXIMUM];
    match Query::parse(octets) {
        Ok(query) => {
            let name = Name::lowercased(query.name());
            assert_eq!(
                Name::parse(&name.to_string()).as_ref(),
                Ok(&name),
                "a name's text is the name"
            );
            let length = reply::write_empty(&mut out, &Head::of(&query, 512), dns::rcode::NXDOMAIN);
            assert!(length <= 512);
            assert!(
                out[HEADER..].starts_with(query.question()),
                "the question comes back as it was"
            );
        }
        Err(error) => {
            let length = reply::write_unanswerable(&mut out, octets, error);
            assert!(length == 0 || length >= HEADER);
        }
    }
}

/// A message from an upstream: if accepted, it can be stored in the cache and read back unchanged except for
/// its age, whole or truncated to the client's limit.
pub fn cache_round_trip(octets: &[u8]) {
    let Ok(answer) = Answer::read(octets.to_vec()) else {
        return;
    };
    let question_end = match octets.get(4..6) {
        Some([0, 1]) => dns::name::skip_plain(octets, HEADER).map_or(HEADER, |end| end + dns::QUESTION_TAIL),
        _ => return,
    };
    let question = answer.message[HEADER..question_end].to_vec();
    let cache = Cache::new(1 << 22);
    let name = Name::lowercased(&question[..question.len() - dns::QUESTION_TAIL]);
    let hash = KeyHasher::new().question(name.as_bytes(), 1, 1);
    let key = Key::new(hash, name.as_bytes(), 1, 1, KeyFlags::new(false, false), 0);
    let stored = Stored {
        wire: &answer.message,
        ttl_offsets: &answer.ttl_offsets,
        kind: Kind::Success,
        error: None,
        ttl_secs: 600,
        stale_secs: 0,
        now: Uptime::START,
    };
    if cache.insert(&key, &stored) != Insertion::Stored {
        return;
    }
    let mut aged = answer.message.clone();
    for at in answer.ttl_offsets.iter().map(|at| usize::from(*at)) {
        let ttl = u32::from_be_bytes([aged[at], aged[at + 1], aged[at + 2], aged[at + 3]]).saturating_sub(1);
        aged[at..at + 4].copy_from_slice(&ttl.to_be_bytes());
    }
    let entry = cache
        .lookup(&key, Uptime::from_micros(1_000_000))
        .expect("what was just stored is there");
    for limit in [512, 1232, MESSAGE_MAXIMUM] {
        let sent = one_second_later(&entry, &question, answer.rcode, limit);
        assert!(sent.len() <= limit);
        assert_eq!(
            sent[HEADER..],
            aged[HEADER..sent.len()],
            "what is sent is what was stored, one second older"
        );
        if limit == MESSAGE_MAXIMUM {
            assert_eq!(sent.len(), aged.len(), "nothing is missing");
        }
    }
}

/// The reply that an entry makes for a client with this size limit.
fn one_second_later(entry: &Entry, question: &[u8], rcode: u16, limit: usize) -> Vec<u8> {
    let head = Head {
        id: 1,
        flags: 0,
        question,
        opt: None,
        limit,
    };
    let body = Body {
        message: entry.wire(),
        ttl_offsets: entry.ttl_offsets(),
        ttl: Ttl::Aged {
            by: 1,
            min: 0,
            max: u32::MAX,
        },
        rcode,
        authoritative: false,
        error_text: "",
    };
    let mut out = vec![0; MESSAGE_MAXIMUM];
    let length = reply::write(&mut out, &head, body);
    out.truncate(length);
    out
}

/// A configuration: it is valid, or every mistake has a span inside it.
pub fn config(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else {
        return;
    };
    match config::parse("fuzz", text, Path::new("/nonexistent"), &[("log", b"")]) {
        Ok(config) => {
            assert!(!config.listen.addresses.is_empty());
            assert!(!config.zones.is_empty());
        }
        Err(report) => {
            assert!(!report.diagnostics().is_empty());
            for mistake in report.diagnostics() {
                let other = mistake.other.as_ref().map(|(span, _)| *span);
                for span in [mistake.span].into_iter().chain(other) {
                    let place = text.get(span.start..span.start + span.length);
                    assert!(
                        place.is_some(),
                        "{span:?} is no place in the text: {}",
                        mistake.message
                    );
                }
            }
            assert!(!report.render(false).is_empty());
        }
    }
}

/// Values from a filter: those that pass the check make a message that can be parsed.
pub fn verdicts(octets: &[u8]) {
    for outcome in filter::check_octets(octets) {
        let Outcome::Decided(verdict) = outcome else {
            continue;
        };
        let Decision::Answer(records) = &verdict.decision else {
            continue;
        };
        let mut message = build::empty(b"\x01a\x04test\0\0\x01\0\x01", records.rcode);
        for (count_at, section) in [
            (6, &records.answers),
            (8, &records.authority),
            (10, &records.additional),
        ] {
            for record in section {
                assert!(build::push_record(
                    &mut message,
                    count_at,
                    &record.name,
                    record.rtype,
                    record.class,
                    record.ttl,
                    &record.rdata
                ));
            }
        }
        Answer::read(message).expect("checked records make a message");
    }
}

/// A TCP stream that arrives in pieces, read by a connection that may pause: the messages are the same as if
/// everything arrived at once, and no more than the limit is buffered. The first bytes control the pieces,
/// two for each: its length, and how many of its messages are handled before there is no room.
pub fn framing(octets: &[u8]) {
    let (cuts, stream) = octets.split_at(octets.len().min(32));
    let whole: Vec<&[u8]> = Frames::of(stream).collect();
    let mut scratch = Scratch::default();
    let (mut kept, mut found) = (Vec::new(), Vec::<Vec<u8>>::new());
    let mut left = stream;
    let mut cuts = cuts.chunks_exact(2).cycle();
    while !left.is_empty() || Frames::of(&kept).is_due() {
        let [length, room] = cuts.next().map_or([255, 255], |cut| [cut[0], cut[1]]);
        let act = |octets: &[u8], found: &mut Vec<Vec<u8>>| {
            let mut frames = Frames::of(octets);
            // At least one, so that it ends.
            found.extend(frames.by_ref().take(1 + usize::from(room)).map(<[u8]>::to_vec));
            frames.rest().to_vec()
        };
        kept = if Frames::of(&kept).is_due() {
            act(&kept, &mut found)
        } else {
            assert!(kept.len() < FRAME_MAXIMUM, "what is kept is less than a message");
            let count = left.len().min((usize::from(length) + 1) * READ / 256);
            let (read, more) = left.split_at(count);
            scratch.read()[..count].copy_from_slice(read);
            left = more;
            act(scratch.join(&kept, count), &mut found)
        };
        assert!(kept.len() <= KEPT_MAXIMUM);
    }
    assert_eq!(found, whole, "the same messages");
    assert!(stream.ends_with(&kept), "and the same rest");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A response with records, as the base for mutations.
    const RESPONSE: &[u8] = b"\0\x01\x81\x80\0\x01\0\x02\0\0\0\x01\x03www\x04test\0\0\x01\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01a\xc0\x10\xc0\x26\0\x01\0\x01\0\0\0\x1e\0\x04\x7f\0\0\x01\
        \0\0\x29\x04\xd0\0\0\0\0\0\0";

    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        vec((0..RESPONSE.len(), any::<u8>()), 0..8).prop_map(|damage| {
            let mut octets = RESPONSE.to_vec();
            for (at, value) in damage {
                octets[at] = value;
            }
            octets
        })
    }

    type Target = fn(&[u8]);

    /// The inputs that the fuzzer kept still satisfy the invariants.
    #[test]
    fn the_corpus_holds() {
        let targets: [(&str, Target); 4] = [
            ("config", config),
            ("module", module),
            ("slice", slice),
            ("zone", zone),
        ];
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for (target, run) in targets {
            let mut count = 0;
            for entry in std::fs::read_dir(corpus.join(target)).unwrap() {
                run(&std::fs::read(entry.unwrap().path()).unwrap());
                count += 1;
            }
            assert!(count > 0, "{target}: is this the right folder?");
        }
    }

    proptest! {
        #[test]
        fn octets_as_queries(octets in vec(any::<u8>(), 0..200)) { query(&octets) }

        #[test]
        fn damaged_responses_as_queries(mut octets in damaged()) {
            octets[2] &= 0x07;
            query(&octets)
        }

        #[test]
        fn damaged_responses_through_the_cache(octets in damaged()) { cache_round_trip(&octets) }

        #[test]
        fn streams_in_pieces(cuts in vec(any::<u8>(), 32), messages in vec(vec(any::<u8>(), 0..700), 0..200), cut in 0_usize..3) {
            let mut octets = cuts;
            for message in &messages {
                octets.extend((message.len() as u16).to_be_bytes());
                octets.extend(message);
            }
            octets.truncate((octets.len() - cut).max(32));
            framing(&octets)
        }

        #[test]
        fn octets_as_streams(octets in vec(any::<u8>(), 0..2000)) { framing(&octets) }

        #[test]
        fn words_as_zones(words in vec("[a-c*]|@|\\.|\n|\n|SOA|NS|A|SRV|CNAME|DNAME|MX|192\\.0\\.2\\.1|1|60|\\$TTL|\\$GENERATE 1-9|[()]", 0..60)) {
            let head = "$TTL 60\n@ SOA a b 1 2 3 4 5\n@ NS a\n";
            zone(format!("{head}{}\n", words.join(" ")).as_bytes())
        }

        #[test]
        fn octets_as_modules(octets in vec(any::<u8>(), 0..200)) { module(&[&b"\0asm\x01\0\0\0"[..], &octets].concat()) }

        #[test]
        fn ports_and_addresses_as_slices(port in any::<u32>(), name in ".{0,70}", host in ".{0,70}", last in any::<u8>()) {
            let object = serde_json::json!({
                "metadata": {"name": "s", "namespace": "zoo", "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4",
                "ports": [{"name": name, "port": port, "protocol": "TCP"}],
                "endpoints": [{"addresses": [format!("10.0.0.{last}")], "hostname": host}],
            });
            slice(object.to_string().as_bytes())
        }

        #[test]
        fn damaged_responses_past_filters(verdicts in vec(any::<u8>(), 0..200), message in damaged()) {
            response_path(&[&[verdicts.len() as u8], &verdicts[..], &message[..]].concat())
        }

        #[test]
        fn octets_as_verdicts(octets in vec(any::<u8>(), 0..400)) { verdicts(&octets) }
    }
}
