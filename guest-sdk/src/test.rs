//! Runs a filter natively in unit tests, in place of the host.
//!
//! ```
//! # use dnsweir_filter::{Event, Filter, Invalid, Manifest, Setup};
//! # struct Slow;
//! # impl Filter for Slow {
//! #     fn configure(setup: Setup<'_>) -> Result<(Slow, Manifest), Invalid> {
//! #         let _: Option<dnsweir_filter::Ttl> = setup.config().nodes(&["over"])[0].optional_argument(0)?;
//! #         Ok((Slow, Manifest::new().events()))
//! #     }
//! #     fn event(&mut self, event: &Event<'_>) {
//! #         if event.duration().as_secs() > 0 { dnsweir_filter::print(&event.query().name().to_string()); }
//! #     }
//! # }
//! use std::time::Duration;
//! use dnsweir_filter::{Type, test};
//!
//! let mut filter = test::start::<Slow>([test::node("over").arg("1s")]).unwrap();
//! filter.event(&test::event(test::query("www.example.org", Type::A)).duration(Duration::from_secs(2)));
//! assert_eq!(filter.printed(), "www.example.org.\n");
//! ```

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub(crate) mod data;
mod literals;
mod lookups;
mod records;
pub(crate) mod tables;

use std::fmt;

use crate::bindings::dnsweir::filter::types as raw;
use crate::host::imports::{RECORDER, Recorder};
use crate::runtime::make;
use crate::{
    Answer, Event, Filter, Level, LookupStatus, Manifest, Query, Response, ResponseVerdict, Type, Verdict,
};

use lookups::{Handed, Lookups};

use tables::Tables;

pub use literals::{EventLiteral, QueryLiteral, ResponseLiteral, event, query, response};
pub use records::message;

/// Configures a filter for one zone, the root.
///
/// # Errors
/// All mistakes in the configuration.
pub fn start<F: Filter>(config: impl IntoIterator<Item = Node>) -> Result<Running<F>, Vec<Mistake>> {
    start_in(&["."], config)
}

/// Configures a filter for these zones.
///
/// # Errors
/// All mistakes in the configuration.
pub fn start_in<F: Filter>(
    zones: &[&str],
    config: impl IntoIterator<Item = Node>,
) -> Result<Running<F>, Vec<Mistake>> {
    RECORDER.with_borrow_mut(|recorder| *recorder = Recorder::default());
    configure(zones, config, Tables::default())
}

/// Configures another filter for the root zone that shares the tables of `other`, as on another worker or
/// after a reload. They also share counters, printed lines and log lines.
///
/// # Errors
/// All mistakes in the configuration.
pub fn start_beside<F: Filter, G: Filter>(
    other: &Running<G>,
    config: impl IntoIterator<Item = Node>,
) -> Result<Running<F>, Vec<Mistake>> {
    configure(&["."], config, other.tables.clone())
}

fn configure<F: Filter>(
    zones: &[&str],
    config: impl IntoIterator<Item = Node>,
    tables: Tables,
) -> Result<Running<F>, Vec<Mistake>> {
    let mut nodes = Vec::new();
    for node in config {
        node.flatten(None, &mut nodes);
    }
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let zones = zones.iter().map(|zone| (*zone).to_owned()).collect();
    make(raw::Setup {
        name: "test".to_owned(),
        config: nodes,
        zones,
    })
    .map(|(filter, manifest)| Running {
        filter,
        manifest,
        tables,
        lookups: Lookups::default(),
    })
    .map_err(|errors| {
        errors
            .into_iter()
            .map(|error| Mistake::from_raw(error, &names))
            .collect()
    })
}

