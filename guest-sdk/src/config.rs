//! The configuration as a filter reads it: a tree of nodes that tracks which parts have been read.
//!
//! Reading collects mistakes instead of stopping at the first one, and every node, argument and property that
//! the filter does not read is reported as a mistake, too. So a filter can neither overlook a typing error
//! nor report only one.

use std::cell::{RefCell, RefMut};

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Data, FromValue, NameBuf, Table, Value};

/// What a filter configures itself from.
#[derive(Clone, Copy)]
pub struct Setup<'a>(&'a Tree);

/// A node of the configuration, or the `config` block itself.
///
/// ```
/// use std::net::IpAddr;
/// use dnsweir_filter::{Invalid, NameBuf, Node, Ttl};
///
/// // host "hello.demo.test" "127.0.0.53" "::1" ttl="60s"
/// fn host(node: Node<'_>) -> Result<(NameBuf, Vec<IpAddr>, Option<Ttl>), Invalid> {
///     let name = node.argument(0);
///     let addresses = node.arguments(1);
///     let ttl = node.property("ttl");
///     Ok((name?, addresses?, ttl?)) // after all three have had their say
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Node<'a> {
    tree: &'a Tree,
    /// `None` for the block itself.
    index: Option<u32>,
}

/// Proof that a mistake in the configuration was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Invalid(());

pub(crate) struct Tree {
    name: String,
    zones: Vec<NameBuf>,
    nodes: Vec<raw::Node>,
    /// The child nodes of the block, then of each node.
    children: Vec<Vec<u32>>,
    read: RefCell<Read>,
    /// The tables that the filter has requested.
    tables: RefCell<Vec<raw::TableShape>>,
}

/// What has been read so far, and the mistakes in it.
struct Read {
    mistakes: Vec<raw::ConfigError>,
    /// What was read of the block, then of each node.
    asked: Vec<Asked>,
}

#[derive(Default, Clone)]
struct Asked {
    children: Vec<&'static str>,
    properties: Vec<&'static str>,
    /// The number of arguments that were read.
    arguments: usize,
    /// The node has a mistake, so it is unknown what else would have been read.
    invalid: bool,
}

impl Tree {
    pub(crate) fn new(setup: raw::Setup) -> Tree {
        let mut children = vec![Vec::new(); setup.config.len() + 1];
        for (index, node) in (0u32..).zip(&setup.config) {
            // A parent precedes its children. A node with an invalid parent counts as a child of the block,
            // where it is unknown or harmless.
            let parent = node.parent.filter(|&parent| parent < index);
            children[slot(parent)].push(index);
        }
        let asked = vec![Asked::default(); children.len()];
        let read = RefCell::new(Read {
            mistakes: Vec::new(),
            asked,
        });
        let mut tree = Tree {
            name: setup.name,
            zones: Vec::new(),
            nodes: setup.config,
            children,
            read,
            tables: RefCell::default(),
        };
        for zone in setup.zones {
            match zone.parse() {
                Ok(zone) => tree.zones.push(zone),
                Err(reason) => {
                    let _ = tree
                        .block()
                        .mistake(format!("the zone `{zone}` has no valid name: {reason}"))
                        .report();
                }
            }
        }
        tree
    }

    pub(crate) fn setup(&self) -> Setup<'_> {
        Setup(self)
    }

    fn block(&self) -> Node<'_> {
        Node {
            tree: self,
            index: None,
        }
    }

    /// Reports everything that was not read as a mistake.
    pub(crate) fn check_all_read(&self) {
        self.block().check_children();
    }

    /// The mistakes, and the requested tables.
    pub(crate) fn into_parts(self) -> (Vec<raw::ConfigError>, Vec<raw::TableShape>) {
        (self.read.into_inner().mistakes, self.tables.into_inner())
    }
}

impl<'a> Setup<'a> {
    /// The filter's name in the configuration: `filter "NAME"`.
    pub fn name(self) -> &'a str {
        &self.0.name
    }

    /// The zones that use the filter. [`Query::zone`](crate::Query::zone) is an index into this slice.
    pub fn zones(self) -> &'a [NameBuf] {
        &self.0.zones
    }

    /// The `config` block.
    pub fn config(self) -> Node<'a> {
        self.0.block()
    }

    /// The data that the filter's [refresh](crate::Filter::refresh) publishes under this name, shared by all
    /// its instances. It is empty until something is published.
    pub fn published(self, name: &str) -> Data {
        Data::published(name)
    }

    /// Declares a table of at most this many bytes, which all instances of the filter share and which
    /// survives reloads. Its name must be unique within the filter. An entry counts as the size of its key
    /// and value plus [`Table::OVERHEAD`]. All tables of a filter together have at most 8 MiB, unless
    /// `limits tables=` sets another bound.
    pub fn table(self, name: &str, octets: usize) -> Table {
        self.add_table(name, octets, false)
    }

    /// Like [`table`](Setup::table), and exports its numbers as the metric
    /// `dnsweir_filter_table_value{filter, table, key}`.
    pub fn shown_table(self, name: &str, octets: usize) -> Table {
        self.add_table(name, octets, true)
    }

    fn add_table(self, name: &str, octets: usize, shown: bool) -> Table {
        let mut tables = self.0.tables.borrow_mut();
        tables.push(raw::TableShape {
            name: name.to_owned(),
            octets: u32::try_from(octets).unwrap_or(u32::MAX),
            shown,
        });
        Table::new(tables.len() as u32 - 1)
    }
}

