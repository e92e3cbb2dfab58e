//! Threads: creation, joining and exit.

use std::cell::RefCell;
use std::mem::transmute;

use libc::{c_int, c_void, pthread_attr_t, pthread_t};

use super::{fails, seen};
use crate::faults::Kind;
use crate::kernel::pass;
use crate::schedule::{NEVER, Thread, Waits, enter, leave, this, wait, world};

type Main = extern "C" fn(*mut c_void) -> *mut c_void;
type Destroys = unsafe extern "C" fn(*mut c_void);

/// The start parameters of a thread of the world.
struct Begins {
    main: Main,
    argument: *mut c_void,
    index: usize,
    gate: &'static std::sync::atomic::AtomicU32,
}

thread_local! {
    /// Destructors to run when this thread ends. Leaked by threads that end in another way.
    static DESTROYED: RefCell<std::mem::ManuallyDrop<Vec<(Destroys, *mut c_void)>>> =
        const { RefCell::new(std::mem::ManuallyDrop::new(Vec::new())) };
}

/// Returns the C library's own symbol of that name.
pub fn next(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a lookup by a name that ends with zero.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has no {name:?}");
    found
}

extern "C" fn begins(argument: *mut c_void) -> *mut c_void {
    // SAFETY: a box that `pthread_create` below made for this thread alone.
    let begins = unsafe { Box::from_raw(argument.cast::<Begins>()) };
    enter(begins.index, begins.gate);
    let result = (begins.main)(begins.argument);
    // Thread-local destructors belong to the world, too.
    while let Some((destroys, object)) = DESTROYED.with_borrow_mut(|all| all.pop()) {
        // SAFETY: registered for this thread and called once.
        unsafe { destroys(object) };
    }
    leave();
    result
}

/// # Safety
/// As posix_spawnp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    process: *mut libc::pid_t,
    program: *const libc::c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    arguments: *const *mut libc::c_char,
    environment: *const *mut libc::c_char,
) -> c_int {
    type Spawn = unsafe extern "C" fn(
        *mut libc::pid_t,
        *const libc::c_char,
        *const libc::posix_spawn_file_actions_t,
        *const libc::posix_spawnattr_t,
        *const *mut libc::c_char,
        *const *mut libc::c_char,
    ) -> c_int;
    // SAFETY: the caller guarantees that it ends with zero.
    let name = unsafe { std::ffi::CStr::from_ptr(program) }.to_string_lossy();
    if fails(Kind::Child, &name) {
        return libc::EAGAIN;
    }
    // SAFETY: the C library's own has this type; its arguments are upheld by the caller.
    unsafe {
        let spawn: Spawn = transmute(next(c"posix_spawnp"));
        spawn(process, program, actions, attributes, arguments, environment)
    }
}

/// # Safety
/// As fork(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    if fails(Kind::Child, "fork") {
        return -1;
    }
    // SAFETY: the C library's own has this type.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> libc::pid_t>(next(c"fork"))() }
}

/// # Safety
/// As pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    main: Main,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Main, *mut c_void) -> c_int;
    // SAFETY: the C library's own has this type.
    let create: Create = unsafe { transmute(next(c"pthread_create")) };
    if fails(Kind::Thread, "") {
        return libc::EAGAIN;
    }
    let Some(world) = world() else {
        // SAFETY: upheld by the caller.
        return unsafe { create(thread, attributes, main, argument) };
    };
    let free = world
        .threads
        .iter()
        .position(|thread| thread.waits == Waits::Ended && thread.number == 0);
    let index = free.unwrap_or(world.threads.len());
    match free {
        Some(index) => world.threads[index] = Thread::new(),
        None => world.threads.push(Thread::new()),
    }
    let gate = world.threads[index].gate;
    let begin = Box::into_raw(Box::new(Begins {
        main,
        argument,
        index,
        gate,
    }));
    // SAFETY: upheld by the caller; `begins` takes the box.
    let result = unsafe { create(thread, attributes, begins, begin.cast()) };
    if result == 0 {
        // SAFETY: written by the call.
        world.threads[index].number = unsafe { *thread };
        seen();
    } else {
        world.threads[index].waits = Waits::Ended;
    }
    result
}

/// # Safety
/// As pthread_join(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    if let Some(world) = world() {
        let other = world.threads.iter().position(|other| other.number == thread);
        if let Some(other) = other {
            wait(Waits::Join(other), NEVER);
            if let Some(world) = crate::schedule::world() {
                world.threads[other].number = 0;
            }
        }
    }
    type Join = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;
    // SAFETY: the C library's own has this type.
    let join: Join = unsafe { transmute(next(c"pthread_join")) };
    // SAFETY: upheld by the caller.
    unsafe { join(thread, result) }
}

/// # Safety
/// As pthread_detach(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(thread: pthread_t) -> c_int {
    if let Some(other) =
        world().and_then(|world| world.threads.iter_mut().find(|other| other.number == thread))
    {
        other.number = 0;
    }
    type Detach = unsafe extern "C" fn(pthread_t) -> c_int;
    // SAFETY: the C library's own has this type.
    let detach: Detach = unsafe { transmute(next(c"pthread_detach")) };
    // SAFETY: upheld by the caller.
    unsafe { detach(thread) }
}

/// # Safety
/// As the C library's, which compilers call to register thread-local destructors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    destroys: Destroys,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    // The C library runs those of the first thread when the process ends.
    if this().is_some_and(|index| index > 0) {
        DESTROYED.with_borrow_mut(|all| all.push((destroys, object)));
        return 0;
    }
    type Register = unsafe extern "C" fn(Destroys, *mut c_void, *mut c_void) -> c_int;
    // SAFETY: the C library's own has this type.
    let register: Register = unsafe { transmute(next(c"__cxa_thread_atexit_impl")) };
    // SAFETY: upheld by the caller.
    unsafe { register(destroys, object, library) }
}

#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    match world() {
        Some(_) => wait(Waits::No, NEVER),
        None => {
            pass!(libc::SYS_sched_yield);
        }
    }
    0
}

/// # Safety
/// As _exit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    if let Some(world) = world() {
        world.write_report("exit");
    }
    loop {
        pass!(libc::SYS_exit_group, status);
    }
}
