//! How calls fail that the library of `tests/box` fails.

/// What a call of a kind fails with; none for a kind whose calls do less and do not fail.
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
