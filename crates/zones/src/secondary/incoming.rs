//! Assembles a zone from the records of a transfer (RFC 5936 section 2.2, RFC 1995 section 4).

use std::collections::HashMap;
use std::fmt;

use crate::dns::rtype;
use crate::dns::transfer::Record;
use crate::transfer::{Contents, is_newer, serial};
use crate::zonefile::Zone;

/// A fault of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// It does not begin with an SOA record.
    Start,
    /// The serial at its end differs from that at its beginning.
    End(u32, u32),
    /// The changes do not start from our serial, or are out of order.
    Order(u32),
    /// A record to be removed does not exist.
    Missing,
    /// Records follow its end.
    Surplus,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Start => f.write_str("the transfer does not begin with the zone's SOA record"),
            Wrong::End(from, to) => {
                write!(f, "the transfer begins with the serial {from} and ends with {to}")
            }
            Wrong::Order(serial) => write!(
                f,
                "changes with the serial {serial} do not follow on what is known"
            ),
            Wrong::Missing => f.write_str("a record is to be removed that is not there"),
            Wrong::Surplus => f.write_str("records follow on the end of the transfer"),
        }
    }
}

/// The result of a transfer.
#[derive(Debug)]
pub enum Came {
    /// The zone has not changed.
    Nothing,
    /// The whole zone: each record once, the SOA record last.
    Whole(Vec<Record>),
    /// The same, assembled from the former zone and the changes.
    Changed(Vec<Record>),
}

/// A transfer under way.
pub struct Incoming<'z> {
    origin: &'z [u8],
    /// The zone that changes apply to; none if changes were not requested.
    since: Option<&'z Zone>,
    stage: Stage,
    /// The SOA record at its beginning.
    soa: Option<Record>,
    whole: Vec<Record>,
    changed: Changed,
    /// The memory it holds, approximately, in bytes.
    octets: usize,
}

/// TTLs of records, by owner, type and data.
type Changed = HashMap<(Box<[u8]>, u16, Box<[u8]>), u32>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    /// The SOA record has arrived; the next record decides what follows.
    Opened,
    Whole,
    Removing,
    /// Up to this serial.
    Adding(u32),
    Ended,
}

impl<'z> Incoming<'z> {
    /// A transfer of a zone; with `since`, changes from that version were requested.
    pub fn new(origin: &'z [u8], since: Option<&'z Zone>) -> Incoming<'z> {
        Incoming {
            origin,
            since,
            stage: Stage::Start,
            soa: None,
            whole: Vec::new(),
            changed: HashMap::new(),
            octets: 0,
        }
    }

    /// Whether no record may follow.
    pub(crate) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether only the SOA record has arrived, of a zone that is not newer: then nothing follows (RFC 1995
    /// section 4).
    pub(crate) fn is_nothing(&self) -> bool {
        let newest = self.soa.as_ref().map(serial);
        match (self.stage, self.since, newest) {
            (Stage::Opened, Some(since), Some(newest)) => !is_newer(newest, since.serial),
            _ => false,
        }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// It is not allowed here.
    pub fn take(&mut self, record: Record) -> Result<(), Wrong> {
        let is_soa = record.rtype == rtype::SOA && *record.owner == *self.origin;
        let newest = self.soa.as_ref().map_or(0, serial);
        let own = serial(&record);
        self.octets += octets_of(&record);
        self.stage = match self.stage {
            Stage::Start if is_soa => {
                self.soa = Some(record);
                Stage::Opened
            }
            Stage::Start => return Err(Wrong::Start),
            Stage::Opened if is_soa && self.since.is_some() && own != newest => self.begin_to_change(own)?,
            Stage::Opened | Stage::Whole if is_soa && own == newest => Stage::Ended,
            Stage::Opened | Stage::Whole if is_soa => return Err(Wrong::End(newest, own)),
            Stage::Opened | Stage::Whole => {
                self.whole.push(record);
                Stage::Whole
            }
            Stage::Removing if is_soa => Stage::Adding(own),
            Stage::Removing => {
                let key = (record.owner, record.rtype, record.data);
                self.changed.remove(&key).ok_or(Wrong::Missing)?;
                Stage::Removing
            }
            // The next changes start where these end; the last ones end with the SOA record of the beginning.
            Stage::Adding(to) if is_soa && own == to && to == newest => Stage::Ended,
            Stage::Adding(to) if is_soa && own == to => Stage::Removing,
            Stage::Adding(_) if is_soa => return Err(Wrong::Order(own)),
            Stage::Adding(to) => {
                self.changed
                    .insert((record.owner, record.rtype, record.data), record.ttl);
                Stage::Adding(to)
            }
            Stage::Ended => return Err(Wrong::Surplus),
        };
        Ok(())
    }

    /// Changes start from the zone that we have.
    fn begin_to_change(&mut self, from: u32) -> Result<Stage, Wrong> {
        let since = self
            .since
            .filter(|since| since.serial == from)
            .ok_or(Wrong::Order(from))?;
        for record in since.batches().flatten() {
            self.octets += octets_of(&record);
            self.changed
                .insert((record.owner, record.rtype, record.data), record.ttl);
        }
        Ok(Stage::Removing)
    }

    /// The memory taken so far, approximately, in bytes; removed records are not subtracted. A name takes
    /// more than in a message, where it may be a pointer.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// The result, if the transfer is complete.
    pub fn finish(self) -> Option<Came> {
        if self.is_nothing() {
            return Some(Came::Nothing);
        }
        let soa = self.soa.filter(|_| self.stage == Stage::Ended)?;
        if self.changed.is_empty() {
            let mut whole = self.whole;
            whole.push(soa);
            return Some(Came::Whole(whole));
        }
        let changed = self.changed.into_iter();
        let changed = changed.map(|((owner, rtype, data), ttl)| Record {
            owner,
            rtype,
            ttl,
            data,
        });
        Some(Came::Changed(changed.chain([soa]).collect()))
    }
}

/// The bytes that a record takes, with its place in a table.
fn octets_of(record: &Record) -> usize {
    size_of::<Record>() + 32 + record.owner.len() + record.data.len()
}