impl<'a> Node<'a> {
    fn raw(self) -> Option<&'a raw::Node> {
        self.tree.nodes.get(self.index? as usize)
    }

    fn asked(&self) -> RefMut<'a, Asked> {
        RefMut::map(self.tree.read.borrow_mut(), |read| {
            &mut read.asked[slot(self.index)]
        })
    }

    /// Marks the arguments up to this one as read.
    fn ask_for(self, index: usize) {
        let mut asked = self.asked();
        asked.arguments = asked.arguments.max(index + 1);
    }

    /// The node's name; empty for the block.
    pub fn name(self) -> &'a str {
        self.raw().map_or("", |node| &node.name)
    }

    fn label(self) -> String {
        match self.raw() {
            Some(node) => format!("`{}`", node.name),
            None => "the block".to_owned(),
        }
    }

    /// All child nodes, whatever their names.
    fn all_children(self) -> impl Iterator<Item = Node<'a>> {
        let tree = self.tree;
        tree.children[slot(self.index)].iter().map(|&index| Node {
            tree,
            index: Some(index),
        })
    }

    /// The child nodes with one of these names, in the order of the configuration.
    pub fn nodes(self, names: &[&'static str]) -> Vec<Node<'a>> {
        self.asked().children.extend_from_slice(names);
        self.all_children()
            .filter(|node| names.contains(&node.name()))
            .collect()
    }

    /// The child node with this name, if there is one.
    ///
    /// # Errors
    /// If there are two.
    pub fn node(self, name: &'static str) -> Result<Option<Node<'a>>, Invalid> {
        let nodes = self.nodes(&[name]);
        match nodes[..] {
            [] => Ok(None),
            [node] => Ok(Some(node)),
            [_, second, ..] => Err(second
                .mistake(format!("`{name}` is here twice"))
                .help("keep one of them")
                .report()),
        }
    }

    /// The argument of the child node with this name.
    ///
    /// # Errors
    /// If there is no such node, or its argument is not a `T`.
    pub fn setting<T: FromValue>(self, name: &'static str) -> Result<T, Invalid> {
        match self.node(name)? {
            Some(node) => node.argument(0),
            None => Err(self
                .mistake(format!("`{name}` is missing"))
                .help(format!("`{name}` with {}", T::EXPECTED))
                .report()),
        }
    }

    /// The argument of the child node with this name, or the default if there is no such node. If the
    /// argument is wrong, the mistake is recorded and the default returned, so that reading can go on.
    pub fn setting_or<T: FromValue>(self, name: &'static str, default: T) -> T {
        match self.node(name) {
            Ok(Some(node)) => node.argument(0).unwrap_or(default),
            Ok(None) | Err(Invalid(())) => default,
        }
    }

    /// The number of arguments.
    pub fn argument_count(self) -> usize {
        self.raw().map_or(0, |node| node.arguments.len())
    }

    /// The argument with this index.
    ///
    /// # Errors
    /// If there is none, or it is not a `T`.
    pub fn argument<T: FromValue>(self, index: usize) -> Result<T, Invalid> {
        match self.optional_argument(index)? {
            Some(value) => Ok(value),
            None => {
                let which = ordinal(index);
                let message = format!("{} needs {} as its {which} argument", self.label(), T::EXPECTED);
                Err(self.mistake(message).report())
            }
        }
    }

    /// The argument with this index, if there is one.
    ///
    /// # Errors
    /// If it is not a `T`.
    pub fn optional_argument<T: FromValue>(self, index: usize) -> Result<Option<T>, Invalid> {
        self.ask_for(index);
        let Some(value) = self.raw().and_then(|node| node.arguments.get(index)) else {
            return Ok(None);
        };
        let value = Value::from_raw(value);
        T::from_value(value).map(Some).map_err(|help| {
            let what = format!("the {} argument of {}", ordinal(index), self.label());
            self.mistake(format!("{what} must be {}, not {value}", T::EXPECTED))
                .argument(index)
                .help(help)
                .report()
        })
    }

    /// The text argument with this index, borrowed from the configuration: for a text that is a whole file,
    /// `(file)"PATH"`.
    ///
    /// # Errors
    /// If there is none, or it is not text.
    pub fn text(self, index: usize) -> Result<&'a str, Invalid> {
        match self.raw().and_then(|node| node.arguments.get(index)) {
            Some(raw::Value::Text(text)) => {
                self.ask_for(index);
                Ok(text)
            }
            // There is none, or it is the mistake that reading a `String` reports.
            _ => self.argument::<String>(index).map(|_| ""),
        }
    }

    /// All arguments from this index on, at least one.
    ///
    /// # Errors
    /// If there is none, or one is not a `T`.
    pub fn arguments<T: FromValue>(self, from: usize) -> Result<Vec<T>, Invalid> {
        let first = self.argument(from);
        let others = self.optional_arguments(from + 1);
        let mut values = vec![first?];
        values.extend(others?);
        Ok(values)
    }

    /// All arguments from this index on, if any.
    ///
    /// # Errors
    /// If one is not a `T`.
    pub fn optional_arguments<T: FromValue>(self, from: usize) -> Result<Vec<T>, Invalid> {
        let values: Vec<_> = (from..self.argument_count())
            .map(|index| self.argument(index))
            .collect();
        values.into_iter().collect()
    }

    /// The property with this name, if there is one.
    ///
    /// # Errors
    /// If it is not a `T`.
    pub fn property<T: FromValue>(self, name: &'static str) -> Result<Option<T>, Invalid> {
        self.asked().properties.push(name);
        let Some(node) = self.raw() else { return Ok(None) };
        // As in KDL, the last of several properties with the same name counts.
        let Some((_, value)) = node.properties.iter().rfind(|(property, _)| property == name) else {
            return Ok(None);
        };
        let value = Value::from_raw(value);
        T::from_value(value).map(Some).map_err(|help| {
            let message = format!(
                "`{name}` of {} must be {}, not {value}",
                self.label(),
                T::EXPECTED
            );
            self.mistake(message).property(name).help(help).report()
        })
    }

    /// Starts a mistake about this node; [`Mistake::report`] records it.
    pub fn mistake(self, message: impl Into<String>) -> Mistake<'a> {
        let message = message.into();
        let error = raw::ConfigError {
            node: self.index,
            place: raw::Place::Node,
            message,
            help: String::new(),
        };
        Mistake { node: self, error }
    }

    fn check_children(self) {
        let known = self.asked().children.clone();
        for child in self.all_children() {
            if known.contains(&child.name()) {
                child.check();
            } else {
                let message = match self.index {
                    None => format!("this filter knows no {}", child.label()),
                    Some(_) => format!("{} knows no {}", self.label(), child.label()),
                };
                let _ = child.mistake(message).help(valid_here(&known)).report();
            }
        }
    }

    fn check(self) {
        let Asked {
            properties,
            arguments,
            invalid,
            ..
        } = self.asked().clone();
        let Some(node) = self.raw() else { return };
        if invalid {
            return;
        }
        if let Some(extra) = node.arguments.get(arguments) {
            let message = match arguments {
                0 => format!("{} takes no arguments", self.label()),
                1 => format!("{} takes one argument", self.label()),
                _ => format!("{} takes {arguments} arguments", self.label()),
            };
            let help = format!("remove {}", Value::from_raw(extra));
            let _ = self.mistake(message).argument(arguments).help(help).report();
        }
        for (name, _) in &node.properties {
            if !properties.contains(&name.as_str()) {
                let message = format!("{} knows no `{name}=`", self.label());
                let _ = self
                    .mistake(message)
                    .property(name)
                    .help(valid_here(&properties))
                    .report();
            }
        }
        self.check_children();
    }
}

