//! Snapshots: a filter's results in the words of a test-case file.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{ConfigNode, ConfigValue, Span, spell, spell_duration};
use crate::dns::name::Text;
use crate::dns::text::{class_text, data_text, type_text};
use crate::dns::{CLASS_IN, flag, rcode_text};
use crate::filter::{
    Answer, Ask, Cost, Decision, Ede, Execution, LookupPath, Order, Reason, RecordEdit, ResourceRecord,
    ResponseDecision, ResponseEdit, ResponseVerdict, Rewrite, Selector, Verdict,
};

/// The words of a snapshot, in the order in which they are written.
pub(super) const WORDS: [&str; 20] = [
    "not-called",
    "called",
    "pass",
    "rewrite",
    "answer",
    "alias",
    "refuse",
    "drop",
    "ask",
    "replace",
    "fail",
    "edit",
    "remember",
    "skip-response",
    "delay",
    "route",
    "log",
    "print",
    "count",
    COST,
];

/// The words for effects beside the verdict.
pub(super) const EFFECTS: [&str; 4] = ["log", "print", "count", COST];

/// The node with the cost of a call. It is recorded and compared, but a difference is not a failure: another
/// compiler emits other instructions.
pub(super) const COST: &str = "cost";

/// A verdict in the words of test cases, as lines.
pub fn verdict_lines(verdict: &Verdict) -> Vec<String> {
    let mut snapshot = Snapshot::default();
    snapshot.verdict(verdict);
    snapshot.lines()
}

/// A verdict on a response in the words of test cases, as lines.
pub fn response_verdict_lines(verdict: &ResponseVerdict) -> Vec<String> {
    let mut snapshot = Snapshot::default();
    snapshot.response(verdict);
    snapshot.lines()
}

/// The result of one call of a filter.
#[derive(Debug, Clone, Default)]
pub struct Snapshot(pub(super) Vec<ConfigNode>);

impl From<Vec<ConfigNode>> for Snapshot {
    fn from(nodes: Vec<ConfigNode>) -> Snapshot {
        Snapshot(nodes)
    }
}

impl Snapshot {
    /// Its text, without the enclosing block.
    pub fn lines(&self) -> Vec<String> {
        spell(&self.0)
    }

    pub(super) fn add(&mut self, name: &str, arguments: impl IntoIterator<Item = ConfigValue>) {
        self.add_in(None, name, arguments);
    }

