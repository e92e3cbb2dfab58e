//! A reply with only an alias, from a server without recursion: the alias's target is then resolved in turn.

use std::sync::Arc;

use crate::dns::name::{skip_plain, spelled};
use crate::dns::records::{Meaning, Section, Walk, counts};
use crate::dns::{HEADER, QUESTION_TAIL, flag, rcode, rtype, u16_at};
use dnsweir_answer::{Alias, Resolution};

/// Passes on an upstream's reply; if the server does no recursion and the reply ends in an alias, the alias
/// is followed (RFC 1034 section 5.3.3, step 4c).
pub(super) fn led_on(question: &[u8], resolution: Resolution) -> Resolution {
    let Resolution::Answer { answer, .. } = &resolution else {
        return resolution;
    };
    let flags = u16_at(&answer.message, 2);
    let asked_for_more = flags & flag::RD != 0 && flags & (flag::RA | flag::TC) == 0;
    let bare = asked_for_more && answer.rcode == rcode::NOERROR && answer.meaning == Meaning::Unkept;
    match bare.then(|| last_target(question, &answer.message)).flatten() {
        Some(target) => Resolution::Alias(Arc::new(Alias {
            targets: [target.into()].into(),
            ttl: None,
            so_far: Some(Arc::clone(answer)),
        })),
        None => resolution,
    }
}

/// The final target of the aliases that start at the name asked for, if there are any.
fn last_target(question: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let name = question.get(..question.len().checked_sub(QUESTION_TAIL)?)?;
    if u16_at(question, name.len()) == rtype::CNAME {
        return None;
    }
    let start = skip_plain(message, HEADER).ok()? + QUESTION_TAIL;
    let mut name = name.to_ascii_lowercase();
    let mut led = false;
    // Each record is followed at most once, so a loop ends.
    for record in Walk::new(message, start, [counts(message)[0], 0, 0]).map_while(Result::ok) {
        debug_assert_eq!(record.section, Section::Answer);
        let owner = spelled(message, record.start).ok()?;
        if record.rtype == rtype::CNAME && owner.eq_ignore_ascii_case(&name) {
            name = spelled(message, record.data.start).ok()?.to_ascii_lowercase();
            led = true;
        }
    }
    led.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::name::Name;
    use crate::dns::records::Answer;
    use crate::dns::{CLASS_IN, build};

    fn answer(records: &[(&str, u16, &[u8])], flags: u16) -> Resolution {
        let question = question();
        let mut message = build::empty(&question, 0);
        for (owner, rtype, data) in records {
            let owner = Name::parse(owner).unwrap();
            build::push_record(&mut message, 6, owner.as_bytes(), *rtype, CLASS_IN, 60, data);
        }
        message[2..4].copy_from_slice(&(flag::QR | flags).to_be_bytes());
        Resolution::Answer {
            answer: Arc::new(Answer::read(message).unwrap()),
            authoritative: true,
        }
    }

    fn question() -> Vec<u8> {
        [Name::parse("a.test").unwrap().as_bytes(), &[0, 1, 0, 1]].concat()
    }

    fn led_to(records: &[(&str, u16, &[u8])], flags: u16) -> Option<String> {
        match led_on(&question(), answer(records, flags)) {
            Resolution::Alias(alias) => Some(Name::lowercased(&alias.targets[0]).to_string()),
            _ => None,
        }
    }

    #[test]
    fn only_what_a_server_without_recursion_leaves_open_is_followed() {
        let (b, c) = (b"\x01b\x04test\0", b"\x01c\0");
        let bare: [(&str, u16, &[u8]); 2] = [("A.test", 5, b), ("b.test", 5, c)];
        assert_eq!(led_to(&bare[..1], flag::RD), Some("b.test.".into()));
        assert_eq!(led_to(&bare, flag::RD), Some("c.".into()));
        assert_eq!(led_to(&bare, flag::RD | flag::RA), None, "it did what it could");
        assert_eq!(led_to(&bare, flag::RD | flag::TC), None);
        assert_eq!(led_to(&bare, 0), None, "nobody asked for more");
        let whole: [(&str, u16, &[u8]); 2] = [("a.test", 5, b), ("b.test", 1, &[192, 0, 2, 1])];
        assert_eq!(led_to(&whole, flag::RD), None);
        assert_eq!(led_to(&[("x.test", 5, b)], flag::RD), None, "another name's");
        assert_eq!(led_to(&[], flag::RD), None);
    }
}
