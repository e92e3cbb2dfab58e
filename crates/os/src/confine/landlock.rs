//! Landlock restricts a process's paths and network for the rest of its life
//! (<https://docs.kernel.org/userspace-api/landlock.html>). It requires no privileges and cannot be undone.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION: libc::c_uint = 1;
/// `LANDLOCK_RULE_PATH_BENEATH`.
const PATH_BENEATH: libc::c_int = 1;

/// `LANDLOCK_ACCESS_FS_EXECUTE`, `…_WRITE_FILE`, `…_READ_FILE` and `…_READ_DIR`.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_FOLDER: u64 = 1 << 3;

/// `LANDLOCK_ACCESS_FS_TRUNCATE`, since version 3.
const TRUNCATE: u64 = 1 << 14;

/// `LANDLOCK_ACCESS_FS_IOCTL_DEV`: neither reading nor writing.
const DEVICES: u64 = 1 << 15;

/// `LANDLOCK_ACCESS_FS_REMOVE_DIR`, `…_REMOVE_FILE`, `…_MAKE_DIR`, `…_MAKE_REG` and `…_MAKE_SOCK`: creating
/// and removing names.
const NAMES: u64 = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9;

/// The number of file system rights in each version, from the first. Unknown ones would be refused.
const FILE_RIGHTS: [u32; 5] = [13, 14, 15, 15, 16];

/// The versions that added TCP, and abstract sockets and signals.
const TCP: u32 = 4;
const SCOPES: u32 = 6;

/// `LANDLOCK_ACCESS_NET_BIND_TCP` and `…_CONNECT_TCP`.
const BIND: u64 = 1;
const CONNECT: u64 = 1 << 1;

/// `LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET` and `…_SIGNAL`: blocks those to less restricted processes.
const OUTSIDE: u64 = 0b11;

/// `struct landlock_ruleset_attr`. Older kernels accept a longer one if the rest is zero.
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

/// The version of the interface; `None` if this kernel lacks it or has it disabled.
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

/// Restricts this thread and the threads it will start: reading only at and below `readable`, where missing
/// paths are skipped; no TCP unless `network`; no access to other processes. Does nothing without Landlock.
///
/// # Errors
/// If the kernel has Landlock but refuses.
pub(crate) fn restrict(readable: &[&Path], network: bool) -> io::Result<()> {
    let Some(version) = version() else { return Ok(()) };
    let has_rule = version >= TCP && !network;
    let ruleset = Ruleset {
        files: known(version),
        network: if has_rule { BIND | CONNECT } else { 0 },
        scopes: if version >= SCOPES { OUTSIDE } else { 0 },
    };
    let beneath = readable.iter().map(|path| (*path, READ_FILE | READ_FOLDER));
    hold(&ruleset, beneath)
}

/// Restricts this thread and the threads it will start: they may write only at and below `written`, and
/// execute only at and below `executed`; missing paths are skipped. Reading stays open. Does nothing without
/// Landlock.
///
/// # Errors
/// If the kernel has Landlock but refuses.
pub fn keep_to(written: &[&Path], executed: &[&Path]) -> io::Result<()> {
    let Some(version) = version() else { return Ok(()) };
    let ruleset = Ruleset {
        files: known(version) & !(READ_FILE | READ_FOLDER | DEVICES),
        ..Ruleset::default()
    };
    let written = written.iter().map(|path| (*path, WRITE_FILE | TRUNCATE | NAMES));
    let executed = executed.iter().map(|path| (*path, EXECUTE));
    hold(&ruleset, written.chain(executed))
}

/// The file system rights that a version knows.
fn known(version: u32) -> u64 {
    let rights = FILE_RIGHTS[(version as usize).min(FILE_RIGHTS.len()) - 1];
    (1 << rights) - 1
}

/// Applies a ruleset to this thread, with exceptions that give rights at and below a path.
fn hold<'a>(rules: &Ruleset, beneath: impl Iterator<Item = (&'a Path, u64)>) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the structure has, which outlives the call.
    let ruleset = descriptor(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const *rules,
            size_of::<Ruleset>(),
            0,
        )
    })?;
    for (path, rights) in beneath {
        let Ok(parent) = held(path) else { continue };
        let is_folder = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        let of_file = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;
        // The kernel refuses unknown rights, rights not in the ruleset, and folder rights on a file.
        let rights = rights & rules.files & if is_folder { u64::MAX } else { of_file };
        if rights == 0 {
            continue;
        }
        let beneath = Beneath {
            rights,
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
    // SAFETY: takes numbers and no memory. The next call would need a privilege without it.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
    // SAFETY: takes a descriptor and a number.
    done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
}

/// Opens a path, following links, only to refer to it.
fn held(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: reads a zero-terminated string that outlives the call.
    descriptor(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) }.into())
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(result) {
        // SAFETY: the descriptor is new, and nothing else owns it.
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

    /// Runs in a new thread, so that only that one is restricted.
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
    fn nothing_is_written_and_executed_but_what_is_named() {
        if version().is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["ours", "others"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), name).unwrap();
            fs::copy("/bin/true", at(name).join("true")).unwrap();
        }
        let path = folder.path().to_owned();
        let work = move || {
            let at = |name: &str| path.join(name);
            let ours = at("ours");
            let system = ["/lib", "/lib64", "/usr"].map(Path::new);
            keep_to(&[&ours, &at("others/missing")], &system).unwrap();
            let write = |name: &str| fs::write(at(name), "new").is_ok();
            let run = |program: &Path| std::process::Command::new(program).status().is_ok();
            let written = ["ours/file", "ours/new", "others/file", "others/new"].map(write);
            let renamed = fs::rename(at("ours/new"), at("ours/newer")).is_ok();
            let moved = fs::rename(at("ours/newer"), at("others/newer")).is_ok();
            let bound = ["ours/socket", "others/socket"]
                .map(|name| std::os::unix::net::UnixListener::bind(at(name)).is_ok());
            let removed = ["ours/file", "others/file"].map(|name| fs::remove_file(at(name)).is_ok());
            let ran = [Path::new("/usr/bin/env"), &at("ours/true"), &at("others/true")].map(run);
            let read = fs::read(at("others/file")).is_ok();
            (written, renamed, moved, bound, removed, ran, read)
        };
        let (written, renamed, moved, bound, removed, ran, read) = std::thread::spawn(work).join().unwrap();
        assert_eq!(written, [true, true, false, false]);
        assert_eq!((renamed, moved), (true, false));
        assert_eq!((bound, removed), ([true, false], [true, false]));
        assert_eq!(ran, [true, false, false], "what it may write it may not execute");
        assert!(read, "reading stays open");
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
