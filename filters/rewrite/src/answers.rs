//! Changes names in the data of answers: the targets of aliases, and the names in other records.

use dnsweir_filter::{Ask, Found, Message, NameBuf, Record, Response, ResponseEdit, Section, Type};

use crate::rule::Change;

/// What a rule does to names in the data of an answer.
pub enum OnAnswers<'r> {
    /// Changes the target of an alias.
    Targets(&'r Change),
    /// Changes the names in records.
    Values(&'r Change),
}

/// The result for an answer.
pub enum Reworked {
    /// No change.
    Same,
    /// A change that needs this lookup.
    Asks(Ask),
    /// These edits.
    Edited(ResponseEdit),
}

/// The sections of an answer while it is changed.
struct Sections {
    records: [Vec<Record>; 3],
    /// Which of them have changed.
    changed: [bool; 3],
}

/// The types with a name that points to another one.
const POINTING: [Type; 7] = [
    Type::CNAME,
    Type::MX,
    Type::NAPTR,
    Type::NS,
    Type::PTR,
    Type::SOA,
    Type::SRV,
];

const SECTIONS: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];

/// Applies rules, the last one first: the change of a later rule must be undone before that of an earlier
/// one. At most one alias of an answer gets a new target.
pub fn rework(
    response: &Response<'_>,
    message: &Message,
    rules: &[OnAnswers<'_>],
    mut found: Option<Found<'_>>,
) -> Reworked {
    let mut sections = Sections {
        records: [message.answers(), message.authority(), message.additional()].map(<[_]>::to_vec),
        changed: [false; 3],
    };
    let qtype = response.query().qtype();
    let (mut retargeted, mut rcode) = (false, response.rcode());
    for rule in rules.iter().rev() {
        match rule {
            OnAnswers::Values(change) => sections.rename(change),
            OnAnswers::Targets(_) if retargeted || !can_be_looked_up(qtype) => {}
            OnAnswers::Targets(change) => {
                let Some((index, target)) = sections.alias(change) else {
                    continue;
                };
                let Some(found) = found.take() else {
                    return Reworked::Asks(Ask::new().lookup(&target, qtype));
                };
                let Some(behind) = found.read().ok().filter(|_| found.answered()) else {
                    return Reworked::Same;
                };
                sections.lead(index, &target, &behind);
                // The rcode is that of the last name of the chain (RFC 6604 section 3).
                (retargeted, rcode) = (true, found.rcode());
            }
        }
    }
    match sections.changed.contains(&true) {
        true => Reworked::Edited(sections.edit(message).rcode(response.rcode(), rcode)),
        false => Reworked::Same,
    }
}

/// Whether the host looks up records of this type. For types that are reserved for messages and for questions
/// (RFC 6895 section 3.1), except ANY, it would refuse the verdict.
fn can_be_looked_up(qtype: Type) -> bool {
    !matches!(qtype.0, 0 | 41 | 128..=254)
}

impl Sections {
    /// The first alias whose target changes, and its new target.
    fn alias(&self, change: &Change) -> Option<(usize, NameBuf)> {
        let records = self.records[0].iter().enumerate();
        let mut aliases = records.filter(|(_, record)| record.rtype() == Type::CNAME);
        aliases.find_map(|(index, record)| Some((index, change.of(&record.target()?)?)))
    }

    /// Points an alias to its new target, and adds what that resolves to.
    fn lead(&mut self, index: usize, target: &NameBuf, behind: &Message) {
        let answers = &mut self.records[0];
        answers.truncate(index + 1);
        answers.retain(|record| record.rtype() == Type::CNAME);
        if let Some(alias) = answers.last_mut() {
            alias.set_target(target);
        }
        answers.extend_from_slice(behind.answers());
        // These described the old target, for instance that it does not exist.
        self.records[1] = behind.authority().to_vec();
        self.records[2].clear();
        self.changed = [true; 3];
    }

    /// Changes the names in record data.
    fn rename(&mut self, change: &Change) {
        for (records, changed) in self.records.iter_mut().zip(&mut self.changed) {
            for record in records {
                if !POINTING.contains(&record.rtype()) {
                    continue;
                }
                let new = record
                    .target()
                    .and_then(|old| change.of(&old).filter(|new| *new != old));
                if let Some(new) = new {
                    record.set_target(&new);
                    *changed = true;
                }
            }
        }
    }

    /// An edit of the message in which the changed sections have these records.
    fn edit(&self, message: &Message) -> ResponseEdit {
        let sections = SECTIONS.into_iter().zip(&self.records).zip(self.changed);
        let changed = sections.filter(|(_, changed)| *changed);
        message.with_sections(changed.map(|(section, _)| section))
    }
}
