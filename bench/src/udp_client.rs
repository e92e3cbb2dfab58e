//! The load generator over UDP.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use crate::datagrams::{BATCH, Datagrams, enlarge_buffer};
use crate::drive::{Client, Clock, Tally};
use crate::pending::Pending;
use crate::wire::Question;

/// Sockets that ask one server.
pub struct UdpClient {
    sockets: Vec<(UdpSocket, Pending)>,
    /// The index of the socket to send from.
    turn: usize,
    send: Datagrams,
    receive: Datagrams,
    server: SocketAddrV4,
    /// Addresses to send from, in turn; without any, sockets are connected.
    addresses: Vec<Ipv4Addr>,
    next_address: usize,
}

impl UdpClient {
    /// Opens `sockets` sockets that send from `addresses` in turn; without addresses, each from its own.
    pub fn new(server: SocketAddrV4, addresses: Vec<Ipv4Addr>, sockets: usize) -> io::Result<UdpClient> {
        let open = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            if addresses.is_empty() {
                socket.connect(server)?;
            }
            enlarge_buffer(&socket)?;
            Ok((socket, Pending::new()))
        };
        let sockets = (0..sockets).map(|_| open()).collect::<io::Result<_>>()?;
        let send = Datagrams::new();
        Ok(UdpClient {
            sockets,
            turn: 0,
            send: if addresses.is_empty() {
                send.without_address()
            } else {
                send
            },
            receive: Datagrams::new(),
            server,
            addresses,
            next_address: 0,
        })
    }
}

impl UdpClient {
    /// Sleeps until an answer arrives, at most for this many nanoseconds.
    pub fn sleep(&self, nanoseconds: u64) {
        let readable = |(socket, _): &(UdpSocket, Pending)| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut sockets: Vec<libc::pollfd> = self.sockets.iter().map(readable).collect();
        let time = libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the array has as many entries as passed, and it and the time are ours until the call
        // returns; no signal mask. Errors do not matter: the caller looks for answers anyway.
        unsafe {
            libc::ppoll(
                sockets.as_mut_ptr(),
                sockets.len() as libc::nfds_t,
                &time,
                std::ptr::null(),
            )
        };
    }
}

impl Client for UdpClient {
    fn ask(
        &mut self,
        count: usize,
        due: u64,
        next: &mut dyn FnMut() -> Question,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            // Half a batch per socket, so that a large number comes from several. An even number, so that the
            // two questions of a pair come from one.
            let now = left.min(BATCH / 2);
            self.turn = (self.turn + 1) % self.sockets.len();
            let (socket, pending) = &mut self.sockets[self.turn];
            for index in 0..now {
                let question = next();
                let id = pending.add(due, question, tally);
                self.send.edit(index, |buffer, _| question.write(id, buffer));
                if !self.addresses.is_empty() {
                    self.next_address = (self.next_address + 1) % self.addresses.len();
                    let from = self.addresses[self.next_address];
                    self.send.route(index, from, self.server);
                }
            }
            self.send.send(socket.as_raw_fd(), now)?;
            tally.sent += now as u64;
            left -= now;
        }
        Ok(())
    }

    fn collect(&mut self, clock: &mut dyn Clock, tally: &mut Tally) -> io::Result<usize> {
        let mut taken = 0;
        for (socket, pending) in &mut self.sockets {
            if pending.count() == 0 {
                continue;
            }
            let received = self.receive.receive(socket.as_raw_fd(), libc::MSG_DONTWAIT)?;
            if received == 0 {
                continue;
            }
            let now = clock.now();
            for index in 0..received {
                pending.answer(self.receive.received(index), now, tally);
            }
            taken += received;
        }
        Ok(taken)
    }

    fn abandon(&mut self, before: u64, tally: &mut Tally) {
        for (_, pending) in &mut self.sockets {
            pending.abandon(before, tally);
        }
    }

    fn waiting(&self) -> usize {
        self.sockets.iter().map(|(_, pending)| pending.count()).sum()
    }
}