/// A node's index into the lists that start with the block's entry.
fn slot(index: Option<u32>) -> usize {
    index.map_or(0, |index| index as usize + 1)
}

fn ordinal(index: usize) -> String {
    match index {
        0 => "first".to_owned(),
        1 => "second".to_owned(),
        2 => "third".to_owned(),
        _ => format!("{}th", index + 1),
    }
}

/// The names in the order the filter read them. Not sorted: the code to sort is a tenth of a small module.
fn valid_here(names: &[&str]) -> String {
    let mut help = String::new();
    for (index, name) in names.iter().enumerate() {
        if !names[..index].contains(name) {
            help.push_str(if help.is_empty() { "valid here: `" } else { ", `" });
            help.push_str(name);
            help.push('`');
        }
    }
    if help.is_empty() {
        "nothing is valid here".to_owned()
    } else {
        help
    }
}

/// A mistake that has not been recorded yet.
#[must_use = "a mistake that is not reported is none"]
pub struct Mistake<'a> {
    node: Node<'a>,
    error: raw::ConfigError,
}

impl Mistake<'_> {
    /// Points at this argument instead of the whole node.
    pub fn argument(mut self, index: usize) -> Self {
        self.error.place = raw::Place::Argument(index as u32);
        self
    }

    /// Points at this property instead of the whole node.
    pub fn property(mut self, name: &str) -> Self {
        self.error.place = raw::Place::Property(name.to_owned());
        self
    }

    /// Adds what would be right.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.error.help = help.into();
        self
    }

    /// Records the mistake.
    pub fn report(self) -> Invalid {
        self.node.asked().invalid = true;
        self.node.tree.read.borrow_mut().mistakes.push(self.error);
        Invalid(())
    }
}
