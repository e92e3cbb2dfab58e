//! Forbids system calls to a process for the rest of its life, with a seccomp filter.
//!
//! The calls listed here fail with EACCES; all others work: a compiler needs memory, threads and its open
//! files. A list of allowed calls would have to follow each version of the C library.

use std::io;

/// Calls that open or change anything by path, reach the network or another process, start a program, or make
/// the kernel do any of that in another way.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_utimensat,
    libc::SYS_chdir,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_mount_setattr,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_ioprio_set,
    libc::SYS_io_uring_setup,
    libc::SYS_io_setup,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_personality,
];

/// Older variants of these calls, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[libc::SYS_renameat];

/// The architecture that the kernel reports with each call (`AUDIT_ARCH_…`), and the first call number of
/// another ABI (x32).
#[cfg(target_arch = "x86_64")]
const PROCESSOR: (u32, u32) = (0xc000_003e, 0x4000_0000);
#[cfg(target_arch = "aarch64")]
const PROCESSOR: (u32, u32) = (0xc000_00b7, u32::MAX);

/// Offsets in `struct seccomp_data`: call number, architecture, and lower half of the first argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_NOT_BELOW: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;

/// Refuses these calls to this thread and the threads it will start.
///
/// # Errors
/// If the kernel has no seccomp filters, or refuses this one.
pub fn refuse() -> io::Result<()> {
    let mut program = program();
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: takes numbers and no memory. The next call would need a privilege without it.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the kernel reads a program of this length, which outlives the call.
    done(unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    })
}

fn program() -> Vec<libc::sock_filter> {
    let (processor, others) = PROCESSOR;
    let step = |code: u32, value: u32, yes: u8, no: u8| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let mut steps = vec![
        step(LOAD, ARCHITECTURE, 0, 0),
        step(IF_EQUAL, processor, 1, 0),
        step(RETURN, REFUSE, 0, 0),
        step(LOAD, NUMBER, 0, 0),
        step(IF_NOT_BELOW, others, 0, 1),
        step(RETURN, REFUSE, 0, 0),
    ];
    for &call in REFUSED.iter().chain(OLDER) {
        steps.push(step(IF_EQUAL, call as u32, 0, 1));
        steps.push(step(RETURN, REFUSE, 0, 0));
    }
    // The C library queries this process's own limits; other processes' are refused.
    steps.push(step(IF_EQUAL, libc::SYS_prlimit64 as u32, 0, 3));
    steps.push(step(LOAD, FIRST, 0, 0));
    steps.push(step(IF_EQUAL, 0, 1, 0));
    steps.push(step(RETURN, REFUSE, 0, 0));
    steps.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    steps
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpStream, UdpSocket};
    use std::process::Command;

    use super::*;

    /// Runs in a new thread, so that only that one is filtered.
    #[test]
    fn nothing_is_opened_connected_or_started() {
        let work = || {
            refuse().unwrap();
            let denied =
                |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            denied(fs::read("/proc/self/comm").unwrap_err());
            denied(fs::write("/tmp/dnsweir-nothing", "").unwrap_err());
            denied(fs::remove_file("/tmp/dnsweir-nothing").unwrap_err());
            denied(UdpSocket::bind("127.0.0.1:0").map(drop).unwrap_err());
            denied(TcpStream::connect("127.0.0.1:9").map(drop).unwrap_err());
            denied(Command::new("/bin/true").status().unwrap_err());
            // Memory and threads still work.
            let sum = std::thread::spawn(|| vec![1_u64; 1 << 20].iter().sum::<u64>());
            assert_eq!(sum.join().unwrap(), 1 << 20);
        };
        std::thread::spawn(work).join().unwrap();
    }
}
