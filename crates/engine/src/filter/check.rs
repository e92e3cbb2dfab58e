//! Converts what a guest returned into the host's own types, and refuses what no message can carry.
//!
//! The runtime guarantees that a value has its type. Its meaning is checked here, once, so that all later
//! code can trust a verdict.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use super::ask::{Ask, Lookup, LookupPath};
use super::bindings::dnsweir::filter::types;
use super::repeated::Verdicts;
use super::verdict::{
    Answer, Decision, Ede, Order, Outcome, QueryOutcome, RecordEdit, Refusal, ResourceRecord,
    ResponseDecision, ResponseEdit, ResponseOutcome, ResponseVerdict, Rewrite, Route, Selector, Verdict,
};
use crate::dns::edns::ClientSubnet;
use crate::dns::name::{Name, skip_plain};
use crate::dns::records::{Section, names_in_data};
use crate::dns::{HEADER, MESSAGE_MAXIMUM, flag, rtype};

/// The largest rcode that EDNS can carry (RFC 6891 section 6.1.3).
const RCODE_MAXIMUM: u16 = 0xfff;

/// The largest TTL (RFC 2181 section 8).
const TTL_MAXIMUM: u32 = i32::MAX as u32;

/// Maximum names in an alias: as many as Kubernetes allows search domains, plus the name itself.
const ALIAS_TARGETS: usize = 33;

/// Maximum rcodes replaced by one edit.
const EDIT_RCODES: usize = 64;

/// Maximum record edits in one verdict; each one examines every record.
const RECORD_EDITS: usize = 64;

/// Maximum indices in all orders of one edit: no message has more records, since each takes at least 11
/// bytes.
pub(super) const PERMUTED: usize = MESSAGE_MAXIMUM / 11;

/// Header bits that may be set or cleared.
const HEADER_BITS: u16 = flag::TC | flag::AA | flag::AD;

/// Maximum bytes of an extended error's text.
const ERROR_TEXT: usize = 200;

/// Maximum bytes of the reason for dropping a query; the metrics keep it.
const DROP_REASON: usize = 64;

/// Maximum delay of a response by one verdict, in milliseconds.
const DELAY: u16 = 2000;

/// Maximum lookups in one ask.
const ASK_LOOKUPS: usize = 16;

/// Maximum bytes of state that a filter gets back with the answers.
const ASK_STATE: usize = 4096;

/// Maximum time for the lookups of one ask, and the default.
const ASK_TIME: Duration = Duration::from_secs(10);
const ASK_TIME_DEFAULT: Duration = Duration::from_secs(2);

/// An invalid result, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Garbage(pub(super) String);

type Checked<T> = Result<T, Garbage>;

fn garbage<T>(what: impl Into<String>) -> Checked<T> {
    Err(Garbage(what.into()))
}

/// Stores the verdicts of a call at their queries. `out` holds one [`Outcome::Passed`] per query; `asks` is
/// whether the filter may request lookups; `sources` are those that the manifest names.
pub(super) fn verdicts(
    given: Verdicts,
    asks: bool,
    sources: &[Arc<str>],
    out: &mut [QueryOutcome],
) -> Checked<()> {
    // Most verdicts of a batch are alike and can be shared.
    let mut last: Option<Arc<Verdict>> = None;
    for said in given.0 {
        let verdict = said.verdict;
        let slot = slot(out, verdict.query)?;
        let goes_on = matches!(
            verdict.decision,
            types::Decision::Pass | types::Decision::Rewrite(_)
        );
        if verdict.route.is_some() && !goes_on {
            return garbage("a route for a query that does not go on");
        }
        let verdict = Verdict {
            route: verdict.route.map(|given| route(given, sources)).transpose()?,
            decision: decision(verdict.decision)?,
            edit: verdict.edit.map(edit).transpose()?,
            remember: verdict.remember,
            skip_response: verdict.skip_response,
            delay: delay(verdict.delay)?,
        };
        if let Decision::Ask(_) = verdict.decision {
            let decides = verdict.edit.is_some() || verdict.skip_response || verdict.delay > 0;
            may_ask(asks, decides)?;
        }
        let verdict = match last {
            Some(last) if *last == verdict => last,
            _ => Arc::new(verdict),
        };
        *slot = Outcome::Decided(Arc::clone(&verdict));
        for query in said.also {
            *self::slot(out, query)? = Outcome::Decided(Arc::clone(&verdict));
        }
        last = Some(verdict);
    }
    Ok(())
}

