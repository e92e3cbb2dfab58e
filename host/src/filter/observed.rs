//! What a filter said to recorded questions, in the words of the file that holds them; and whether it is
//! what the file says.

use std::sync::Arc;
use std::time::Duration;

use super::bindings::dnsweir::filter::types;
use super::engine::Engine;
use super::executor::{Failure, Reason};
use super::load::{Filter, LoadError};
use super::text;
use super::trial::{Cost, Observed, Trial};
use super::verdict::{Answer, Decision, Outcome, Record, ResponseEdit, ResponseVerdict, Rewrite, Verdict};
use crate::config;
use crate::config::questions::{Case, From, OBSERVED, Questions, Transport, What};
use crate::config::{ConfigNode, ConfigValue, Span, spell, spell_duration};
use crate::dns::name::Text;
use crate::dns::text::{class_text, data_text, type_text};
use crate::dns::{build, edns, flag, rcode_text};

/// The node that says what a call took. It is written down and compared, but no reason to fail: another
/// compiler leaves other instructions.
const COST: &str = "cost";

/// Octets of a difference in one line.
const LINE: usize = 512;

/// A verdict in the words of recorded questions, a line each.
pub fn verdict_lines(verdict: &Verdict) -> Vec<String> {
    let mut nodes = Nodes::default();
    nodes.verdict(verdict);
    spell(&nodes.0)
}

/// A verdict about a response in the words of recorded questions, a line each.
pub fn response_verdict_lines(verdict: &ResponseVerdict) -> Vec<String> {
    let mut nodes = Nodes::default();
    nodes.response(verdict);
    spell(&nodes.0)
}

/// One case, asked.
#[derive(Debug)]
pub struct Answered {
    /// Everything that was observed, in the words of the file.
    pub observed: Vec<ConfigNode>,
    /// Why the filter failed, if it did; the words are the runtime's.
    pub failure: Option<String>,
    /// What it took.
    pub cost: Cost,
    /// What the file has otherwise.
    pub difference: Difference,
}

/// How what was observed differs from what was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Not at all.
    None,
    /// Nothing was recorded yet.
    Unrecorded,
    /// In these lines, which begin with `-` if they were recorded, with `+` if they were observed, and with
    /// a blank if they were both.
    Lines(Vec<String>),
}

/// Asks the filter all questions, in order.
pub fn ask(trial: &mut Trial, questions: &Questions) -> Vec<Answered> {
    asking(trial, questions).collect()
}

/// Asks one question after the other, as the answers are taken.
fn asking(trial: &mut Trial, questions: &Questions) -> impl Iterator<Item = Answered> {
    let mut now = questions.clock;
    questions.cases.iter().map(move |case| {
        now += case.after.as_millis() as u64;
        ask_one(trial, case, now)
    })
}

/// Refuses a filter that says something else than what was recorded of it, at the first difference. The questions are
/// asked of an instance of their own, with the configuration they were recorded with.
pub(super) fn hold(
    engine: &Engine,
    filter: &Filter,
    block: &config::Filter,
    questions: &Questions,
) -> Result<(), LoadError> {
    let mut block = block.clone();
    if let Some(config) = &questions.config {
        block.config = config.clone();
    }
    let mut trial = match Trial::of(engine, filter, &block, &questions.zones) {
        Ok(trial) => trial,
        Err(LoadError::Rejected(errors)) => {
            let message = errors
                .first()
                .map_or("no reason given", |error| error.message.as_str());
            return Err(LoadError::Unasked(format!(
                "their configuration is rejected: {message}"
            )));
        }
        Err(_) if engine.cancel.is_cancelled() => return Err(LoadError::Cancelled),
        Err(error) => return Err(LoadError::Unasked(error.to_string())),
    };
    let different = asking(&mut trial, questions)
        .enumerate()
        .find(|(_, answered)| answered.difference != Difference::None);
    let Some((index, answered)) = different else {
        return Ok(());
    };
    if engine.cancel.is_cancelled() {
        return Err(LoadError::Cancelled);
    }
    let difference = match &answered.difference {
        Difference::Lines(lines) => {
            let changed = lines.iter().filter(|line| !line.starts_with(' '));
            changed.map(|line| line.trim_end()).collect::<Vec<_>>().join(" ")
        }
        _ => "nothing is recorded of it".to_owned(),
    };
    let line = format!("{}: {difference}", questions.cases[index].title);
    Err(LoadError::Question {
        number: index + 1,
        of: questions.cases.len(),
        difference: text::one_line(&line, LINE),
    })
}

