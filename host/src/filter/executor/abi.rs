//! The canonical ABI of the component model, as far as `wit/` needs it: how values lie in a guest's memory.
//!
//! Everything read here was written by a guest and is hostile: lengths, pointers, alignment, discriminants and
//! text are checked, and how much one call may carry out is bounded. Which types there are is not known here but
//! in [`super::layout`].

use std::mem::size_of;
use std::ops::Range;

use wasmtime::{Result, bail};

/// A type with a place in linear memory.
pub(in crate::filter) trait Abi {
    /// Octets, a multiple of [`ALIGN`](Abi::ALIGN).
    const SIZE: usize;
    /// What its address is a multiple of.
    const ALIGN: usize;
}

/// A type that a guest can return.
pub(super) trait Lift: Abi + Sized {
    /// The value that the guest wrote to `at`, which has [`SIZE`](Abi::SIZE) octets.
    fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<Self>;

    /// The values that it wrote next to each other.
    fn lift_all(source: &mut Source<'_>, at: &[u8]) -> Result<Vec<Self>> {
        let mut values = Vec::with_capacity(at.len() / Self::SIZE);
        for at in at.chunks_exact(Self::SIZE) {
            values.push(Self::lift(source, at)?);
        }
        Ok(values)
    }
}

/// A type that a guest can be given.
pub(in crate::filter) trait Lower: Abi {
    /// Writes the value to `at`, which has [`SIZE`](Abi::SIZE) octets, and what it points to elsewhere.
    fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()>;
}

/// A type without pointers, which can be written where it is to lie.
pub(super) trait Flat: Abi {
    /// Writes the value to `at`, which has [`SIZE`](Abi::SIZE) octets. Padding stays as it is.
    fn write(&self, at: &mut [u8]);
}

impl<T: Flat> Lower for T {
    fn lower(&self, _: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
        self.write(at);
        Ok(())
    }
}

/// Where lists and strings go.
pub(in crate::filter) trait Heap {
    /// Keeps `bytes`, and says at which multiple of `align`.
    fn put(&mut self, bytes: &[u8], align: usize) -> Result<u32>;
}

/// A guest's memory while something is lifted out of it.
pub(super) struct Source<'a> {
    memory: &'a [u8],
    /// Octets of ours that may still be spent on lists and strings.
    budget: usize,
}

impl<'a> Source<'a> {
    /// `budget` bounds what will be allocated: a list may be written once and pointed to a thousand times.
    pub(super) fn new(memory: &'a [u8], budget: usize) -> Source<'a> {
        Source { memory, budget }
    }

    /// What is at the address that a function returned.
    pub(super) fn result<T: Lift>(&mut self, at: u32) -> Result<T> {
        let bytes = self.slice(at, 1, T::SIZE, T::ALIGN)?;
        T::lift(self, bytes)
    }

    /// `count` values.
    pub(super) fn list<T: Lift>(&mut self, at: u32, count: u32) -> Result<Vec<T>> {
        let bytes = self.slice(at, count, T::SIZE, T::ALIGN)?;
        self.spend((count as usize).saturating_mul(size_of::<T>()))?;
        T::lift_all(self, bytes)
    }

    /// Text of `length` octets.
    pub(super) fn text(&mut self, at: u32, length: u32) -> Result<&'a str> {
        let bytes = self.slice(at, length, 1, 1)?;
        self.spend(bytes.len())?;
        Ok(str::from_utf8(bytes)?)
    }

    fn slice(&self, at: u32, count: u32, size: usize, align: usize) -> Result<&'a [u8]> {
        let at = at as usize;
        if !at.is_multiple_of(align) {
            bail!("a pointer is not aligned");
        }
        let end = (count as usize)
            .checked_mul(size)
            .and_then(|size| at.checked_add(size));
        match end.and_then(|end| self.memory.get(at..end)) {
            Some(bytes) => Ok(bytes),
            None => bail!("a pointer or length leads out of memory"),
        }
    }

    fn spend(&mut self, octets: usize) -> Result<()> {
        match self.budget.checked_sub(octets) {
            Some(left) => self.budget = left,
            None => bail!("too much data in one call"),
        }
        Ok(())
    }
}