/// Stores the verdicts of a call at their responses, as [`verdicts`] does for queries.
pub(super) fn response_verdicts(
    given: Vec<types::ResponseVerdict>,
    asks: bool,
    out: &mut [ResponseOutcome],
) -> Checked<()> {
    for verdict in given {
        let slot = slot(out, verdict.response)?;
        *slot = Outcome::Decided(ResponseVerdict {
            decision: match verdict.decision {
                types::ResponseDecision::Pass => ResponseDecision::Pass,
                types::ResponseDecision::Replace(given) => ResponseDecision::Replace(answer(given)?),
                types::ResponseDecision::Drop(given) => ResponseDecision::Drop(reason(given)?),
                types::ResponseDecision::Ask(given) => {
                    may_ask(asks, verdict.edit.is_some() || verdict.delay > 0)?;
                    ResponseDecision::Ask(ask(given)?)
                }
            },
            edit: verdict.edit.map(edit).transpose()?,
            delay: delay(verdict.delay)?,
        });
    }
    Ok(())
}

fn slot<V>(out: &mut [Outcome<V>], index: u32) -> Checked<&mut Outcome<V>> {
    let size = out.len();
    match out.get_mut(index as usize) {
        None => garbage(format!("a verdict on item {index} of a batch of {size}")),
        Some(Outcome::Passed) => Ok(&mut out[index as usize]),
        Some(_) => garbage(format!("two verdicts on item {index}")),
    }
}

fn route(given: types::Route, sources: &[Arc<str>]) -> Checked<Route> {
    let source = given.source.map(|index| match sources.get(usize::from(index)) {
        Some(name) => Ok((index, Arc::clone(name))),
        None => garbage(format!("source {index} of {}", sources.len())),
    });
    let subnet = given.client_subnet.map(|given| {
        let bits = u128::from(given.high) << 64 | u128::from(given.low);
        let address = Ipv6Addr::from_bits(bits).to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        match given.length > most {
            true => garbage(format!("a client subnet of {} bits", given.length)),
            false => Ok(ClientSubnet::new(address, given.length)),
        }
    });
    Ok(Route {
        source: source.transpose()?,
        subnet: subnet.transpose()?,
    })
}

fn decision(given: types::Decision) -> Checked<Decision> {
    Ok(match given {
        types::Decision::Pass => Decision::Pass,
        types::Decision::Rewrite(given) => Decision::Rewrite(rewrite(given)?),
        types::Decision::Answer(given) => Decision::Answer(answer(given)?),
        types::Decision::Alias(targets) => {
            if !(1..=ALIAS_TARGETS).contains(&targets.len()) {
                return garbage(format!("an alias of {} names", targets.len()));
            }
            let targets = targets.into_iter().map(|wire| name(wire, "an alias"));
            Decision::Alias(targets.collect::<Checked<_>>()?)
        }
        types::Decision::Refuse(given) => Decision::Refuse(Refusal {
            rcode: rcode(given.rcode)?,
            error: given.error.map(error).transpose()?,
        }),
        types::Decision::Drop(given) => Decision::Drop(reason(given)?),
        types::Decision::Ask(given) => Decision::Ask(ask(given)?),
    })
}

/// Checks that a verdict may be an `ask`.
fn may_ask(asks: bool, decides: bool) -> Checked<()> {
    match (asks, decides) {
        (false, _) => garbage("an `ask`, which its manifest does not declare"),
        (_, true) => garbage("an `ask` that decides about the response"),
        _ => Ok(()),
    }
}

fn ask(given: types::Ask) -> Checked<Ask> {
    if !(1..=ASK_LOOKUPS).contains(&given.lookups.len()) {
        return garbage(format!("an ask of {} lookups", given.lookups.len()));
    }
    if given.state.len() > ASK_STATE {
        return garbage(format!("an ask with {} bytes of state", given.state.len()));
    }
    let time = Duration::from_millis(given.time.into());
    if time > ASK_TIME {
        return garbage(format!("an ask that may take {} ms", given.time));
    }
    let lookups = given.lookups.into_iter().map(lookup);
    Ok(Ask {
        lookups: lookups.collect::<Checked<_>>()?,
        time: if time.is_zero() { ASK_TIME_DEFAULT } else { time },
        state: given.state.into(),
    })
}

fn lookup(given: types::Lookup) -> Checked<Lookup> {
    if given.qtype != rtype::ANY && is_meta(given.qtype) {
        return garbage(format!("a lookup of type {}", given.qtype));
    }
    let path = match given.path {
        types::Path::Top => LookupPath::Top,
        types::Path::Below => LookupPath::Below,
        types::Path::Zone(zone) => match Name::parse(&zone) {
            Ok(zone) => LookupPath::Zone(Box::new(zone)),
            Err(error) => return garbage(format!("a lookup in a zone whose name is {error}")),
        },
    };
    Ok(Lookup {
        name: name(given.name, "a lookup")?,
        qtype: given.qtype,
        path,
    })
}

