//! The functions of `wit/data.wit`: a filter reads and searches large files where the proxy keeps them.
//!
//! Nothing is copied but what a guest asks for, and no call takes longer than it takes to copy 64 KiB.

mod lines;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, WasmList};

/// Octets that one call reads at most.
const READ: usize = 64 << 10;

/// A guest's world that has data.
pub(super) trait WithData {
    /// The data with this index in the filter's configuration.
    fn data(&self, index: u32) -> Option<&[u8]>;
}

/// Gives a component the data of its world.
///
/// # Errors
///
/// None: the linker does not have the interface yet.
pub(super) fn link<W: WithData + 'static>(linker: &mut Linker<W>) -> wasmtime::Result<()> {
    let mut data = linker.instance("dnsweir:filter/data@0.1.0")?;
    data.func_wrap("size", |store: StoreContextMut<'_, W>, (index,): (u32,)| {
        Ok((store.data().data(index).map(|data| data.len() as u64),))
    })?;
    data.func_wrap(
        "read",
        |store: StoreContextMut<'_, W>, (index, offset, length): (u32, u64, u32)| {
            let data = store.data().data(index).unwrap_or_default();
            Ok((part(data, offset, length).to_vec(),))
        },
    )?;
    data.func_wrap(
        "find-line",
        |store: StoreContextMut<'_, W>, (index, key, separator): (u32, WasmList<u8>, u8)| {
            let data = store.data().data(index).unwrap_or_default();
            let line = lines::find(data, key.as_le_slice(&store), separator);
            Ok((line.map(<[u8]>::to_vec),))
        },
    )
}

/// So many octets from `offset` on, as far as there are any.
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
