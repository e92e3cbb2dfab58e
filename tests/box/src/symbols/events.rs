//! Epoll, eventfd and poll.

use libc::{c_int, c_uint, epoll_event, nfds_t, pollfd};

use super::{fails, seen};
use crate::faults::Kind;
use crate::kernel::{fail, kernel, pass};
use crate::polls::Source;
use crate::schedule::{NEVER, Waits, wait, world};
use crate::world::{Thing, World};

const MILLISECOND: u64 = 1_000_000;

/// Returns when a wait of this many milliseconds ends; a negative one never does.
fn over(world: &World, milliseconds: c_int) -> u64 {
    match u64::try_from(milliseconds) {
        Ok(milliseconds) => world.net.now + milliseconds * MILLISECOND,
        Err(_) => NEVER,
    }
}

/// # Safety
/// As epoll_create1(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    if fails(Kind::Open, "epoll") {
        return -1;
    }
    let descriptor = pass!(libc::SYS_epoll_create1, flags) as c_int;
    if let Some(world) = world().filter(|_| descriptor >= 0) {
        let poll = world.polls.open(descriptor);
        world.name(descriptor, Thing::Poll(poll));
    }
    descriptor
}

/// # Safety
/// As epoll_ctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    instance: c_int,
    operation: c_int,
    descriptor: c_int,
    event: *mut epoll_event,
) -> c_int {
    let thing = world().and_then(|world| Some((world.thing(instance)?, world.thing(descriptor))));
    let (Some((Thing::Poll(poll), about)), Some(world)) = (thing, world()) else {
        return pass!(libc::SYS_epoll_ctl, instance, operation, descriptor, event) as c_int;
    };
    if operation == libc::EPOLL_CTL_ADD && fails(Kind::Register, "") {
        return -1;
    }
    let source = match about {
        Some(Thing::Socket(number)) => Source::Socket(number),
        Some(Thing::Counter(number)) => Source::Counter(number),
        Some(Thing::Poll(_)) | None => {
            let result = pass!(libc::SYS_epoll_ctl, instance, operation, descriptor, event) as c_int;
            if result == 0 {
                world.polls.kernels(poll, operation);
            }
            return result;
        }
    };
    let wanted = match event.is_null() {
        true => (0, 0),
        // SAFETY: upheld by the caller.
        false => unsafe { ((*event).events, (*event).u64) },
    };
    match world.polls.control(poll, operation, descriptor, source, wanted) {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

/// # Safety
/// As epoll_wait(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
) -> c_int {
    let thing = world().and_then(|world| world.thing(instance));
    let (Some(Thing::Poll(poll)), Some(world)) = (thing, world()) else {
        return pass!(libc::SYS_epoll_pwait, instance, events, most, milliseconds, 0, 8) as c_int;
    };
    if milliseconds == 0 {
        seen();
    } else {
        wait(Waits::Epoll(poll), over(world, milliseconds));
    }
    let Some(world) = crate::schedule::world() else {
        return 0;
    };
    let told = world.polls.tell(&world.net, poll, most.max(0) as usize);
    for (index, (bits, data)) in told.iter().enumerate() {
        // SAFETY: the caller guarantees room for `most`.
        unsafe {
            events.add(index).write(epoll_event {
                events: *bits,
                u64: *data,
            })
        };
    }
    told.len() as c_int
}

/// # Safety
/// As eventfd(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd(initial: c_uint, flags: c_int) -> c_int {
    if fails(Kind::Open, "eventfd") {
        return -1;
    }
    let descriptor = pass!(libc::SYS_eventfd2, initial, flags) as c_int;
    if let Some(world) = world().filter(|_| descriptor >= 0) {
        let counter = world.polls.count_from(u64::from(initial));
        world.name(descriptor, Thing::Counter(counter));
    }
    descriptor
}

/// # Safety
/// As poll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(list: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let Some(world) = world() else {
        return unbounded(list, count, milliseconds);
    };
    // SAFETY: upheld by the caller.
    let list = unsafe { std::slice::from_raw_parts_mut(list, count as usize) };
    let deadline = over(world, milliseconds);
    loop {
        let Some(world) = crate::schedule::world() else {
            return 0;
        };
        let ready = look(world, list);
        if ready > 0 || world.net.now >= deadline {
            return ready;
        }
        let kernels = list
            .iter()
            .filter(|one| world.thing(one.fd).is_none() && one.fd >= 0);
        let kernel: Vec<_> = kernels.map(|one| (one.fd, one.events)).collect();
        wait(
            Waits::Anything {
                seen: world.changes,
                kernel,
            },
            deadline,
        );
    }
}

/// Polls the descriptors without waiting; returns how many are ready.
fn look(world: &World, list: &mut [pollfd]) -> c_int {
    let mut ready = 0;
    for one in list {
        let source = match world.thing(one.fd) {
            Some(Thing::Socket(number)) => Source::Socket(number),
            Some(Thing::Counter(number)) => Source::Counter(number),
            Some(Thing::Poll(_)) | None => {
                let none = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                kernel!(libc::SYS_ppoll, &raw mut *one, 1, &raw const none, 0, 8);
                ready += c_int::from(one.revents != 0);
                continue;
            }
        };
        // The first bits of epoll are those of poll.
        let always = libc::POLLERR | libc::POLLHUP;
        one.revents = world.polls.ready(&world.net, source) as i16 & (one.events | always);
        ready += c_int::from(one.revents != 0);
    }
    ready
}

/// Calls poll(2) outside the world.
fn unbounded(list: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let time = libc::timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: (milliseconds % 1000 * 1_000_000).into(),
    };
    let time = if milliseconds < 0 {
        std::ptr::null()
    } else {
        &raw const time
    };
    pass!(libc::SYS_ppoll, list, count, time, 0, 8) as c_int
}
