//! The filters of a configuration: `filter` nodes, and filters that a zone uses from the `filters` folder.

use std::path::{Path, PathBuf};

use kdl::{KdlEntry, KdlNode};

use super::config_block;
use super::decode::{Decoder, arguments, block, child, head, named_nodes};
use super::error::Span;
use super::filter::{FILTER, Filter, filter_name, test_cases};
use super::module::{self, Builtins, Module};
use super::refresh;
use super::signatures::{self, Signatures, SignedBy};
use super::wasi;

/// The filters of a configuration while it is decoded.
pub(super) struct Filters<'a> {
    builtins: Builtins<'a>,
    /// `filters "FOLDER"`: the folder of modules for filters without `module`.
    folder: Option<&'a Path>,
    /// The signers that `signed-by` may name.
    signatures: &'a Signatures,
    /// One entry per named `filter`; `None` if it has mistakes.
    decoded: Vec<Option<Filter>>,
    /// Name, span, and whether a zone uses it.
    known: Vec<(String, Span, bool)>,
}

impl<'a> Filters<'a> {
    pub fn new(builtins: Builtins<'a>, signatures: &'a Signatures, folder: Option<&'a Path>) -> Filters<'a> {
        Filters {
            builtins,
            folder,
            signatures,
            decoded: Vec::new(),
            known: Vec::new(),
        }
    }

    /// The index of the filter `name`, which is marked as used.
    pub fn find(&mut self, name: &str) -> Option<usize> {
        let index = self.known.iter().position(|(known, ..)| known == name)?;
        self.known[index].2 = true;
        Some(index)
    }

    /// The name of the filter at `index`.
    pub fn name(&self, index: usize) -> &str {
        self.known
            .get(index)
            .map(|(name, ..)| name.as_str())
            .unwrap_or_default()
    }

    /// Whether there is a built-in filter of this name.
    pub(crate) fn is_builtin(&self, name: &str) -> bool {
        self.builtins.iter().any(|(builtin, _)| *builtin == name)
    }

    /// The names of all filters.
    pub fn names(&self) -> Vec<&str> {
        self.known.iter().map(|(name, ..)| name.as_str()).collect()
    }

    /// The path of a filter's module in the `filters` folder.
    fn module_of(&self, name: &KdlEntry) -> Option<PathBuf> {
        let name = filter_name(name.value()).ok()?;
        Some(self.folder?.join(format!("{name}.wasm")))
    }

    /// Decodes a filter that a zone uses but that has no node: it has all defaults, and its module is in the
    /// `filters` folder. If the module is missing, so is the filter; the zone reports that.
    fn decode_used(&mut self, decoder: &mut Decoder, name: &KdlEntry) {
        let known = |known: &(String, Span, bool)| name.value().as_string() == Some(&known.0);
        if self.known.iter().any(known) {
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
    pub fn decode_all(&mut self, decoder: &mut Decoder, nodes: &[KdlNode]) {
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
        let mut written = FILTER.read(decoder, node);
        let nodes = block(node);
        let beside = arguments(node).next().and_then(|name| self.module_of(name));
        written.module = module::decode(decoder, beside, node);
        let module = written.module.as_ref();
        written.code = module::code(decoder, self.builtins, node, module);
        written.signed_by = self.signed_by(decoder, nodes, module);
        written.test_cases = test_cases(decoder, node, module);
        if let Some(node) = child(nodes, "wasi") {
            written.wasi = wasi::decode(decoder, node);
        }
        written.refresh = child(nodes, "refresh").map(|node| refresh::decode(decoder, node));
        decoder.files.limit_data(written.limits.data);
        let config = child(nodes, "config");
        written.config = config.map_or_else(Vec::new, |node| config_block::decode(decoder, node));

        let Some(name) = decoder.argument(node, filter_name) else {
            return;
        };
        if let Some((_, first, _)) = self.known.iter().find(|(known, ..)| *known == name) {
            let problem = format!("filter {name:?} is defined twice");
            decoder.report_again(node, *first, problem, "give one of them another name");
            return;
        }
        let span = head(node);
        self.known.push((name.clone(), span, false));
        self.decoded
            .push(written.into_filter(name, span, config.map_or(span, head)));
    }

    /// Decodes `signed-by`.
    fn signed_by(
        &self,
        decoder: &mut Decoder,
        nodes: &[KdlNode],
        module: Option<&module::Written>,
    ) -> SignedBy {
        let Some(node) = child(nodes, "signed-by") else {
            return SignedBy::default();
        };
        if module.is_some_and(|written| !matches!(written.module, Module::Artifact(_))) {
            let problem = "`signed-by` is for modules from registries alone";
            let help = "remove it, or write: module \"oci://REGISTRY/NAME:TAG\"";
            decoder.report(node, problem, help);
            return SignedBy::default();
        }
        signatures::signed_by(decoder, self.signatures, node)
    }

    /// Reports filters that no zone uses.
    pub fn refuse_unused(&self, decoder: &mut Decoder) {
        for (name, span, _) in self.known.iter().filter(|(.., used)| !used) {
            let help = format!("remove it, or write `use {name:?}` in a zone");
            decoder.report(*span, format!("no zone uses the filter {name:?}"), help);
        }
    }

    /// All filters; if there are no mistakes, none is missing.
    pub fn into_all(self) -> Vec<Filter> {
        self.decoded.into_iter().flatten().collect()
    }
}