/// Where the next field of a record lies that ended at `end`.
#[inline(always)]
pub(super) fn field<T: Abi>(end: &mut usize) -> Range<usize> {
    let start = end.next_multiple_of(T::ALIGN);
    *end = start + T::SIZE;
    start..*end
}

/// The size of a record, from the (size, alignment) of its fields.
pub(super) const fn record_size(fields: &[(usize, usize)]) -> usize {
    let (mut end, mut index) = (0usize, 0);
    while index < fields.len() {
        let (size, align) = fields[index];
        end = end.next_multiple_of(align) + size;
        index += 1;
    }
    end.next_multiple_of(greatest_align(fields))
}

/// The size of a variant, from the (size, alignment) of what its cases carry. One octet says which case it is.
pub(super) const fn variant_size(cases: &[(usize, usize)]) -> usize {
    let (mut size, mut index) = (0, 0);
    while index < cases.len() {
        if cases[index].0 > size {
            size = cases[index].0;
        }
        index += 1;
    }
    let align = greatest_align(cases);
    (align + size).next_multiple_of(align)
}

/// The alignment of a record or variant. A variant's payload starts at this offset, too: behind one octet and
/// padding.
pub(super) const fn greatest_align(parts: &[(usize, usize)]) -> usize {
    let (mut align, mut index) = (1, 0);
    while index < parts.len() {
        if parts[index].1 > align {
            align = parts[index].1;
        }
        index += 1;
    }
    align
}

/// Size and alignment.
pub(super) const fn shape<T: Abi>() -> (usize, usize) {
    (T::SIZE, T::ALIGN)
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Abi for $number {
            const SIZE: usize = size_of::<$number>();
            const ALIGN: usize = size_of::<$number>();
        }
        impl Lift for $number {
            #[inline(always)]
            fn lift(_: &mut Source<'_>, at: &[u8]) -> Result<$number> {
                Ok($number::from_le_bytes(at.try_into()?))
            }
        }
        impl Flat for $number {
            #[inline(always)]
            fn write(&self, at: &mut [u8]) {
                at.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u16 u32 u64 i64 f64);

impl Abi for u8 {
    const SIZE: usize = 1;
    const ALIGN: usize = 1;
}

impl Lift for u8 {
    #[inline(always)]
    fn lift(_: &mut Source<'_>, at: &[u8]) -> Result<u8> {
        Ok(at[0])
    }

    fn lift_all(_: &mut Source<'_>, at: &[u8]) -> Result<Vec<u8>> {
        Ok(at.to_vec())
    }
}

impl Flat for u8 {
    #[inline(always)]
    fn write(&self, at: &mut [u8]) {
        at[0] = *self;
    }
}

impl Abi for bool {
    const SIZE: usize = 1;
    const ALIGN: usize = 1;
}

impl Lift for bool {
    #[inline(always)]
    fn lift(_: &mut Source<'_>, at: &[u8]) -> Result<bool> {
        Ok(at[0] != 0)
    }
}

impl Flat for bool {
    #[inline(always)]
    fn write(&self, at: &mut [u8]) {
        at[0] = u8::from(*self);
    }
}

impl Abi for String {
    const SIZE: usize = 8;
    const ALIGN: usize = 4;
}

impl Lift for String {
    fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<String> {
        let (start, length) = <(u32, u32)>::lift(source, at)?;
        Ok(source.text(start, length)?.to_owned())
    }
}

impl Lower for String {
    fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
        (heap.put(self.as_bytes(), 1)?, self.len() as u32).lower(heap, at)
    }
}

impl<T> Abi for Vec<T> {
    const SIZE: usize = 8;
    const ALIGN: usize = 4;
}

impl<T: Lift> Lift for Vec<T> {
    fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<Vec<T>> {
        let (start, count) = <(u32, u32)>::lift(source, at)?;
        source.list(start, count)
    }
}

impl<T: Lower> Lower for Vec<T> {
    fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
        lower_list(self, heap)?.lower(heap, at)
    }
}

