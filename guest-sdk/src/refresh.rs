//! Building data from sources.

use std::collections::BTreeMap;

use crate::Data;

/// The number of bytes passed to the host at a time.
const CHUNK: usize = 64 << 10;

/// A file passed to a [refresh](crate::Filter::refresh).
#[derive(Debug)]
pub struct SourceFile {
    name: String,
    file: String,
    data: Data,
}

impl SourceFile {
    pub(crate) fn new(name: String, file: String, data: Data) -> SourceFile {
        SourceFile { name, file, data }
    }

    /// The name of the source in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file's name in its folder; empty if the source is not a folder.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The contents.
    pub fn data(&self) -> &Data {
        &self.data
    }
}

/// The output of a [refresh](crate::Filter::refresh): named data, which all instances read through
/// [`Setup::published`](crate::Setup::published) once the refresh has returned.
///
/// ```
/// use dnsweir_filter::{
///     Data, Filter, Invalid, Manifest, Output, Query, Rcode, Setup, SourceFile, Type, Verdict, test,
/// };
///
/// /// Refuses the names of some lists, in any order: `refresh { source "ads" "https://lists.example/ads" }`.
/// struct Listed(Data);
///
/// impl Filter for Listed {
///     fn configure(setup: Setup<'_>) -> Result<(Listed, Manifest), Invalid> {
///         Ok((Listed(setup.published("names")), Manifest::new().queries()))
///     }
///
///     fn refresh(&mut self, sources: &[SourceFile], output: &mut Output) -> Result<(), String> {
///         let mut names: Vec<Vec<u8>> = sources.iter().flat_map(|source| source.data().lines()).collect();
///         names.sort();
///         for name in names {
///             output.append("names", [&name, &b"\n"[..]].concat())?;
///         }
///         Ok(())
///     }
///
///     fn query(&mut self, query: &Query<'_>) -> Verdict {
///         let name = query.name().to_string();
///         match self.0.find_line(name.trim_end_matches('.'), b' ') {
///             Some(_) => Verdict::refuse(Rcode::NXDOMAIN),
///             None => Verdict::pass(),
///         }
///     }
/// }
///
/// let mut filter = test::start::<Listed>([]).unwrap();
/// let query = test::query("ads.example", Type::A);
/// assert_eq!(filter.query(&query), Verdict::pass());
/// filter.refresh([("ads", "web.example\nads.example\n")]).unwrap();
/// assert_eq!(filter.query(&query), Verdict::refuse(Rcode::NXDOMAIN));
/// ```
#[derive(Debug, Default)]
pub struct Output {
    /// Data not yet passed to the host.
    pending: BTreeMap<String, Vec<u8>>,
}

impl Output {
    /// Appends to the data to publish under a name.
    ///
    /// # Errors
    /// When there is no room: `limits data=` bounds all published data, and there may be 64 names of up to
    /// 255 bytes.
    pub fn append(&mut self, name: &str, octets: impl AsRef<[u8]>) -> Result<(), String> {
        if !self.pending.contains_key(name) {
            self.pending.insert(name.to_owned(), Vec::new());
        }
        for chunk in octets.as_ref().chunks(CHUNK) {
            let Some(pending) = self.pending.get_mut(name) else {
                break;
            };
            pending.extend_from_slice(chunk);
            if pending.len() >= CHUNK {
                hand_over(name, pending)?;
            }
        }
        Ok(())
    }

    /// Publishes a source unchanged under a name. It takes no memory beyond the source's own.
    ///
    /// # Errors
    /// When there is no room, or data under this name already.
    pub fn publish(&mut self, name: &str, source: &SourceFile) -> Result<(), String> {
        match host::publish(name, source.data.index()) {
            true => Ok(()),
            false => Err(no_room(name)),
        }
    }

    /// Passes the rest to the host.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let mut rest = self.pending.iter_mut();
        rest.try_for_each(|(name, pending)| hand_over(name, pending))
    }
}

fn hand_over(name: &str, pending: &mut Vec<u8>) -> Result<(), String> {
    let done = host::append(name, pending);
    pending.clear();
    if done { Ok(()) } else { Err(no_room(name)) }
}

fn no_room(name: &str) -> String {
    format!("there is no room for {name:?}: raise `limits data=`")
}

#[cfg(all(target_family = "wasm", not(doc)))]
use crate::bindings::dnsweir::filter::output as host;
#[cfg(any(doc, not(target_family = "wasm")))]
use crate::test::data as host;
