//! The most memory that filters can take, which follows from the configuration.

use super::blame;
use super::data::NAME_OCTETS;
use super::failure::HOSTCALL_BYTES;
use super::footprint::FREE;
use super::load_error::code_maximum;
use super::memo::REMEMBERED;
use super::spares::READY;
use super::world::TABLE_ENTRIES;
use crate::config::{Filter, Limits};

/// Octets of an entry of a table.
const ENTRY: usize = 8;

/// Copies of machine code while it is loaded: what the compiler left, what is kept of it in a file, and the code in place.
const COPIES: usize = 3;

/// Octets that an instance with these limits takes at most: what `limits memory=` counts, its verdicts remembered, what one
/// call carries out of it, its tables, and the runtime's own structures. Every term is a limit that is kept, whatever the
/// filter does.
fn instance_memory(limits: &Limits) -> usize {
    limits.memory + REMEMBERED + HOSTCALL_BYTES + TABLE_ENTRIES * ENTRY + FREE + NAME_OCTETS
}

/// Octets of the instances of one filter: of each worker, and those that are kept ready; and of what is known of who is to blame
/// for failed calls.
pub fn filter_memory(limits: &Limits, workers: usize) -> usize {
    (workers + READY) * instance_memory(limits) + blame::OCTETS
}

/// Octets that loading these filters takes at most, beside those that run meanwhile: the instances of all workers and the
/// machine code, as large as it may become, of each filter, and one `limits load-memory=`, the largest, since modules are
/// compiled one after the other.
pub fn loading_memory(filters: &[Filter], workers: usize) -> usize {
    let compiling = filters.iter().map(|filter| filter.limits.load_memory).max();
    let loaded = filters.iter().map(|filter| {
        let module = filter.code.len();
        filter_memory(&filter.limits, workers) + COPIES * code_maximum(module)
    });
    loaded.sum::<usize>() + compiling.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every filter counts on every worker, and only one of them is compiled at a time.
    #[test]
    fn loading_is_a_sum_and_one_compiler() {
        assert_eq!(loading_memory(&[], 4), 0);
        let filter = crate::filter::tests::block(vec![0; 1000]);
        let compiling = filter.limits.load_memory;
        let one = loading_memory(std::slice::from_ref(&filter), 1) - compiling;
        assert_eq!(
            loading_memory(&[filter.clone(), filter.clone()], 1),
            2 * one + compiling
        );
        let another_worker = loading_memory(std::slice::from_ref(&filter), 2) - compiling - one;
        assert_eq!(another_worker, instance_memory(&filter.limits));
    }
}
