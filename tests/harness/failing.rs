//! The errors with which the library of `tests/box` makes calls fail.

/// Returns the error of a kind of call; `None` for a kind whose calls transfer less and do not fail.
pub fn errno(kind: &str) -> Option<i32> {
    Some(match kind {
        "socket" | "accept" | "open" => libc::EMFILE,
        "bind" | "listen" => libc::EADDRINUSE,
        "connect" => libc::ENETUNREACH,
        "option" => libc::ENOPROTOOPT,
        "read" | "remove" => libc::EIO,
        "write" | "change" | "register" => libc::ENOSPC,
        "thread" | "child" => libc::EAGAIN,
        "netlink" => libc::ENOBUFS,
        _ => return None,
    })
}
