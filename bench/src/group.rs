//! A group of sockets that share a port (SO_REUSEPORT), and how the kernel chooses the one that gets a
//! datagram.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::datagrams::enlarge_buffer;

/// How the kernel chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// A hash of both addresses and ports: the default.
    Hash,
    /// The number of the processor that handles the packet; by hash if there are fewer sockets.
    Cpu,
    /// A random number for each datagram.
    Random,
}

/// Binds this many sockets to one free port.
pub fn bind(ip: Ipv4Addr, count: usize) -> io::Result<(SocketAddrV4, Vec<UdpSocket>)> {
    let mut address = SocketAddrV4::new(ip, 0);
    let mut sockets = Vec::new();
    for _ in 0..count {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        let socket = UdpSocket::from(socket);
        enlarge_buffer(&socket)?;
        address.set_port(socket.local_addr()?.port());
        sockets.push(socket);
    }
    Ok((address, sockets))
}

/// Sets how the kernel chooses among the `count` sockets of the group of `socket`, numbered in the order in
/// which they were bound.
pub fn choose(socket: &impl AsRawFd, choice: Choice, count: u32) -> io::Result<()> {
    let instruction = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let load = |what: i32| {
        let code = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        instruction(code, (libc::SKF_AD_OFF + what) as u32)
    };
    let remainder = instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count);
    // Return the loaded value.
    let end = instruction(libc::BPF_RET | libc::BPF_A, 0);
    match choice {
        Choice::Hash => match set(socket, libc::SO_DETACH_REUSEPORT_BPF, &0) {
            // There was no program.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        },
        Choice::Cpu => attach(socket, &mut [load(libc::SKF_AD_CPU), end]),
        Choice::Random => attach(socket, &mut [load(libc::SKF_AD_RANDOM), remainder, end]),
    }
}

fn attach(socket: &impl AsRawFd, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    set(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Sets a socket option; `value` must have the option's type.
fn set<T>(socket: &impl AsRawFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value, and what a program points to, is borrowed until the call returns; its size is
    // passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::pin;

    const IP: Ipv4Addr = Ipv4Addr::new(127, 0, 92, 1);

    /// Returns how many of `sent` datagrams from one socket each socket of a group gets.
    fn shares(choice: Choice, sent: usize) -> Vec<usize> {
        let (address, sockets) = bind(IP, 2).unwrap();
        choose(&sockets[1], choice, 2).unwrap();
        let client = UdpSocket::bind((IP, 0)).unwrap();
        for _ in 0..sent {
            client.send_to(&[1], address).unwrap();
        }
        let taken = |socket: &UdpSocket| {
            socket.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| socket.recv(&mut [0; 8]).ok()).count()
        };
        sockets.iter().map(taken).collect()
    }

    #[test]
    fn one_client_gets_one_socket_by_hash_and_all_by_chance() {
        assert!(shares(Choice::Hash, 100).contains(&100));
        let shares = shares(Choice::Random, 100);
        assert_eq!(shares.iter().sum::<usize>(), 100);
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    }

    #[test]
    fn by_processor_it_is_the_sender_that_chooses() {
        pin(0).unwrap();
        assert_eq!(shares(Choice::Cpu, 100), [100, 0]);
    }
}