    pub(super) fn add_in(
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
    pub(super) fn property(&mut self, name: &str, value: ConfigValue) {
        if let Some(node) = self.0.last_mut() {
            node.properties.push((name.to_owned(), value));
        }
    }

    pub(super) fn verdict(&mut self, verdict: &Verdict) {
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
            Decision::Refuse(refusal) => {
                self.add("refuse", [word(rcode_text(refusal.rcode))]);
                self.error(refusal.error.as_ref());
            }
            Decision::Drop(reason) => self.dropped(reason),
            Decision::Ask(ask) => return self.ask(ask, verdict.remember),
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
        self.delay(verdict.delay);
        if let Some(route) = &verdict.route {
            self.add("route", []);
            if let Some((_, source)) = &route.source {
                self.property("source", word(&**source));
            }
            if let Some(subnet) = route.subnet {
                self.property("client-subnet", word(subnet.to_string()));
            }
        }
    }

    pub(super) fn response(&mut self, verdict: &ResponseVerdict) {
        match &verdict.decision {
            ResponseDecision::Pass => self.add("pass", []),
            ResponseDecision::Replace(answer) => self.answer("replace", answer),
            ResponseDecision::Drop(reason) => self.dropped(reason),
            ResponseDecision::Ask(ask) => self.ask(ask, 0),
        }
        if let Some(edit) = &verdict.edit {
            self.edit(edit);
        }
        self.delay(verdict.delay);
    }

    fn delay(&mut self, milliseconds: u16) {
        if milliseconds > 0 {
            let delay = Duration::from_millis(milliseconds.into());
            self.add("delay", [word(spell_duration(delay))]);
        }
    }

    fn dropped(&mut self, reason: &str) {
        let reason = (!reason.is_empty()).then(|| word(reason));
        self.add("drop", reason);
    }

    /// Adds an extended error to the last node.
    fn error(&mut self, error: Option<&Ede>) {
        if let Some(error) = error {
            self.property("error", number(error.code.into()));
            if !error.text.is_empty() {
                self.property("error-text", word(&*error.text));
            }
        }
    }

    fn ask(&mut self, ask: &Ask, remember: u32) {
        self.add("ask", []);
        let parent = Some(self.0.len() - 1);
        self.property("time", word(spell_duration(ask.time)));
        if remember > 0 {
            let remember = Duration::from_millis(remember.into());
            self.property("remember", word(spell_duration(remember)));
        }
        if !ask.state.is_empty() {
            self.property("state", word(ask.state.escape_ascii().to_string()));
        }
        for lookup in &ask.lookups {
            let name = word(Text(&lookup.name).to_string());
            self.add_in(parent, "lookup", [name, word(type_text(lookup.qtype))]);
            match &lookup.path {
                LookupPath::Top => {}
                LookupPath::Below => self.property("below", ConfigValue::Boolean(true)),
                LookupPath::Zone(zone) => self.property("zone", word(zone.to_string())),
            }
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
        self.error(answer.error.as_ref());
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

    fn record(&mut self, parent: Option<usize>, name: &str, record: &ResourceRecord) {
        let data = data_text(&record.rdata, record.rtype, 0..record.rdata.len());
        let owner = word(Text(&record.name).to_string());
        let rtype = word(type_text(record.rtype));
        self.add_in(
            parent,
            name,
            [owner, number(record.ttl.into()), rtype, word(data)],
        );
        if record.class != CLASS_IN {
            self.property("class", word(class_text(record.class)));
        }
    }

    fn edit(&mut self, edit: &ResponseEdit) {
        self.add("edit", []);
        let parent = Some(self.0.len() - 1);
        for (name, bits) in [("set", edit.header_set), ("clear", edit.header_clear)] {
            if bits != 0 {
                self.property(name, word(header_bits(bits)));
            }
        }
        self.error(edit.error.as_ref());
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
        for record_edit in &edit.records {
            self.record_edit(parent, record_edit);
        }
    }

    fn record_edit(&mut self, parent: Option<usize>, edit: &RecordEdit) {
        let add = |snapshot: &mut Snapshot, name, arguments: Vec<ConfigValue>| {
            snapshot.add_in(parent, name, arguments);
            Some(snapshot.0.len() - 1)
        };
        match edit {
            RecordEdit::Remove(selector) => {
                add(self, "remove", Vec::new());
                self.selector(selector);
            }
            RecordEdit::Replace(selector, records) => {
                let replace = add(self, "replace", Vec::new());
                self.selector(selector);
                for record in records {
                    self.record(replace, "record", record);
                }
            }
            RecordEdit::Append(section, record) => {
                let append = add(self, "append", vec![word(section.as_str())]);
                self.record(append, "record", record);
            }
            RecordEdit::Order(Order::Rotate(by)) => {
                add(self, "rotate", vec![number((*by).into())]);
            }
            RecordEdit::Order(Order::Shuffle) => {
                add(self, "shuffle", Vec::new());
            }
            RecordEdit::Order(Order::Permute(order)) => {
                add(
                    self,
                    "permute",
                    order.iter().map(|&index| number(index.into())).collect(),
                );
            }
        }
    }

    /// Adds a selector of records to the last node.
    fn selector(&mut self, selector: &Selector) {
        if let Some(section) = selector.section {
            self.property("section", word(section.as_str()));
        }
        if let Some(name) = &selector.name {
            self.property("name", word(Text(name).to_string()));
        }
        if let Some(rtype) = selector.rtype {
            self.property("type", word(type_text(rtype)));
        }
        if let Some(index) = selector.index {
            self.property("index", number(index.into()));
        }
    }

    /// Adds what a call did beside its outcome.
    pub(super) fn effects<V>(&mut self, execution: &Execution<V>) {
        if let Some(failure) = &execution.failure {
            self.add("fail", [word(reason(failure.reason))]);
        }
        for (level, line) in &execution.log {
            self.add("log", [word(*level), word(line.as_str())]);
        }
        for line in execution.printed.lines() {
            self.add("print", [word(line)]);
        }
        for own in &execution.counts {
            self.add("count", [word(&*own.name), number(own.count)]);
            for (name, value) in &own.labels {
                self.property(name, word(&**value));
            }
        }
        self.cost(execution.cost);
    }

    fn cost(&mut self, cost: Cost) {
        if let Some(instructions) = cost.instructions.filter(|&count| count > 0) {
            let memory = format!("{}KiB", cost.memory / 1024);
            self.add(COST, []);
            self.property("instructions", number(instructions));
            self.property("memory", word(memory));
        }
    }
}

/// Names of header bits.
fn header_bits(bits: u16) -> String {
    let names = [("TC", flag::TC), ("AA", flag::AA), ("AD", flag::AD)];
    let names = names.into_iter().filter(|(_, bit)| bits & bit != 0);
    names.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Trap => "trap",
        Reason::Time => "time",
        Reason::Memory => "memory",
        Reason::Garbage => "garbage",
    }
}

pub(super) fn word(text: impl Into<Arc<str>>) -> ConfigValue {
    ConfigValue::Text(text.into())
}

pub(super) fn number(number: u64) -> ConfigValue {
    ConfigValue::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}