fn rewrite(given: types::Rewrite) -> Checked<Rewrite> {
    if let Some(qtype) = given.qtype.filter(|&qtype| qtype != rtype::ANY && is_meta(qtype)) {
        return garbage(format!("a rewrite to type {qtype}"));
    }
    // 0 is reserved and NONE is for updates (RFC 6895 section 3.2); ANY may be queried.
    if let Some(qclass @ (0 | 254)) = given.qclass {
        return garbage(format!("a rewrite to class {qclass}"));
    }
    Ok(Rewrite {
        name: given.name.map(|wire| name(wire, "a rewrite")).transpose()?,
        qtype: given.qtype,
        qclass: given.qclass,
        revert: given.revert,
    })
}

fn answer(given: types::Answer) -> Checked<Answer> {
    let mut room = Room::default();
    let answers = room.records(given.answers)?;
    let authority = room.records(given.authority)?;
    // RFC 2181 section 9: truncating the additional section does not count.
    let is_cut = room.is_full;
    Ok(Answer {
        rcode: rcode(given.rcode)?,
        authoritative: given.authoritative,
        answers,
        authority,
        additional: room.records(given.additional)?,
        is_cut,
        error: given.error.map(error).transpose()?,
    })
}

/// The room left in a message. Records beyond it are left out rather than refused: an answer may grow with
/// data from elsewhere, which is not the filter's fault.
pub(super) struct Room {
    octets: usize,
    is_full: bool,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            octets: MESSAGE_MAXIMUM - HEADER,
            is_full: false,
        }
    }
}

impl Room {
    fn records(&mut self, given: Vec<types::ResourceRecord>) -> Checked<Vec<ResourceRecord>> {
        let records = given
            .into_iter()
            .map_while(|given| self.record(given).transpose());
        records.collect()
    }

    /// Checks a record; none: there is no room for it, nor for any later one.
    fn record(&mut self, given: types::ResourceRecord) -> Checked<Option<ResourceRecord>> {
        let record = record(given)?;
        match self.octets.checked_sub(least(&record)).filter(|_| !self.is_full) {
            Some(left) => {
                self.octets = left;
                Ok(Some(record))
            }
            None => {
                self.is_full = true;
                Ok(None)
            }
        }
    }
}

/// Minimum bytes of a record, if all names in it are compressed to pointers.
fn least(record: &ResourceRecord) -> usize {
    let owner = record.name.len().min(2);
    // Type, class, TTL and length take 10 bytes (RFC 1035 section 4.1.3).
    owner
        + 10
        + match names_in_data(record.rtype) {
            Some((before, names, behind)) => record.rdata.len().min(before + 2 * names + behind),
            None => record.rdata.len(),
        }
}

fn error(given: types::ExtendedError) -> Checked<Ede> {
    match given.text.len() {
        length if length > ERROR_TEXT => garbage(format!("an extended error's text of {length} bytes")),
        _ => Ok(Ede {
            code: given.code,
            text: given.text.into(),
        }),
    }
}

fn reason(given: String) -> Checked<Box<str>> {
    match given.len() {
        length if length > DROP_REASON => garbage(format!("a reason to drop of {length} bytes")),
        _ => Ok(given.into()),
    }
}

fn delay(given: u16) -> Checked<u16> {
    if given <= DELAY {
        Ok(given)
    } else {
        garbage(format!("a delay of {given} ms"))
    }
}

fn record(given: types::ResourceRecord) -> Checked<ResourceRecord> {
    let owner = name(given.name, "a record")?;
    if is_meta(given.rtype) {
        return garbage(format!("a record of type {}", given.rtype));
    }
    // NONE and ANY are not classes of data (RFC 6895 section 3.2).
    if matches!(given.class, 0 | 254 | 255) {
        return garbage(format!("a record of class {}", given.class));
    }
    if !is_well_formed(given.rtype, &given.rdata) {
        return garbage(format!(
            "a record of type {} whose data is malformed",
            given.rtype
        ));
    }
    Ok(ResourceRecord {
        name: owner,
        rtype: given.rtype,
        class: given.class,
        // RFC 2181 section 8: a TTL with the most significant bit set is treated as zero.
        ttl: if given.ttl > TTL_MAXIMUM { 0 } else { given.ttl },
        rdata: given.rdata.into(),
    })
}

