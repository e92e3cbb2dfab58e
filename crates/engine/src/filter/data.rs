//! The functions of `wit/data.wit`: a filter reads and searches large files in the proxy's memory.
//!
//! Only what a guest requests is copied, and no call takes longer than copying 64 KiB.

mod lines;
mod output;
mod published;
mod sources;

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmList, WasmStr};

pub(super) use output::{Output, Snapshot};
pub(super) use published::{DataView, NAME_OCTETS, Published};
pub use sources::SourceFile;
pub(super) use sources::sources;

/// Maximum bytes read by one call.
const READ: usize = 64 << 10;

/// A store's data that provides the data functions.
pub(super) trait WithData {
    /// What the guest sees.
    fn data(&self) -> &DataView;

    /// The same, mutable.
    fn data_mut(&mut self) -> &mut DataView;
}

/// The bytes of the data with this index, if it exists.
fn octets<'a, W: WithData>(store: &'a StoreContextMut<'_, W>, index: u32) -> Option<&'a [u8]> {
    store.data().data().get(index).map(|data| &data[..])
}

/// Links the data functions into a component's imports.
///
/// # Errors
///
/// None in practice: the linker does not have the interface yet.
pub(super) fn link<W: WithData + 'static>(linker: &mut Linker<W>) -> wasmtime::Result<()> {
    let mut data = linker.instance("dnsweir:filter/data@0.1.0")?;
    data.func_wrap("size", |store: StoreContextMut<'_, W>, (index,): (u32,)| {
        Ok((octets(&store, index).map(|data| data.len() as u64),))
    })?;
    data.func_wrap(
        "read",
        |store: StoreContextMut<'_, W>, (index, offset, length): (u32, u64, u32)| {
            let data = octets(&store, index).unwrap_or_default();
            Ok((part(data, offset, length).to_vec(),))
        },
    )?;
    data.func_wrap(
        "find-line",
        |store: StoreContextMut<'_, W>, (index, key, separator): (u32, WasmList<u8>, u8)| {
            let data = octets(&store, index).unwrap_or_default();
            let line = lines::find(data, key.as_le_slice(&store), separator);
            Ok((line.map(<[u8]>::to_vec),))
        },
    )?;
    data.func_wrap(
        "published",
        |mut store: StoreContextMut<'_, W>, (name,): (WasmStr,)| {
            let name = name.to_str(&store)?;
            // A string too long for a name is not copied.
            let name = (name.len() <= output::NAME).then(|| name.into_owned());
            let index = name.map_or(u32::MAX, |name| store.data_mut().data_mut().published(&name));
            Ok((index,))
        },
    )?;
    data.func_wrap("revision", |store: StoreContextMut<'_, W>, (): ()| {
        Ok((store.data().data().revision(),))
    })?;
    link_output(linker)
}

fn link_output<W: WithData + 'static>(linker: &mut Linker<W>) -> wasmtime::Result<()> {
    let mut output = linker.instance("dnsweir:filter/output@0.1.0")?;
    output.func_wrap(
        "append",
        |mut store: StoreContextMut<'_, W>, (name, octets): (WasmStr, WasmList<u8>)| {
            // Taken out meanwhile, because the bytes to append are borrowed from the store.
            let Some(mut output) = store.data_mut().data_mut().output.take() else {
                return Ok((false,));
            };
            let name = name.to_str(&store)?;
            let done = output.append(&name, octets.as_le_slice(&store));
            drop(name);
            store.data_mut().data_mut().output = Some(output);
            Ok((done,))
        },
    )?;
    output.func_wrap(
        "publish",
        |mut store: StoreContextMut<'_, W>, (name, index): (WasmStr, u32)| {
            let name = name.to_str(&store)?.into_owned();
            let view = store.data_mut().data_mut();
            let data = view.get(index).map(Arc::clone);
            let done = match (&mut view.output, data) {
                (Some(output), Some(data)) => output.publish(&name, data),
                _ => false,
            };
            Ok((done,))
        },
    )
}

/// Up to `length` bytes from `offset` on, as far as there are any.
fn part(data: &[u8], offset: u64, length: u32) -> &[u8] {
    let start = usize::try_from(offset).map_or(data.len(), |offset| offset.min(data.len()));
    let rest = &data[start..];
    &rest[..rest.len().min(READ).min(length as usize)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_lies_within_the_data() {
        let data = vec![7; READ + 10];
        for (offset, length, expected) in [
            (0, 5, 5),
            (0, u32::MAX, READ),
            (10, u32::MAX, READ),
            (11, u32::MAX, READ - 1),
            (READ as u64 + 9, 2, 1),
            (READ as u64 + 10, 1, 0),
            (u64::MAX, u32::MAX, 0),
            (3, 0, 0),
        ] {
            assert_eq!(part(&data, offset, length).len(), expected, "{offset} {length}");
        }
        assert_eq!(part(&[], 0, 1), b"");
    }
}
