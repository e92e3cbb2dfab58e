//! Copies batches of flat records into a guest's memory.
//!
//! The component API stores a record field by field and looks up the guest's memory for each field: some 70
//! instructions a field, 1,700 for an event. [`Packed`] looks it up once for a whole list and writes what the
//! canonical ABI specifies for records without pointers: each field at the next multiple of its size.
//! Everything else about a call, including type and bounds checks, is left to the component API.
//!
//! `derive(Lower)` implements `Lower` for every record of the interface. Its methods are hidden in wasmtime's
//! documentation and may change with a version; if this stops compiling, compare it with what the derive
//! generates. The tests compare the two.

use std::mem::MaybeUninit;
use std::slice;

use wasmtime::Result;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext};
use wasmtime::component::{ComponentType, Lower};

use super::bindings::dnsweir::filter::types;

/// A value without pointers, which can be written straight to its final place.
pub(super) trait Flat: Copy {
    /// Size in memory, in bytes.
    const SIZE: usize;
    /// Alignment of its address.
    const ALIGN: usize;

    /// Writes the value to `at`, which has [`SIZE`](Flat::SIZE) bytes. Padding is left as it is.
    fn write(&self, at: &mut [u8]);
}

/// A record whose batch is lowered in one piece.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Packed<R>(R);

impl<R> Packed<R> {
    /// Reinterprets a slice of records.
    pub(super) fn all(records: &[R]) -> &[Packed<R>] {
        // SAFETY: `Packed<R>` is transparent, so it has the layout of R, and so have slices of them.
        unsafe { slice::from_raw_parts(records.as_ptr().cast(), records.len()) }
    }
}

// SAFETY: forwards to the record's own derived implementation.
unsafe impl<R: ComponentType> ComponentType for Packed<R> {
    type Lower = R::Lower;
    const ABI: CanonicalAbiInfo = R::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> Result<()> {
        R::typecheck(ty, types)
    }
}

// SAFETY: forwards to the record's own implementation except for lists, for which it writes the same bytes:
// `Flat` is implemented (below) only for records of the interface, in the order of their fields, and the
// sizes are compared here.
unsafe impl<R: Flat + Lower> Lower for Packed<R> {
    fn linear_lower_to_flat<T>(
        &self,
        context: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        at: &mut MaybeUninit<R::Lower>,
    ) -> Result<()> {
        self.0.linear_lower_to_flat(context, ty, at)
    }

    fn linear_lower_to_memory<T>(
        &self,
        context: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        offset: usize,
    ) -> Result<()> {
        self.0.linear_lower_to_memory(context, ty, offset)
    }

    fn linear_store_list_to_memory<T>(
        context: &mut LowerContext<'_, T>,
        _: InterfaceType,
        offset: usize,
        records: &[Packed<R>],
    ) -> Result<()> {
        const { assert!(R::SIZE == R::ABI.size32 as usize && R::ALIGN == R::ABI.align32 as usize) };
        // The guest allocated it, and the caller has checked that it lies in the guest's memory.
        let room = &mut context.as_slice_mut()[offset..][..records.len() * R::SIZE];
        for (record, at) in records.iter().zip(room.chunks_exact_mut(R::SIZE)) {
            record.0.write(at);
        }
        Ok(())
    }
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Flat for $number {
            const SIZE: usize = size_of::<$number>();
            const ALIGN: usize = size_of::<$number>();

            #[inline(always)]
            fn write(&self, at: &mut [u8]) {
                at.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

/// Records, with their fields in the order of `wit/`.
macro_rules! records {
    ($($record:ty { $($name:ident: $of:ty,)* })*) => {$(
        impl Flat for $record {
            const SIZE: usize = {
                let mut end = 0usize;
                $(end = end.next_multiple_of(<$of>::ALIGN) + <$of>::SIZE;)*
                end.next_multiple_of(Self::ALIGN)
            };
            const ALIGN: usize = {
                let mut align = 1;
                $(if <$of>::ALIGN > align { align = <$of>::ALIGN; })*
                align
            };

            #[inline(always)]
            fn write(&self, at: &mut [u8]) {
                let mut end = 0usize;
                $(
                    let start = end.next_multiple_of(<$of>::ALIGN);
                    end = start + <$of>::SIZE;
                    self.$name.write(&mut at[start..end]);
                )*
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 }

records! {
    types::Query {
        client_high: u64,
        client_low: u64,
        name_start: u32,
        name_length: u16,
        qtype: u16,
        qclass: u16,
        header: u16,
        udp_size: u16,
        edns_flags: u16,
        client_port: u16,
        zone: u16,
        transport: u8,
        edns: u8,
        details_length: u16,
    }
    types::Response {
        query: types::Query,
        rcode: u16,
        source: u8,
        answer_count: u16,
        ttl: u32,
        message_start: u32,
        message_length: u32,
    }
    types::LookupAnswer {
        status: u8,
        rcode: u16,
        source: u8,
        ttl: u32,
        answer_count: u16,
        message_start: u32,
        message_length: u32,
    }
    types::AskedQuery {
        query: types::Query,
        state_start: u32,
        state_length: u32,
        first: u32,
        count: u32,
    }
    types::AskedResponse {
        response: types::Response,
        state_start: u32,
        state_length: u32,
        first: u32,
        count: u32,
    }
    types::Event {
        query: types::Query,
        time: u64,
        duration: u32,
        id: u16,
        query_size: u16,
        response_size: u32,
        rcode: u16,
        response_header: u16,
        has_answers: u8,
        source: u8,
        message_start: u32,
        message_length: u32,
    }
}
