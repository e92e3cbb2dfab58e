//! The maximum memory of filters, computed from the configuration.

use super::blame;
use super::data::NAME_OCTETS;
use super::failure::HOSTCALL_BYTES;
use super::footprint::FREE;
use super::host_state::TABLE_ENTRIES;
use super::load_error::code_maximum;
use super::memo::REMEMBERED;
use super::spares::READY;
use crate::config::{Filter, Limits};

/// Bytes per table entry.
const ENTRY: usize = 8;

/// Copies of machine code during a load: the compiler's output, the copy for the cache file, and the loaded
/// code.
const COPIES: usize = 3;

/// Maximum bytes of an instance with these limits: `limits memory=`, its memo, what one call passes out of
/// it, its tables, and the runtime's own structures. Every term is enforced, whatever the filter does.
fn instance_memory(limits: &Limits) -> usize {
    limits.memory + REMEMBERED + HOSTCALL_BYTES + TABLE_ENTRIES * ENTRY + FREE + NAME_OCTETS
}

/// Maximum bytes of one filter's instances, those of all workers and the spares, plus its book of blame.
pub fn filter_memory(limits: &Limits, workers: usize) -> usize {
    (workers + READY) * instance_memory(limits) + blame::OCTETS
}

/// Maximum bytes needed to load these filters, beside those that run meanwhile: per filter its instances on
/// all workers and its machine code at maximum size, plus the largest `limits load-memory=` once, since
/// modules are compiled one after the other.
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

    /// Every filter counts on every worker, and only one of them compiles at a time.
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