/// The text of a line that [`print_with`](crate::print_with) would print, without its line end.
pub fn line(write: impl FnOnce(&mut crate::Line<'_>)) -> String {
    let mut lines = crate::line::Lines::new();
    lines.add(write);
    let mut text = lines.as_text().into_owned();
    text.pop();
    text
}

/// A configured filter.
pub struct Running<F> {
    filter: F,
    manifest: Manifest,
    tables: Tables,
    lookups: Lookups,
}

impl<F> fmt::Debug for Running<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

impl<F: Filter> Running<F> {
    /// The filter's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Sets the answer to lookups of this name and type. Lookups without an answer get NXDOMAIN.
    pub fn finds(&mut self, name: &str, qtype: Type, answer: Answer) {
        self.lookups.insert(name, qtype, Ok(answer));
    }

    /// Makes lookups of this name and type end with this status.
    pub fn loses(&mut self, name: &str, qtype: Type, status: LookupStatus) {
        self.lookups.insert(name, qtype, Err(status));
    }

    /// Takes the lookups that the filter has made, in the form `www.example. A below`.
    pub fn asked(&mut self) -> Vec<String> {
        self.lookups.take_asked()
    }

    /// Runs the query phase, whatever the manifest says. If the filter asks for lookups, it gets their
    /// answers, and the final verdict is returned.
    pub fn query(&mut self, query: &QueryLiteral) -> Verdict {
        let (raw, bytes) = (query.raw(), query.wire());
        let now = query.millis();
        let view = Query::new(&raw, &bytes, now);
        let view = view.expect("a literal is in range");
        let mut verdict = self.call(now, |filter| filter.query(&view));
        let mut round = 0;
        while let Some(ask) = verdict.asks() {
            let handed = self.hand(ask, &bytes, round);
            let view = Query::new(&raw, &handed.bytes, now);
            let (view, answers) = view.zip(handed.view()).expect("what was handed over is in range");
            verdict = self.call(now, |filter| filter.answers(&view, &answers));
            round += 1;
        }
        verdict
    }

    /// Runs the response phase, whatever the manifest says. Lookups work as for queries.
    pub fn response(&mut self, response: &ResponseLiteral) -> ResponseVerdict {
        let (raw, bytes) = response.raw();
        let now = response.query().millis();
        let view = Response::new(&raw, &bytes, now);
        let view = view.expect("a literal is in range");
        let mut verdict = self.call(now, |filter| filter.response(&view));
        let mut round = 0;
        while let Some(ask) = verdict.asks() {
            let handed = self.hand(ask, &bytes, round);
            let view = Response::new(&raw, &handed.bytes, now);
            let (view, answers) = view.zip(handed.view()).expect("what was handed over is in range");
            verdict = self.call(now, |filter| filter.response_answers(&view, &answers));
            round += 1;
        }
        verdict
    }

    /// The host's part of an ask: appends the answers to these bytes.
    fn hand(&mut self, ask: &raw::Ask, before: &[u8], round: usize) -> Handed {
        assert!(self.manifest.has_asks(), "the manifest does not say that it asks");
        self.lookups.hand(ask, before, round)
    }

    /// Runs the event phase, limited only by the manifest's [outcomes](crate::Manifest::outcomes).
    pub fn event(&mut self, event: &EventLiteral) {
        let (raw, bytes) = event.raw();
        let view = Event::new(&raw, &bytes);
        let view = view.expect("a literal is in range");
        if !self.manifest.hears(view.outcome()) {
            return;
        }
        self.call(event.query().millis(), |filter| filter.event(&view));
    }

    fn call<V>(&mut self, now: u64, phase: impl FnOnce(&mut F) -> V) -> V {
        let (filter, shapes) = (&mut self.filter, self.manifest.tables());
        let result = self.tables.during(shapes, now, || phase(filter));
        crate::host::hand_over();
        result
    }

    /// Refreshes the filter's data from these files, each with the name of its source. This filter and all
    /// others started by this test see the new data from their next call on.
    ///
    /// # Errors
    /// The error that the filter returns.
    pub fn refresh<O: AsRef<[u8]>>(
        &mut self,
        files: impl IntoIterator<Item = (&'static str, O)>,
    ) -> Result<(), String> {
        let files = files.into_iter().map(|(name, octets)| {
            let data = crate::Data::new(data::add(octets.as_ref()));
            crate::SourceFile::new(name.to_owned(), String::new(), data)
        });
        let files: Vec<crate::SourceFile> = files.collect();
        let done = crate::runtime::refresh(&mut self.filter, &files);
        data::end_refresh(done.is_ok());
        crate::host::hand_over();
        done
    }

    /// Takes what was printed.
    pub fn printed(&self) -> String {
        RECORDER.with_borrow_mut(|recorder| std::mem::take(&mut recorder.printed))
    }

    /// Takes what was logged.
    pub fn logged(&self) -> Vec<(Level, String)> {
        RECORDER.with_borrow_mut(|recorder| std::mem::take(&mut recorder.logged))
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> u64 {
        self.counter_with(name, &[])
    }

    /// The value of a counter with these labels.
    pub fn counter_with(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let labels = labels.iter();
        let labels = labels.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let counter = (name.to_owned(), labels.collect());
        RECORDER.with_borrow(|recorder| recorder.counts.get(&counter).copied().unwrap_or(0))
    }
}

/// A mistake in a configuration, as shown to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The name of the node; `None` for the block.
    pub node: Option<String>,
    /// The argument it points at.
    pub argument: Option<u32>,
    /// The property it points at.
    pub property: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What would be right; may be empty.
    pub help: String,
}

impl Mistake {
    fn from_raw(error: raw::ConfigError, names: &[String]) -> Mistake {
        let (argument, property) = match error.place {
            raw::Place::Node => (None, None),
            raw::Place::Argument(index) => (Some(index), None),
            raw::Place::Property(name) => (None, Some(name)),
        };
        let node = error.node.map(|index| names[index as usize].clone());
        Mistake {
            node,
            argument,
            property,
            message: error.message,
            help: error.help,
        }
    }
}

/// A node of a configuration: `node("ttl").arg("60s")` is `ttl "60s"`.
#[derive(Debug, Clone)]
pub struct Node {
    raw: raw::Node,
    children: Vec<Node>,
}

/// An empty node.
pub fn node(name: &str) -> Node {
    let raw = raw::Node {
        name: name.to_owned(),
        arguments: Vec::new(),
        properties: Vec::new(),
        parent: None,
    };
    Node {
        raw,
        children: Vec::new(),
    }
}

impl Node {
    /// Adds an argument.
    pub fn arg(mut self, value: impl Into<Literal>) -> Node {
        self.raw.arguments.push(value.into().0);
        self
    }

    /// Adds a property.
    pub fn prop(mut self, name: &str, value: impl Into<Literal>) -> Node {
        self.raw.properties.push((name.to_owned(), value.into().0));
        self
    }

    /// Adds a child node.
    pub fn child(mut self, child: Node) -> Node {
        self.children.push(child);
        self
    }

    fn flatten(mut self, parent: Option<u32>, nodes: &mut Vec<raw::Node>) {
        let index = nodes.len() as u32;
        self.raw.parent = parent;
        nodes.push(self.raw);
        for child in self.children {
            child.flatten(Some(index), nodes);
        }
    }
}

/// A value of a configuration: text, an integer, a decimal, a boolean, or [data](data()).
pub struct Literal(raw::Value);

/// A file that the filter reads as [`Data`](crate::Data).
pub fn data(octets: impl AsRef<[u8]>) -> Literal {
    Literal(raw::Value::Data(data::add(octets.as_ref())))
}

impl Literal {
    #[cfg(test)]
    pub(crate) fn into_raw(self) -> raw::Value {
        self.0
    }
}

impl From<&str> for Literal {
    fn from(text: &str) -> Literal {
        Literal(raw::Value::Text(text.to_owned()))
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Literal {
        Literal(raw::Value::Integer(value))
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Literal {
        Literal(raw::Value::Decimal(value))
    }
}

impl From<bool> for Literal {
    fn from(value: bool) -> Literal {
        Literal(raw::Value::Boolean(value))
    }
}
