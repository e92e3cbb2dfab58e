//! Datagrams: sending, delivery and receiving.

use std::net::SocketAddr;

use super::{BUFFER, Datagram, Errno, Event, Kind, Net, News, Number};

/// What a datagram takes of a socket's buffer besides its bytes.
const OVERHEAD: usize = 256;

impl Net {
    /// Connects a datagram socket, or disconnects it.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn point(&mut self, number: Number, peer: Option<SocketAddr>) -> Result<(), Errno> {
        let local = match peer {
            Some(peer) => Some(self.settle(number, peer)?),
            None => None,
        };
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        // Without a peer (AF_UNSPEC), the port that was chosen for it goes, too.
        (socket.peer, socket.local) = (peer, local);
        Ok(())
    }

    /// Sends a datagram, from the given source address if there is one.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub fn send(
        &mut self,
        number: Number,
        to: Option<SocketAddr>,
        from: Option<std::net::IpAddr>,
        octets: Vec<u8>,
    ) -> Result<usize, Errno> {
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        if socket.error != 0 {
            return Err(std::mem::take(&mut socket.error));
        }
        let to = to.or(socket.peer).ok_or(libc::EDESTADDRREQ)?;
        let mut local = self.settle(number, to)?;
        if let Some(from) = from {
            local.set_ip(from);
        }
        let (length, way) = (octets.len(), self.way());
        if length > 65_507 {
            return Err(libc::EMSGSIZE);
        }
        self.after(
            way,
            Event::Arrives {
                sender: number,
                from: local,
                to,
                octets,
            },
        );
        Ok(length)
    }

    /// Sends a datagram of an actor, from any address.
    pub fn inject(&mut self, nanoseconds: u64, from: SocketAddr, to: SocketAddr, octets: Vec<u8>) {
        let way = self.way();
        self.after(
            nanoseconds + way,
            Event::Arrives {
                sender: 0,
                from,
                to,
                octets,
            },
        );
    }

    pub(super) fn arrive(&mut self, sender: Number, datagram: Datagram) -> Option<News> {
        let Some(number) = self.taker(true, datagram.from, datagram.to) else {
            if let Some(&actor) = self.outside.get(&datagram.to.ip()) {
                return Some(News::Datagram { actor, datagram });
            }
            // No receiver: ICMP reports that to a connected socket.
            if let Some(socket) = self
                .socket(sender)
                .filter(|socket| socket.peer == Some(datagram.to))
            {
                socket.error = libc::ECONNREFUSED;
                self.edges.push(sender);
            }
            return None;
        };
        let socket = self.socket(number)?;
        if let Kind::Datagrams { waiting, octets } = &mut socket.kind
            && *octets + datagram.octets.len() + OVERHEAD <= BUFFER
        {
            *octets += datagram.octets.len() + OVERHEAD;
            waiting.push_back(datagram);
            self.edges.push(number);
        }
        None
    }

    /// Rejects a datagram for an actor: its sender gets an ICMP error.
    pub fn refuse(&mut self, from: SocketAddr, to: SocketAddr) {
        let sender = self
            .sockets
            .iter_mut()
            .find(|(_, socket)| socket.local == Some(from) && socket.peer == Some(to) && !socket.is_stream());
        if let Some((&number, socket)) = sender {
            socket.error = libc::ECONNREFUSED;
            self.edges.push(number);
        }
    }

    /// Takes the oldest datagram, or peeks at it.
    ///
    /// # Errors
    /// Those of recvmsg(2).
    pub fn receive(&mut self, number: Number, peek: bool) -> Result<Datagram, Errno> {
        let socket = self.socket(number).ok_or(libc::EBADF)?;
        if socket.error != 0 {
            return Err(std::mem::take(&mut socket.error));
        }
        let Kind::Datagrams { waiting, octets } = &mut socket.kind else {
            return Err(libc::EINVAL);
        };
        if peek && let Some(first) = waiting.front() {
            return Ok(Datagram {
                from: first.from,
                to: first.to,
                octets: first.octets.clone(),
            });
        }
        let first = waiting.pop_front().ok_or(libc::EAGAIN)?;
        *octets -= first.octets.len() + OVERHEAD;
        Ok(first)
    }
}