fn edit(given: types::ResponseEdit) -> Checked<ResponseEdit> {
    if given.rcodes.len() > EDIT_RCODES {
        return garbage(format!("an edit of {} rcodes", given.rcodes.len()));
    }
    for &(found, instead) in &given.rcodes {
        rcode(found)?;
        rcode(instead)?;
    }
    if given.ttl_minimum > given.ttl_maximum {
        return garbage(format!(
            "TTL bounds {} to {}",
            given.ttl_minimum, given.ttl_maximum
        ));
    }
    let bits = given.header_set | given.header_clear;
    if bits & !HEADER_BITS != 0 || given.header_set & given.header_clear != 0 {
        return garbage(format!(
            "an edit that sets {:#06x} and clears {:#06x} in the header",
            given.header_set, given.header_clear
        ));
    }
    if given.records.len() > RECORD_EDITS {
        return garbage(format!("{} edits of records", given.records.len()));
    }
    let (mut room, mut permuted) = (Room::default(), PERMUTED);
    let records = given.records.into_iter();
    let records = records.map(|given| record_edit(given, &mut room, &mut permuted));
    Ok(ResponseEdit {
        rcodes: given.rcodes.into(),
        records: records.filter_map(Result::transpose).collect::<Checked<_>>()?,
        is_cut: room.is_full,
        header_set: given.header_set,
        header_clear: given.header_clear,
        error: given.error.map(error).transpose()?,
        // "No bound" is written as the largest u32.
        ttl_minimum: given.ttl_minimum.min(TTL_MAXIMUM),
        ttl_maximum: given.ttl_maximum.min(TTL_MAXIMUM),
        store: given.store,
        stale: given.stale,
    })
}

/// Checks a record edit; none: there is no room for the record it adds.
pub(super) fn record_edit(
    given: types::RecordEdit,
    room: &mut Room,
    permuted: &mut usize,
) -> Checked<Option<RecordEdit>> {
    Ok(Some(match given {
        types::RecordEdit::Remove(given) => RecordEdit::Remove(selector(given)?),
        types::RecordEdit::Replace((given, records)) => {
            RecordEdit::Replace(selector(given)?, room.records(records)?)
        }
        types::RecordEdit::Append((into, given)) => {
            return Ok(room
                .record(given)?
                .map(|record| RecordEdit::Append(section(into), record)));
        }
        types::RecordEdit::Order(given) => RecordEdit::Order(match given {
            types::Order::Rotate(by) => Order::Rotate(by),
            types::Order::Shuffle => Order::Shuffle,
            types::Order::Permute(mut order) => {
                // Records that are not named follow.
                order.truncate(*permuted);
                *permuted -= order.len();
                Order::Permute(order.into())
            }
        }),
    }))
}

fn selector(given: types::Selector) -> Checked<Selector> {
    Ok(Selector {
        section: given.section.map(section),
        name: given.name.map(|wire| name(wire, "a selector")).transpose()?,
        rtype: given.rtype,
        index: given.index,
    })
}

fn section(given: types::Section) -> Section {
    match given {
        types::Section::Answer => Section::Answer,
        types::Section::Authority => Section::Authority,
        types::Section::Additional => Section::Additional,
    }
}

fn rcode(given: u16) -> Checked<u16> {
    if given <= RCODE_MAXIMUM {
        Ok(given)
    } else {
        garbage(format!("rcode {given}"))
    }
}

fn name(wire: Vec<u8>, of: &str) -> Checked<Box<[u8]>> {
    if skip_plain(&wire, 0) == Ok(wire.len()) {
        Ok(wire.into())
    } else {
        garbage(format!(
            "{of} with something that is not a name in wire format: {:02x?}",
            &wire[..wire.len().min(16)]
        ))
    }
}

/// Types that exist only in questions, or that only the proxy itself may write (RFC 6895 section 3.1): 0, OPT,
/// and 128 to 255, which include TKEY, TSIG, the transfers and ANY.
fn is_meta(given: u16) -> bool {
    matches!(given, 0 | rtype::OPT | 128..=255)
}

/// Whether data is well-formed, for the types that a filter is likely to write and whose names other software
/// will follow. Data of other types is opaque (RFC 3597).
fn is_well_formed(of: u16, data: &[u8]) -> bool {
    if let Some((before, names, behind)) = names_in_data(of) {
        let end = (0..names).try_fold(before, |at, _| skip_plain(data, at));
        return end.is_ok_and(|end| end + behind == data.len());
    }
    match of {
        rtype::A => data.len() == 4,
        rtype::AAAA => data.len() == 16,
        rtype::TXT => {
            let mut rest = data;
            while let [length, tail @ ..] = rest {
                match tail.get(usize::from(*length)..) {
                    Some(next) => rest = next,
                    None => return false,
                }
            }
            !data.is_empty()
        }
        _ => true,
    }
}