/// Lowers a list, and returns its address and how many values are there.
pub(super) fn lower_list<T: Lower>(list: &[T], heap: &mut dyn Heap) -> Result<(u32, u32)> {
    let mut bytes = vec![0; list.len() * T::SIZE];
    for (value, at) in list.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
        value.lower(heap, at)?;
    }
    Ok((heap.put(&bytes, T::ALIGN)?, list.len() as u32))
}

impl<A: Abi, B: Abi> Abi for (A, B) {
    const SIZE: usize = record_size(&[shape::<A>(), shape::<B>()]);
    const ALIGN: usize = greatest_align(&[shape::<A>(), shape::<B>()]);
}

impl<A: Lift, B: Lift> Lift for (A, B) {
    #[inline(always)]
    fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<(A, B)> {
        let mut end = 0;
        let first = A::lift(source, &at[field::<A>(&mut end)])?;
        Ok((first, B::lift(source, &at[field::<B>(&mut end)])?))
    }
}

impl<A: Lower, B: Lower> Lower for (A, B) {
    fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
        let mut end = 0;
        self.0.lower(heap, &mut at[field::<A>(&mut end)])?;
        self.1.lower(heap, &mut at[field::<B>(&mut end)])
    }
}

impl<T: Abi> Abi for Option<T> {
    const SIZE: usize = variant_size(&[shape::<T>()]);
    const ALIGN: usize = T::ALIGN;
}

impl<T: Lift> Lift for Option<T> {
    #[inline(always)]
    fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<Option<T>> {
        match at[0] {
            0 => Ok(None),
            1 => Ok(Some(T::lift(source, &at[Self::ALIGN..][..T::SIZE])?)),
            other => bail!("an option has no case {other}"),
        }
    }
}

impl<T: Lower> Lower for Option<T> {
    fn lower(&self, heap: &mut dyn Heap, at: &mut [u8]) -> Result<()> {
        at[0] = u8::from(self.is_some());
        match self {
            None => Ok(()),
            Some(value) => value.lower(heap, &mut at[Self::ALIGN..][..T::SIZE]),
        }
    }
}

impl<T: Abi, E: Abi> Abi for Result<T, E> {
    const SIZE: usize = variant_size(&[shape::<T>(), shape::<E>()]);
    const ALIGN: usize = greatest_align(&[shape::<T>(), shape::<E>()]);
}

impl<T: Lift, E: Lift> Lift for Result<T, E> {
    fn lift(source: &mut Source<'_>, at: &[u8]) -> Result<Result<T, E>> {
        match at[0] {
            0 => Ok(Ok(T::lift(source, &at[Self::ALIGN..][..T::SIZE])?)),
            1 => Ok(Err(E::lift(source, &at[Self::ALIGN..][..E::SIZE])?)),
            other => bail!("a result has no case {other}"),
        }
    }
}

/// Values as a guest would return them, for the tests: its memory from some address on, and where in it the
/// result is.
#[cfg(test)]
pub(in crate::filter) struct Lowered {
    pub(in crate::filter) bytes: Vec<u8>,
    pub(in crate::filter) result: u32,
    base: u32,
}

#[cfg(test)]
impl Lowered {
    pub(in crate::filter) fn new<T: Lower>(base: u32, list: &[T]) -> Lowered {
        let mut lowered = Lowered {
            bytes: Vec::new(),
            result: 0,
            base,
        };
        let (at, count) = lower_list(list, &mut lowered).unwrap();
        let mut pair = [0; 8];
        (at, count).lower(&mut lowered, &mut pair).unwrap();
        lowered.result = lowered.put(&pair, 4).unwrap();
        lowered
    }
}

#[cfg(test)]
impl Heap for Lowered {
    fn put(&mut self, bytes: &[u8], align: usize) -> Result<u32> {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        let at = self.base + self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }
}
