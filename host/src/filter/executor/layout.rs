//! The types of `wit/` in memory: their fields and cases, in the order in which they stand there.
//!
//! Written down once more, since the generated bindings keep their layout to themselves. A field forgotten or
//! of another type does not compile; fields in another order fail the tests, which compare with the bindings.

use wasmtime::{Result, bail};

use super::abi::{
    Abi, Flat, Heap, Lift, Lower, Source, field, greatest_align, record_size, shape, variant_size,
};
use crate::filter::bindings::dnsweir::filter::types;

macro_rules! abi_of_record {
    ($record:ty { $($of:ty,)* }) => {
        impl Abi for $record {
            const SIZE: usize = record_size(&[$(shape::<$of>()),*]);
            const ALIGN: usize = greatest_align(&[$(shape::<$of>()),*]);
        }
    };
}

/// Records that only go in and hold no lists.
macro_rules! flat {
    ($($record:ty { $($name:ident: $of:ty,)* })*) => {$(
        abi_of_record!($record { $($of,)* });
        impl Flat for $record {
            #[inline(always)]
            fn write(&self, at: &mut [u8]) {
                let mut end = 0;
                $(<$of as Flat>::write(&self.$name, &mut at[field::<$of>(&mut end)]);)*
            }
        }
    )*};
}

/// Enumerations in flat records.
macro_rules! flat_enum {
    ($($name:ty)*) => {$(
        impl Abi for $name {
            const SIZE: usize = 1;
            const ALIGN: usize = 1;
        }
        impl Flat for $name {
            #[inline(always)]
            fn write(&self, at: &mut [u8]) {
                at[0] = *self as u8;
            }
        }
    )*};
}

/// Other records. Both directions for each: the tests use those that the host does not.
macro_rules! record {
    ($($record:ty { $($name:ident: $of:ty,)* })*) => {$(
        abi_of_record!($record { $($of,)* });
        impl Lift for $record {
            #[inline]
            fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<Self> {
                let mut end = 0;
                Ok(Self { $($name: <$of as Lift>::lift(source, &at[field::<$of>(&mut end)])?,)* })
            }
        }
        impl Lower for $record {
            fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
                let mut end = 0;
                $(<$of as Lower>::lower(&self.$name, heap, &mut at[field::<$of>(&mut end)])?;)*
                Ok(())
            }
        }
    )*};
}

macro_rules! variant {
    ($($variant:ty { $($tag:literal => $case:ident $(($value:ident: $of:ty))?,)* })*) => {$(
        impl Abi for $variant {
            const SIZE: usize = variant_size(&[$($(shape::<$of>(),)?)*]);
            const ALIGN: usize = greatest_align(&[$($(shape::<$of>(),)?)*]);
        }
        impl Lift for $variant {
            #[inline]
            fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<Self> {
                match at[0] {
                    $($tag => Ok(Self::$case $((<$of>::lift(source, &at[Self::ALIGN..][..<$of>::SIZE])?))?),)*
                    other => bail!("{} has no case {other}", stringify!($variant)),
                }
            }
        }
        impl Lower for $variant {
            fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
                match self {
                    $(Self::$case $(($value))? => {
                        at[0] = $tag;
                        $($value.lower(heap, &mut at[Self::ALIGN..][..<$of>::SIZE])?;)?
                    })*
                }
                let _ = heap;
                Ok(())
            }
        }
    )*};
}

flat_enum! { types::Transport types::Source }

flat! {
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
        transport: types::Transport,
        edns: bool,
    }
    types::Response {
        query: types::Query,
        rcode: u16,
        source: types::Source,
        answer_count: u16,
        ttl: u32,
        message_start: u32,
        message_length: u32,
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
        has_answers: bool,
        source: types::Source,
    }
}

record! {
    types::ResourceRecord {
        name: Vec<u8>,
        rtype: u16,
        class: u16,
        ttl: u32,
        rdata: Vec<u8>,
    }
    types::Answer {
        rcode: u16,
        authoritative: bool,
        answers: Vec<types::ResourceRecord>,
        authority: Vec<types::ResourceRecord>,
        additional: Vec<types::ResourceRecord>,
    }
    types::Rewrite {
        name: Option<Vec<u8>>,
        qtype: Option<u16>,
        qclass: Option<u16>,
        revert: bool,
    }
    types::ResponseEdit {
        rcodes: Vec<(u16, u16)>,
        ttl_minimum: u32,
        ttl_maximum: u32,
        store: bool,
        stale: bool,
    }
    types::Verdict {
        query: u32,
        remember: u32,
        decision: types::Decision,
        edit: Option<types::ResponseEdit>,
        skip_response: bool,
    }
    types::ResponseVerdict {
        response: u32,
        edit: Option<types::ResponseEdit>,
        replace: Option<types::Answer>,
    }
    types::Node {
        name: String,
        arguments: Vec<types::Value>,
        properties: Vec<(String, types::Value)>,
        parent: Option<u32>,
    }
    types::ConfigError {
        node: Option<u32>,
        place: types::Place,
        message: String,
        help: String,
    }
    types::Manifest {
        qtypes: Vec<u16>,
        suffixes: Vec<String>,
        queries: bool,
        responses: bool,
        events: bool,
        messages: bool,
    }
}

variant! {
    types::Decision {
        0 => Pass,
        1 => Rewrite(rewrite: types::Rewrite),
        2 => Answer(answer: types::Answer),
        3 => Alias(targets: Vec<Vec<u8>>),
        4 => Refuse(rcode: u16),
        5 => Drop,
    }
    types::Value {
        0 => Null,
        1 => Boolean(value: bool),
        2 => Integer(value: i64),
        3 => Decimal(value: f64),
        4 => Text(value: String),
    }
    types::Place {
        0 => Node,
        1 => Argument(index: u32),
        2 => Property(name: String),
    }
}
