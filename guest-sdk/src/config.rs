//! The configuration as a filter reads it: a tree of nodes that remembers what was asked of it.
//!
//! Reading collects mistakes instead of stopping at the first, and every node, argument and property
//! that the filter did not ask for is a mistake, too. So a filter can neither forget to complain
//! about a typing error nor complain about only one.

use std::cell::{RefCell, RefMut};

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Data, FromValue, NameBuf, Table, Value};

/// Everything a filter gets to configure itself.
#[derive(Clone, Copy)]
pub struct Setup<'a>(&'a Tree);

/// A node of the configuration, or the block that holds the others.
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
    /// None: the block itself.
    index: Option<u32>,
}

/// Proof that a mistake in the configuration has been recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Invalid(());

pub(crate) struct Tree {
    name: String,
    zones: Vec<NameBuf>,
    nodes: Vec<raw::Node>,
    /// Which nodes stand in the block, then in each node.
    children: Vec<Vec<u32>>,
    read: RefCell<Read>,
    /// What the filter has asked for.
    tables: RefCell<Vec<raw::TableShape>>,
}

/// What has been read so far.
struct Read {
    mistakes: Vec<raw::ConfigError>,
    /// What was asked for: of the block, then of each node.
    asked: Vec<Asked>,
}

#[derive(Default, Clone)]
struct Asked {
    children: Vec<&'static str>,
    properties: Vec<&'static str>,
    /// Arguments from here on were not asked for.
    arguments: usize,
    /// The node has a mistake, so nobody knows what else would have been asked.
    invalid: bool,
}

impl Tree {
    pub(crate) fn new(setup: raw::Setup) -> Tree {
        let mut children = vec![Vec::new(); setup.config.len() + 1];
        for (index, node) in (0u32..).zip(&setup.config) {
            // A parent precedes its children. What claims another is taken for a node of the block,
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

    /// Adds a mistake for whatever was not asked for.
    pub(crate) fn check_all_read(&self) {
        self.block().check_children();
    }

    /// What is wrong, and the tables that were asked for.
    pub(crate) fn into_parts(self) -> (Vec<raw::ConfigError>, Vec<raw::TableShape>) {
        (self.read.into_inner().mistakes, self.tables.into_inner())
    }
}

impl<'a> Setup<'a> {
    /// The filter's name in the configuration: `filter "NAME"`.
    pub fn name(self) -> &'a str {
        &self.0.name
    }

    /// The zones that use the filter. [`Query::zone`](crate::Query::zone) is an index into them.
    pub fn zones(self) -> &'a [NameBuf] {
        &self.0.zones
    }

