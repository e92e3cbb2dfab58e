//! Calls around the component API: the same code, entered through its core module, with the canonical ABI
//! followed by hand.
//!
//! What the component runtime guarantees is guaranteed here, too: a guest that has trapped is not entered again,
//! no guest calls the host while it allocates or cleans up, and nothing it returns is taken on trust.

use std::mem;

use wasmtime::{
    Caller, ExternType, Instance, InstancePre, Linker, Memory, Module, Result, Store, Trap, TypedFunc,
    WasmParams, WasmResults, bail, format_err,
};

use super::HOSTCALL_BYTES;
use super::abi::{Flat, Heap, Lift, Source, lower_list};
use crate::filter::bindings::dnsweir::filter::{host, types};
use crate::filter::world::State;

/// The interface that guests import.
const HOST: &str = "dnsweir:filter/host@0.1.0";

/// A core module with its imports resolved.
pub(super) struct Code(InstancePre<State>);

impl Code {
    /// None if the module imports something that only its component can give it.
    pub(super) fn new(module: &Module) -> Option<Code> {
        let known = module.imports().all(|import| match import.module() {
            HOST => matches!(import.name(), "log" | "print" | "count"),
            other => other.starts_with("wasi:") && matches!(import.ty(), ExternType::Func(_)),
        });
        if !known {
            return None;
        }
        let mut linker = Linker::new(module.engine());
        import(&mut linker).ok()?;
        linker.define_unknown_imports_as_traps(module).ok()?;
        linker.instantiate_pre(module).ok().map(Code)
    }
}

