//! Landlock: which paths a process may open, and what of the network it may use, for the rest of its life
//! (<https://docs.kernel.org/userspace-api/landlock.html>). Nobody needs a right for it, and nothing gives back what it takes.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION: libc::c_uint = 1;
/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: libc::c_int = 1;

/// `LANDLOCK_ACCESS_FS_READ_FILE` and `…_READ_DIR`.
const READ_FILE: u64 = 1 << 2;
const READ_FOLDER: u64 = 1 << 3;

/// How many rights of file systems each version of the interface knows, from the first on. An unknown one would be refused.
const FILE_RIGHTS: [u32; 5] = [13, 14, 15, 15, 16];

/// The version that restricts TCP, and the one that restricts abstract sockets and signals.
const TCP: u32 = 4;
const SCOPES: u32 = 6;

/// `LANDLOCK_ACCESS_NET_BIND_TCP` and `…_CONNECT_TCP`.
const BIND: u64 = 1;
const CONNECT: u64 = 1 << 1;

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET` and `…_SIGNAL`: to processes that are not as restricted.
const OUTSIDE: u64 = 0b11;

/// `struct landlock_ruleset_attr`. Kernels take a longer one than they know if the rest is zero.
#[repr(C)]
#[derive(Default)]
struct Ruleset {
    files: u64,
    network: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    rights: u64,
    parent: libc::c_int,
}

/// The version of the interface; none: this kernel has it not, or not switched on.
pub fn version() -> Option<u32> {
    // SAFETY: with this flag, the kernel reads no memory and returns a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<Ruleset>(),
            0_usize,
            VERSION,
        )
    };
    u32::try_from(version).ok().filter(|&version| version > 0)
}

/// Leaves this thread, and those that it will start, no path but to read what is at and below these, of which those that are not there are
/// left out; no TCP unless it has the `network`; and no way to other processes. Nothing happens where the kernel has no Landlock.
///
/// # Errors
/// When the kernel has it, and refuses.
pub fn restrict(readable: &[&Path], network: bool) -> io::Result<()> {
    let Some(version) = version() else { return Ok(()) };
    let rights = FILE_RIGHTS[(version as usize).min(FILE_RIGHTS.len()) - 1];
    let has_rule = version >= TCP && !network;
    let ruleset = Ruleset {
        files: (1 << rights) - 1,
        network: if has_rule { BIND | CONNECT } else { 0 },
        scopes: if version >= SCOPES { OUTSIDE } else { 0 },
    };
    // SAFETY: the kernel reads as many octets as the structure has, which outlives the call.
    let ruleset = descriptor(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size_of::<Ruleset>(),
            0,
        )
    })?;
    for path in readable {
        let Ok(parent) = held(path) else { continue };
        let is_folder = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let beneath = Beneath {
            rights: if is_folder {
                READ_FILE | READ_FOLDER
            } else {
                READ_FILE
            },
            parent: parent.as_raw_fd(),
        };
        // SAFETY: the kernel reads a rule of this type, which outlives the call, as do the two descriptors.
        done(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                PATH_BENEATH,
                &raw const beneath,
                0,
            )
        })?;
    }
    // SAFETY: takes numbers and no memory. Without it, the next one takes a right.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: takes a descriptor and a number.
    done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
}

/// What is at a path, behind links, to name it by and nothing else.
fn held(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: reads a string that ends in a zero and outlives the call.
    descriptor(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) }.into())
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(result) {
        // SAFETY: the kernel has just made it, and nobody else has it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn done(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// In a thread of its own, which alone is restricted.
    fn restricted<T: Send + 'static>(
        readable: &'static [&str],
        network: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let alone = move || {
            let paths: Vec<&Path> = readable.iter().map(Path::new).collect();
            restrict(&paths, network).unwrap();
            work()
        };
        std::thread::spawn(alone).join().unwrap()
    }

    #[test]
    fn no_path_is_left_but_those_to_read() {
        let Some(version) = version() else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        let look = {
            let file = file.clone();
            move || {
                (
                    fs::read(&file).is_ok(),
                    fs::write(&file, "other").is_ok(),
                    fs::read("/proc/self/comm").is_ok(),
                )
            }
        };
        assert_eq!(restricted(&[], false, look.clone()), (false, false, false));
        assert_eq!(
            restricted(&["/proc", "/not/there"], false, look),
            (false, false, true)
        );
        assert_eq!(fs::read(&file).unwrap(), b"text");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = move || TcpStream::connect(address).is_ok();
        assert!(restricted(&[], true, connect));
        assert_eq!(restricted(&[], false, connect), version < TCP);
    }
}