fn ask_one(trial: &mut Trial, case: &Case, now: u64) -> Answered {
    let query = query(case);
    let name = &case.name;
    let mut nodes = Nodes::default();
    let (rest, failure, cost) = match case.what {
        What::Question => {
            let seen = trial.query(now, query, name);
            match &seen.outcome {
                None => nodes.add("unasked", []),
                Some(Outcome::Passed) => nodes.add("pass", []),
                Some(Outcome::Decided(verdict)) => nodes.verdict(verdict),
                Some(Outcome::Failed) => {}
            }
            rest(seen)
        }
        What::Response {
            rcode,
            source,
            ttl,
            answers,
        } => {
            let response = types::Response {
                query,
                rcode,
                source: from(source),
                answer_count: answers,
                ttl,
                message_start: 0,
                message_length: 0,
            };
            let mut question = name.clone();
            question.extend(case.qtype.to_be_bytes());
            question.extend(case.qclass.to_be_bytes());
            let seen = trial.response(now, response, name, &build::empty(&question, rcode));
            match &seen.outcome {
                None => nodes.add("unasked", []),
                Some(Outcome::Passed) => nodes.add("pass", []),
                Some(Outcome::Decided(verdict)) => nodes.response(verdict),
                Some(Outcome::Failed) => {}
            }
            rest(seen)
        }
        What::Event {
            rcode,
            source,
            answers,
            took,
            size,
        } => {
            let microseconds = took.as_micros() as u32;
            let event = types::Event {
                query,
                time: now.saturating_sub(u64::from(microseconds) / 1000),
                duration: microseconds,
                id: 1,
                query_size: (name.len() + 16) as u16,
                response_size: size,
                rcode,
                response_header: if size == 0 {
                    0
                } else {
                    flag::QR | flag::RD | flag::RA | rcode & flag::RCODE
                },
                has_answers: answers > 0,
                source: from(source),
            };
            let seen = trial.event(event, name);
            match &seen.outcome {
                None => nodes.add("unasked", []),
                Some(Outcome::Passed | Outcome::Decided(())) => nodes.add("heard", []),
                Some(Outcome::Failed) => {}
            }
            rest(seen)
        }
    };
    if let Some(failure) = &failure {
        nodes.add("fail", [word(reason(failure.reason))]);
    }
    nodes.rest(rest);
    if let Some(instructions) = cost.instructions.filter(|&count| count > 0) {
        nodes.add(COST, []);
        nodes.property("instructions", number(instructions));
        nodes.property(
            "memory",
            ConfigValue::Text(format!("{}KiB", cost.memory / 1024).into()),
        );
    }
    let difference = match &case.observed {
        None => Difference::Unrecorded,
        Some(recorded) => compare(recorded, &nodes.0),
    };
    Answered {
        observed: nodes.0,
        failure: failure.map(|failure| failure.message),
        cost,
        difference,
    }
}

/// What is recorded beside the outcome.
struct Rest {
    log: Vec<(&'static str, String)>,
    printed: String,
    counts: Vec<(Box<str>, u64)>,
}

fn rest<V>(seen: Observed<V>) -> (Rest, Option<Failure>, Cost) {
    (
        Rest {
            log: seen.log,
            printed: seen.printed,
            counts: seen.counts,
        },
        seen.failure,
        seen.cost,
    )
}

fn query(case: &Case) -> types::Query {
    let bits = match case.client.ip() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        std::net::IpAddr::V6(v6) => v6.to_bits(),
    };
    types::Query {
        client_high: (bits >> 64) as u64,
        client_low: bits as u64,
        name_start: 0,
        name_length: 0,
        qtype: case.qtype,
        qclass: case.qclass,
        header: flag::RD,
        udp_size: case.edns.unwrap_or(edns::UDP_CLASSIC).max(edns::UDP_CLASSIC),
        edns_flags: if case.dnssec { edns::DO } else { 0 },
        client_port: case.client.port(),
        zone: case.zone as u16,
        transport: match case.transport {
            Transport::Udp => types::Transport::Udp,
            Transport::Tcp => types::Transport::Tcp,
            Transport::Internal => types::Transport::Internal,
        },
        edns: case.edns.is_some() || case.dnssec,
    }
}