/// Defines what a guest may call.
fn import(linker: &mut Linker<State>) -> Result<()> {
    linker.func_wrap(
        HOST,
        "log",
        |caller: Caller<'_, State>, level: u32, at: u32, length: u32| {
            leave(caller, |state, source| {
                let level = match level {
                    0 => host::Level::Error,
                    1 => host::Level::Warn,
                    2 => host::Level::Info,
                    3 => host::Level::Debug,
                    other => bail!("there is no log level {other}"),
                };
                state.log_line(level, source.text(at, length)?);
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        HOST,
        "print",
        |caller: Caller<'_, State>, at: u32, length: u32| {
            leave(caller, |state, source| {
                state.print_lines(source.text(at, length)?);
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        HOST,
        "count",
        |caller: Caller<'_, State>, at: u32, length: u32, by: u64| {
            leave(caller, |state, source| {
                state.add_to_counter(source.text(at, length)?, by);
                Ok(())
            })
        },
    )?;
    Ok(())
}

/// Does what a guest asked the host for, unless this is no time to ask.
fn leave(
    mut caller: Caller<'_, State>,
    work: impl FnOnce(&mut State, &mut Source<'_>) -> Result<()>,
) -> Result<()> {
    let State {
        memory: Some(memory),
        may_leave: true,
        ..
    } = *caller.data()
    else {
        return Err(Trap::CannotLeaveComponent.into());
    };
    let (bytes, state) = memory.data_and_store_mut(&mut caller);
    work(state, &mut Source::new(bytes, HOSTCALL_BYTES))
}

/// An instance of a core module.
pub(super) struct Guest {
    inside: Inside,
    configure: Function<(u32, u32, u32, u32, u32, u32), u32>,
    queries: Option<Function<Batched, u32>>,
    responses: Option<Function<Batched, u32>>,
    events: Option<Function<(u32, u32, u32, u32), ()>>,
    /// Whether a call did not come back. Nothing but this keeps the next one out.
    trapped: bool,
}

/// Time, records and bytes.
type Batched = (u64, u32, u32, u32, u32);

impl Guest {
    /// # Errors
    ///
    /// Also if the module does not export what makes it a filter.
    pub(super) fn new(code: &Code, store: &mut Store<State>) -> Result<Guest> {
        let instance = code.0.instantiate(&mut *store)?;
        let memory = instance
            .get_memory(&mut *store, "memory")
            .ok_or_else(|| format_err!("there is no memory"))?;
        store.data_mut().memory = Some(memory);
        if let Ok(initialize) = instance.get_typed_func::<(), ()>(&mut *store, "_initialize") {
            enter(store, &initialize, ())?;
        }
        Ok(Guest {
            inside: Inside {
                memory,
                realloc: instance.get_typed_func(&mut *store, "cabi_realloc")?,
            },
            configure: Function::find(&instance, store, "configure@0.1.0#configure")?
                .ok_or_else(|| format_err!("there is no configure"))?,
            queries: Function::find(&instance, store, "queries@0.1.0#on-queries")?,
            responses: Function::find(&instance, store, "responses@0.1.0#on-responses")?,
            events: Function::find(&instance, store, "events@0.1.0#on-events")?,
            trapped: false,
        })
    }

    /// Whether the query, response and event phases are exported.
    pub(super) fn phases(&self) -> [bool; 3] {
        [
            self.queries.is_some(),
            self.responses.is_some(),
            self.events.is_some(),
        ]
    }

    pub(super) fn configure(
        &mut self,
        store: &mut Store<State>,
        setup: &types::Setup,
    ) -> Result<Result<types::Manifest, Vec<types::ConfigError>>> {
        self.once(|guest| {
            let mut heap = Allocating {
                inside: &guest.inside,
                store,
            };
            let name = heap.put(setup.name.as_bytes(), 1)?;
            let (config, nodes) = lower_list(&setup.config, &mut heap)?;
            let (zones, count) = lower_list(&setup.zones, &mut heap)?;
            let params = (name, setup.name.len() as u32, config, nodes, zones, count);
            guest.inside.call(store, &guest.configure, params)
        })
    }

    pub(super) fn queries(
        &mut self,
        store: &mut Store<State>,
        now: u64,
        batch: &[types::Query],
        bytes: &[u8],
    ) -> Result<Vec<types::Verdict>> {
        self.once(|guest| {
            guest
                .inside
                .verdicts(store, guest.queries.as_ref(), now, batch, bytes)
        })
    }

    pub(super) fn responses(
        &mut self,
        store: &mut Store<State>,
        now: u64,
        batch: &[types::Response],
        bytes: &[u8],
    ) -> Result<Vec<types::ResponseVerdict>> {
        self.once(|guest| {
            guest
                .inside
                .verdicts(store, guest.responses.as_ref(), now, batch, bytes)
        })
    }

    pub(super) fn events(
        &mut self,
        store: &mut Store<State>,
        batch: &[types::Event],
        bytes: &[u8],
    ) -> Result<()> {
        self.once(|guest| {
            let Some(function) = &guest.events else {
                return Ok(());
            };
            let (batch, count) = guest.inside.put_records(store, batch)?;
            let (start, size) = guest.inside.put_bytes(store, bytes)?;
            enter(store, &function.call, (batch, count, start, size))?;
            function.clean_up(store, ())
        })
    }

    /// Makes a call, unless one has failed before.
    #[inline(always)]
    fn once<T>(&mut self, call: impl FnOnce(&Guest) -> Result<T>) -> Result<T> {
        if mem::replace(&mut self.trapped, true) {
            return Err(Trap::CannotEnterComponent.into());
        }
        let result = call(self)?;
        self.trapped = false;
        Ok(result)
    }
}

/// Runs a function that may call the host.
fn enter<P: WasmParams, R: WasmResults>(
    store: &mut Store<State>,
    function: &TypedFunc<P, R>,
    params: P,
) -> Result<R> {
    store.data_mut().may_leave = true;
    let result = function.call(&mut *store, params);
    store.data_mut().may_leave = false;
    result
}

/// An exported function, and the one to be called when its result has been read.
struct Function<P, R> {
    call: TypedFunc<P, R>,
    post_return: Option<TypedFunc<R, ()>>,
}

impl<P: WasmParams, R: WasmParams + WasmResults> Function<P, R> {
    fn find(instance: &Instance, store: &mut Store<State>, name: &str) -> Result<Option<Function<P, R>>> {
        let Some(call) = instance.get_func(&mut *store, &format!("dnsweir:filter/{name}")) else {
            return Ok(None);
        };
        let post_return = instance.get_func(&mut *store, &format!("cabi_post_dnsweir:filter/{name}"));
        Ok(Some(Function {
            call: call.typed(&*store)?,
            post_return: post_return.map(|function| function.typed(&*store)).transpose()?,
        }))
    }

    fn clean_up(&self, store: &mut Store<State>, result: R) -> Result<()> {
        match &self.post_return {
            Some(function) => function.call(store, result),
            None => Ok(()),
        }
    }
}

/// A guest's memory, and the function by which the guest hands out parts of it.
struct Inside {
    memory: Memory,
    realloc: TypedFunc<(u32, u32, u32, u32), u32>,
}

impl Inside {
    /// Calls a function and reads what it returns an address of.
    #[inline(always)]
    fn call<P: WasmParams, T: Lift>(
        &self,
        store: &mut Store<State>,
        function: &Function<P, u32>,
        params: P,
    ) -> Result<T> {
        let at = enter(store, &function.call, params)?;
        let result = Source::new(self.memory.data(&*store), HOSTCALL_BYTES).result(at)?;
        function.clean_up(store, at)?;
        Ok(result)
    }

    fn verdicts<R: Flat, V: Lift>(
        &self,
        store: &mut Store<State>,
        function: Option<&Function<Batched, u32>>,
        now: u64,
        batch: &[R],
        bytes: &[u8],
    ) -> Result<Vec<V>> {
        let Some(function) = function else {
            return Ok(Vec::new());
        };
        let (batch, count) = self.put_records(store, batch)?;
        let (start, size) = self.put_bytes(store, bytes)?;
        self.call(store, function, (now, batch, count, start, size))
    }

    /// Writes records, and says where they are and how many.
    fn put_records<R: Flat>(&self, store: &mut Store<State>, records: &[R]) -> Result<(u32, u32)> {
        let (at, room) = self.room(store, records.len() * R::SIZE, R::ALIGN)?;
        for (record, at) in records.iter().zip(room.chunks_exact_mut(R::SIZE)) {
            record.write(at);
        }
        Ok((at, records.len() as u32))
    }

    /// Writes bytes, and says where they are and how many.
    fn put_bytes(&self, store: &mut Store<State>, bytes: &[u8]) -> Result<(u32, u32)> {
        let (at, room) = self.room(store, bytes.len(), 1)?;
        room.copy_from_slice(bytes);
        Ok((at, bytes.len() as u32))
    }

    /// Has the guest allocate.
    fn room<'a>(
        &self,
        store: &'a mut Store<State>,
        size: usize,
        align: usize,
    ) -> Result<(u32, &'a mut [u8])> {
        let at = self
            .realloc
            .call(&mut *store, (0, 0, align as u32, u32::try_from(size)?))?;
        let start = at as usize;
        if !start.is_multiple_of(align) {
            bail!("cabi_realloc returned an address that is not aligned");
        }
        let end = start.checked_add(size);
        match end.and_then(|end| self.memory.data_mut(store).get_mut(start..end)) {
            Some(room) => Ok((at, room)),
            None => bail!("cabi_realloc returned room outside memory"),
        }
    }
}

struct Allocating<'a> {
    inside: &'a Inside,
    store: &'a mut Store<State>,
}

impl Heap for Allocating<'_> {
    fn put(&mut self, bytes: &[u8], align: usize) -> Result<u32> {
        let (at, room) = self.inside.room(self.store, bytes.len(), align)?;
        room.copy_from_slice(bytes);
        Ok(at)
    }
}
