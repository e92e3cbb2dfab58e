//! Lifts verdicts from a guest's memory.
//!
//! Most verdicts of a batch are alike: the same edit for every query, or the same refusal. The component API
//! builds a value for each, in some 500 instructions; [`Verdicts`] builds one for the first and notes which
//! other queries get it. Verdicts are alike if their bytes are, except for the query index: equal pointers
//! yield equal values, since no guest runs meanwhile. Equal verdicts in other places are built one by one, by
//! the component API.
//!
//! `Lift` is as hidden as `Lower`; see [`packed`](super::packed).

use wasmtime::Result;
use wasmtime::component::__internal::{
    CanonicalAbiInfo, InstanceType, InterfaceType, LiftContext, bad_type_info,
};
use wasmtime::component::{ComponentType, Lift, WasmList};

use super::bindings::dnsweir::filter::types;

/// One verdict of a guest.
pub(super) struct Said {
    /// The verdict on the query that it names.
    pub(super) verdict: types::Verdict,
    /// Further queries with the same verdict, by index.
    pub(super) also: Vec<u32>,
}

/// A guest's verdicts on a batch of queries.
#[derive(Default)]
pub(super) struct Verdicts(pub(super) Vec<Said>);

impl From<Vec<types::Verdict>> for Verdicts {
    fn from(verdicts: Vec<types::Verdict>) -> Verdicts {
        Verdicts(verdicts.into_iter().map(Said::once).collect())
    }
}

impl Said {
    fn once(verdict: types::Verdict) -> Said {
        Said {
            verdict,
            also: Vec::new(),
        }
    }
}

/// The list's own implementation, which checks its bounds.
type List = WasmList<types::Verdict>;

/// Bytes of a verdict in the guest's memory.
const SIZE: usize = <types::Verdict as ComponentType>::SIZE32;

// SAFETY: forwards to the list's own implementation.
unsafe impl ComponentType for Verdicts {
    type Lower = <List as ComponentType>::Lower;
    const ABI: CanonicalAbiInfo = List::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> Result<()> {
        List::typecheck(ty, types)
    }
}

// SAFETY: each value is made by the record's own implementation, from bytes that the list's own
// implementation has found to lie in the guest's memory, contiguous and aligned.
unsafe impl Lift for Verdicts {
    fn linear_lift_from_flat(
        context: &mut LiftContext<'_>,
        ty: InterfaceType,
        source: &Self::Lower,
    ) -> Result<Verdicts> {
        let verdicts = <Vec<types::Verdict> as Lift>::linear_lift_from_flat(context, ty, source)?;
        Ok(verdicts.into())
    }

    fn linear_lift_from_memory(
        context: &mut LiftContext<'_>,
        ty: InterfaceType,
        octets: &[u8],
    ) -> Result<Verdicts> {
        let InterfaceType::List(list) = ty else {
            bad_type_info()
        };
        let verdict = context.types[list].element;
        // Checks pointer and length, and charges the values to the call's budget.
        let count = List::linear_lift_from_memory(context, ty, octets)?.len();
        let start = u32_at(octets, 0) as usize;
        let memory = &context.memory()[start..][..count * SIZE];
        // Usually there is one. Reserving for all would be large enough to make the allocator consolidate its
        // small blocks each time.
        let mut said: Vec<Said> = Vec::with_capacity(count.min(1));
        let mut before = None;
        for octets in memory.chunks_exact(SIZE) {
            let (index, rest) = octets.split_at(size_of::<u32>());
            match said.last_mut().filter(|_| before == Some(rest)) {
                Some(last) => last.also.push(u32_at(index, 0)),
                None => {
                    let verdict = types::Verdict::linear_lift_from_memory(context, verdict, octets)?;
                    said.push(Said::once(verdict));
                }
            }
            before = Some(rest);
        }
        Ok(Verdicts(said))
    }
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    let [a, b, c, d] = [0, 1, 2, 3].map(|offset| octets[at + offset]);
    u32::from_le_bytes([a, b, c, d])
}
