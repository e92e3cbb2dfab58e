//! The filters of a configuration: `filter` nodes, and filters that a zone uses from the `filters` folder.

use std::path::{Path, PathBuf};

use kdl::{KdlEntry, KdlNode};

use super::config_block;
use super::decode::{Decoder, arguments, block, child, head, named_nodes};
use super::filter::{FILTER, Filter, ON_ERROR, filter_name, test_cases};
use super::module::{self, Builtins, Module};
use super::signatures::{self, Signatures, SignedBy};

/// The filters of a configuration while it is decoded.
pub(super) struct Filters<'a> {
    builtins: Builtins<'a>,
    /// `filters "FOLDER"`: the folder of modules for filters without `module`.
    folder: Option<&'a Path>,
    /// The signers that `signed-by` may name.
    signatures: &'a Signatures,
    /// Each filter, and whether a zone uses it.
    all: Vec<(Filter, bool)>,
}

impl<'a> Filters<'a> {
    pub fn new(builtins: Builtins<'a>, signatures: &'a Signatures, folder: Option<&'a Path>) -> Filters<'a> {
        Filters {
            builtins,
            folder,
            signatures,
            all: Vec::new(),
        }
    }

    /// The index of the filter `name`, which is marked as used.
    pub fn find(&mut self, name: &str) -> Option<usize> {
        let index = self.all.iter().position(|(known, _)| known.name == name)?;
        self.all[index].1 = true;
        Some(index)
    }

    /// Whether there is a built-in filter of this name.
    pub(crate) fn is_builtin(&self, name: &str) -> bool {
        self.builtins.iter().any(|(builtin, _)| *builtin == name)
    }

    /// The name of the filter at `index`.
    pub fn name(&self, index: usize) -> &str {
        self.all.get(index).map_or("", |(filter, _)| filter.name.as_str())
    }

    /// The names of all filters.
    pub fn names(&self) -> Vec<&str> {
        self.all.iter().map(|(filter, _)| filter.name.as_str()).collect()
    }

    /// The path of a filter's module in the `filters` folder.
    fn module_of(&self, name: &KdlEntry) -> Option<PathBuf> {
        let name = filter_name(name.value()).ok()?;
        Some(self.folder?.join(format!("{name}.wasm")))
    }

    /// Decodes a filter that a zone uses but that has no node: it has all defaults, and its module is in the
    /// `filters` folder. If the module is missing, so is the filter; the zone reports that.
    fn decode_used(&mut self, decoder: &mut Decoder, name: &KdlEntry) {
        let written = name.value().as_string();
        if written.is_some_and(|name| self.names().contains(&name)) {
            return;
        }
        let Some(path) = self.module_of(name) else { return };
        decoder.files.note(&path);
        if !path.is_file() {
            return;
        }
        let mut node = KdlNode::new("filter");
        node.set_span(name.span());
        node.name_mut().set_span(name.span());
        node.push(name.clone());
        self.decode(decoder, &node);
    }

    /// Decodes the `filter` nodes, and the filters in the folder that a zone uses.
    pub(super) fn decode_all(&mut self, decoder: &mut Decoder, nodes: &[KdlNode]) {
        for node in named_nodes(nodes, "filter") {
            self.decode(decoder, node);
        }
        for node in named_nodes(nodes, "zone").flat_map(|zone| named_nodes(block(zone), "use")) {
            if let Some(name) = arguments(node).next() {
                self.decode_used(decoder, name);
            }
        }
    }

    /// Decodes one `filter`.
    fn decode(&mut self, decoder: &mut Decoder, node: &KdlNode) {
        let mut filter = FILTER.read(decoder, node);
        filter.span = head(node);
        let nodes = block(node);
        let beside = arguments(node).next().and_then(|name| self.module_of(name));
        let module = module::decode(decoder, beside, node);
        if let Some(written) = &module {
            let code = module::code(decoder, self.builtins, node, written, filter.sha256);
            filter.code = code.unwrap_or_default();
            (filter.module, filter.module_span) = (written.module.clone(), written.span);
        }
        if let Some(node) = child(nodes, "signed-by") {
            filter.signed_by = self.signed_by(decoder, node, module.as_ref());
        }
        filter.test_cases = test_cases(decoder, node, module.as_ref());
        if let Some(node) = child(nodes, "on-error") {
            let failing = ON_ERROR.read(decoder, node);
            (filter.on_error, filter.unready) = (failing.on_error, failing.unready);
        }
        decoder.files.limit_data(filter.limits.data);
        let config = child(nodes, "config");
        filter.config = config.map_or_else(Vec::new, |node| config_block::decode(decoder, node));
        filter.config_span = config.map_or(filter.span, head);

        let Some(name) = decoder.argument(node, filter_name) else {
            return;
        };
        if let Some((known, _)) = self.all.iter().find(|(known, _)| known.name == name) {
            let problem = format!("filter {name:?} is defined twice");
            decoder.report_again(node, known.span, problem, "give one of them another name");
            return;
        }
        filter.name = name;
        self.all.push((filter, false));
    }

    /// Decodes `signed-by`.
    fn signed_by(&self, decoder: &mut Decoder, node: &KdlNode, module: Option<&module::Written>) -> SignedBy {
        if module.is_some_and(|written| !matches!(written.module, Module::Artifact(_))) {
            let problem = "`signed-by` is for modules from registries alone";
            let help = "remove it, or write: module \"oci://REGISTRY/NAME:TAG\"";
            decoder.report(node, problem, help);
            return SignedBy::default();
        }
        signatures::signed_by(decoder, self.signatures, node)
    }

    /// Reports filters that no zone uses.
    pub(super) fn refuse_unused(&self, decoder: &mut Decoder) {
        for (Filter { name, span, .. }, _) in self.all.iter().filter(|(_, used)| !used) {
            let help = format!("remove it, or write `use {name:?}` in a zone");
            decoder.report(*span, format!("no zone uses the filter {name:?}"), help);
        }
    }

    /// All filters; if there are no mistakes, none is missing.
    pub(super) fn into_all(self) -> Vec<Filter> {
        self.all.into_iter().map(|(filter, _)| filter).collect()
    }
}