    /// The `config` block.
    pub fn config(self) -> Node<'a> {
        self.0.block()
    }

    /// What the filter's [refresh](crate::Filter::refresh) publishes under this name, which all its instances see. As long as
    /// nothing is, it is empty.
    pub fn published(self, name: &str) -> Data {
        Data::published(name)
    }

    /// A table of the filter's own with at most so many octets, which all its instances share and which outlasts a reload.
    /// An entry counts as the octets of its key and value and [`Table::OVERHEAD`]. All tables of a filter together have at
    /// most 8 MiB, unless the operator writes another number into `limits tables=`. Each one has a name of its own.
    pub fn table(self, name: &str, octets: usize) -> Table {
        self.add_table(name, octets, false)
    }

    /// The same, and the metrics show its numbers: `dnsweir_filter_table_value{filter, table, key}`.
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

    /// Notes that the arguments up to this one are known.
    fn ask_for(self, index: usize) {
        let mut asked = self.asked();
        asked.arguments = asked.arguments.max(index + 1);
    }

    /// The node's name; the block's is empty.
    pub fn name(self) -> &'a str {
        self.raw().map_or("", |node| &node.name)
    }

    fn label(self) -> String {
        match self.raw() {
            Some(node) => format!("`{}`", node.name),
            None => "the block".to_owned(),
        }
    }

    /// Every node in this one, whatever its name.
    fn all_children(self) -> impl Iterator<Item = Node<'a>> {
        let tree = self.tree;
        tree.children[slot(self.index)].iter().map(|&index| Node {
            tree,
            index: Some(index),
        })
    }

    /// The nodes in this one that have one of these names, in the order they are written.
    pub fn nodes(self, names: &[&'static str]) -> Vec<Node<'a>> {
        self.asked().children.extend_from_slice(names);
        self.all_children()
            .filter(|node| names.contains(&node.name()))
            .collect()
    }

    /// The node in this one that has this name, if it is written.
    ///
    /// # Errors
    /// If it is written twice.
    pub fn node(self, name: &'static str) -> Result<Option<Node<'a>>, Invalid> {
        let nodes = self.nodes(&[name]);
        match nodes[..] {
            [] => Ok(None),
            [node] => Ok(Some(node)),
            [_, second, ..] => Err(second
                .mistake(format!("`{name}` stands here twice"))
                .help("keep one of them")
                .report()),
        }
    }

    /// The argument of the node in this one that has this name.
    ///
    /// # Errors
    /// If the node is not written, or is something else than a `T`.
    pub fn setting<T: FromValue>(self, name: &'static str) -> Result<T, Invalid> {
        match self.node(name)? {
            Some(node) => node.argument(0),
            None => Err(self
                .mistake(format!("`{name}` is missing"))
                .help(format!("`{name}` with {}", T::EXPECTED))
                .report()),
        }
    }

    /// The argument of the node in this one that has this name; the default if it is not written. If
    /// it is wrong that is recorded, and the default returned so that reading can go on.
    pub fn setting_or<T: FromValue>(self, name: &'static str, default: T) -> T {
        match self.node(name) {
            Ok(Some(node)) => node.argument(0).unwrap_or(default),
            Ok(None) | Err(Invalid(())) => default,
        }
    }

    /// How many arguments there are.
    pub fn argument_count(self) -> usize {
        self.raw().map_or(0, |node| node.arguments.len())
    }

    /// The argument with this index.
    ///
    /// # Errors
    /// If there is none, or it is something else than a `T`.
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

    /// The argument with this index, if it is written.
    ///
    /// # Errors
    /// If it is something else than a `T`.
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

    /// The argument with this index, a text, as it stands in the configuration: for one that is a whole file,
    /// `(file)"PATH"`.
    ///
    /// # Errors
    /// If there is none, or it is no text.
    pub fn text(self, index: usize) -> Result<&'a str, Invalid> {
        match self.raw().and_then(|node| node.arguments.get(index)) {
            Some(raw::Value::Text(text)) => {
                self.ask_for(index);
                Ok(text)
            }
            // There is none, or it is the same mistake that a copy would be.
            _ => self.argument::<String>(index).map(|_| ""),
        }
    }

    /// All arguments from this index on, at least one.
    ///
    /// # Errors
    /// If there is none, or one is something else than a `T`.
    pub fn arguments<T: FromValue>(self, from: usize) -> Result<Vec<T>, Invalid> {
        let first = self.argument(from);
        let others = self.optional_arguments(from + 1);
        let mut values = vec![first?];
        values.extend(others?);
        Ok(values)
    }

    /// All arguments from this index on, if there are any.
    ///
    /// # Errors
    /// If one is something else than a `T`.
    pub fn optional_arguments<T: FromValue>(self, from: usize) -> Result<Vec<T>, Invalid> {
        let values: Vec<_> = (from..self.argument_count())
            .map(|index| self.argument(index))
            .collect();
        values.into_iter().collect()
    }

    /// The property with this name, if it is written.
    ///
    /// # Errors
    /// If it is something else than a `T`.
    pub fn property<T: FromValue>(self, name: &'static str) -> Result<Option<T>, Invalid> {
        self.asked().properties.push(name);
        let Some(node) = self.raw() else { return Ok(None) };
        // Of a property written twice the last one counts, as KDL has it.
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

    /// Begins a mistake of this node; it is not recorded before [`Mistake::report`].
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

/// Where a node's entry stands in the lists that begin with the block's.
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

/// In the order the filter asked. Not sorted: a sort is a tenth of a small module.
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

/// A mistake in the making.
#[must_use = "a mistake that is not reported is none"]
pub struct Mistake<'a> {
    node: Node<'a>,
    error: raw::ConfigError,
}

impl Mistake<'_> {
    /// Points at an argument instead of the whole node.
    pub fn argument(mut self, index: usize) -> Self {
        self.error.place = raw::Place::Argument(index as u32);
        self
    }

    /// Points at a property instead of the whole node.
    pub fn property(mut self, name: &str) -> Self {
        self.error.place = raw::Place::Property(name.to_owned());
        self
    }

    /// Says what would be right.
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