fn from(source: From) -> types::Source {
    match source {
        From::Upstream => types::Source::Upstream,
        From::Cache => types::Source::Cache,
        From::Stale => types::Source::Stale,
        From::Filter => types::Source::Filter,
        From::Local => types::Source::Local,
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Trap => "trap",
        Reason::Time => "time",
        Reason::Memory => "memory",
        Reason::Garbage => "garbage",
    }
}

fn word(text: impl Into<Arc<str>>) -> ConfigValue {
    ConfigValue::Text(text.into())
}

fn number(number: u64) -> ConfigValue {
    ConfigValue::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Nodes in the making.
#[derive(Default)]
struct Nodes(Vec<ConfigNode>);

impl Nodes {
    fn add(&mut self, name: &str, arguments: impl IntoIterator<Item = ConfigValue>) {
        self.add_in(None, name, arguments);
    }

    fn add_in(
        &mut self,
        parent: Option<usize>,
        name: &str,
        arguments: impl IntoIterator<Item = ConfigValue>,
    ) {
        self.0.push(ConfigNode {
            name: name.to_owned(),
            arguments: arguments.into_iter().collect(),
            properties: Vec::new(),
            parent,
            span: Span::default(),
            argument_spans: Vec::new(),
            property_spans: Vec::new(),
        });
    }

    /// Adds a property to the last node.
    fn property(&mut self, name: &str, value: ConfigValue) {
        if let Some(node) = self.0.last_mut() {
            node.properties.push((name.to_owned(), value));
        }
    }

    fn verdict(&mut self, verdict: &Verdict) {
        match &verdict.decision {
            Decision::Pass => self.add("pass", []),
            Decision::Rewrite(rewrite) => self.rewrite(rewrite),
            Decision::Answer(answer) => self.answer("answer", answer),
            Decision::Alias(targets) => {
                self.add(
                    "alias",
                    targets.iter().map(|target| word(Text(target).to_string())),
                );
            }
            Decision::Refuse(rcode) => self.add("refuse", [word(rcode_text(*rcode))]),
            Decision::Drop => self.add("drop", []),
        }
        if let Some(edit) = &verdict.edit {
            self.edit(edit);
        }
        if verdict.remember > 0 {
            self.add(
                "remember",
                [word(spell_duration(Duration::from_millis(
                    verdict.remember.into(),
                )))],
            );
        }
        if verdict.skip_response {
            self.add("skip-response", []);
        }
    }

    fn response(&mut self, verdict: &ResponseVerdict) {
        match &verdict.replace {
            Some(answer) => self.answer("replace", answer),
            None => self.add("pass", []),
        }
        if let Some(edit) = &verdict.edit {
            self.edit(edit);
        }
    }

    fn rewrite(&mut self, rewrite: &Rewrite) {
        self.add("rewrite", []);
        if let (Some(name), Some(node)) = (&rewrite.name, self.0.last_mut()) {
            node.arguments.push(word(Text(name).to_string()));
        }
        if let Some(qtype) = rewrite.qtype {
            self.property("type", word(type_text(qtype)));
        }
        if let Some(qclass) = rewrite.qclass {
            self.property("class", word(class_text(qclass)));
        }
        if !rewrite.revert {
            self.property("revert", ConfigValue::Boolean(false));
        }
    }

    fn answer(&mut self, name: &str, answer: &Answer) {
        self.add(name, [word(rcode_text(answer.rcode))]);
        if answer.authoritative {
            self.property("authoritative", ConfigValue::Boolean(true));
        }
        let parent = Some(self.0.len() - 1);
        let sections = [
            ("record", &answer.answers),
            ("authority", &answer.authority),
            ("additional", &answer.additional),
        ];
        for (name, records) in sections {
            for record in records {
                self.record(parent, name, record);
            }
        }
    }

    fn record(&mut self, parent: Option<usize>, name: &str, record: &Record) {
        let data = data_text(&record.rdata, record.rtype, 0..record.rdata.len());
        let owner = word(Text(&record.name).to_string());
        let rtype = word(type_text(record.rtype));
        self.add_in(
            parent,
            name,
            [owner, number(record.ttl.into()), rtype, word(data)],
        );
        if record.class != crate::dns::CLASS_IN {
            self.property("class", word(class_text(record.class)));
        }
    }

    fn edit(&mut self, edit: &ResponseEdit) {
        self.add("edit", []);
        let parent = Some(self.0.len() - 1);
        if edit.ttl_minimum > 0 {
            self.property("ttl-min", number(edit.ttl_minimum.into()));
        }
        if edit.ttl_maximum < i32::MAX as u32 {
            self.property("ttl-max", number(edit.ttl_maximum.into()));
        }
        for (name, kept) in [("store", edit.store), ("stale", edit.stale)] {
            if !kept {
                self.property(name, ConfigValue::Boolean(false));
            }
        }
        for &(found, instead) in &edit.rcodes {
            self.add_in(
                parent,
                "rcode",
                [word(rcode_text(found)), word(rcode_text(instead))],
            );
        }
    }

    fn rest(&mut self, rest: Rest) {
        for (level, line) in rest.log {
            self.add("log", [word(level), word(line)]);
        }
        for line in rest.printed.lines() {
            self.add("print", [word(line)]);
        }
        for (name, by) in rest.counts {
            self.add("count", [word(&*name), number(by)]);
        }
    }
}

/// The lines of each node at the top with what is in it, in the order of [`OBSERVED`], costs apart.
fn normal(nodes: &[ConfigNode]) -> (Vec<String>, Vec<String>) {
    let mut tops: Vec<(usize, Vec<String>)> = Vec::new();
    let mut names = nodes
        .iter()
        .filter(|node| node.parent.is_none())
        .map(|node| node.name.as_str());
    for line in spell(nodes) {
        // What is indented, or closes, belongs to the node above.
        match tops.last_mut() {
            Some((_, lines)) if line.starts_with([' ', '}']) => lines.push(line),
            _ => {
                let name = names.next().unwrap_or_default();
                let rank = OBSERVED.iter().position(|known| *known == name);
                tops.push((rank.unwrap_or(OBSERVED.len()), vec![line]));
            }
        }
    }
    tops.sort_by_key(|(rank, _)| *rank);
    let (cost, rest): (Vec<_>, Vec<_>) = tops
        .into_iter()
        .partition(|(rank, _)| OBSERVED.get(*rank) == Some(&COST));
    let lines = |tops: Vec<(usize, Vec<String>)>| tops.into_iter().flat_map(|(_, lines)| lines).collect();
    (lines(rest), lines(cost))
}

fn compare(recorded: &[ConfigNode], observed: &[ConfigNode]) -> Difference {
    let (recorded, _) = normal(recorded);
    let (observed, _) = normal(observed);
    match recorded == observed {
        true => Difference::None,
        false => Difference::Lines(differing(&recorded, &observed)),
    }
}

/// What a case was recorded to take and takes now, if that is another number.
pub fn cost_change(recorded: &[ConfigNode], observed: &[ConfigNode]) -> Option<(String, String)> {
    let (_, was) = normal(recorded);
    let (_, is) = normal(observed);
    let (was, is) = (was.first()?.clone(), is.first()?.clone());
    (was != is).then_some((was, is))
}

/// The lines of both texts in order: the longest common subsequence with a blank in front, the rest with `-`
/// or `+`. Both are a few lines long.
fn differing(old: &[String], new: &[String]) -> Vec<String> {
    let mut longest = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i][j] = match old[i] == new[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(format!("  {}", old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || longest[i + 1][j] >= longest[i][j + 1]) {
            lines.push(format!("- {}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", new[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(String::from).collect()
    }

    #[test]
    fn what_both_have_is_kept_in_order() {
        assert_eq!(
            differing(&lines("a b c d"), &lines("a x c d e")),
            ["  a", "- b", "+ x", "  c", "  d", "+ e"]
        );
        assert_eq!(differing(&[], &lines("a")), ["+ a"]);
        assert_eq!(differing(&lines("a"), &[]), ["- a"]);
    }

    /// The order of lines in a file is the author's affair, and cost is no difference.
    #[test]
    fn order_and_cost_do_not_matter() {
        let mut recorded = Nodes::default();
        recorded.add(COST, []);
        recorded.add("count", [word("b"), number(1)]);
        recorded.add("answer", [word("NOERROR")]);
        recorded.add_in(Some(2), "record", [word("x.")]);
        let mut observed = Nodes::default();
        observed.add("answer", [word("NOERROR")]);
        observed.add_in(Some(0), "record", [word("x.")]);
        observed.add("count", [word("b"), number(1)]);
        assert_eq!(compare(&recorded.0, &observed.0), Difference::None);
        observed.add("count", [word("c"), number(1)]);
        let Difference::Lines(lines) = compare(&recorded.0, &observed.0) else {
            panic!("they differ")
        };
        assert_eq!(lines.last().map(String::as_str), Some("+ count \"c\" 1"));
    }
}
