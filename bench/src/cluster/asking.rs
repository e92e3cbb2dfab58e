//! A client that asks for the names of services, and checks whether an address is in the reply.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two queries: the most by which a time is too long.
const PAUSE: Duration = Duration::from_micros(300);

/// The client.
pub struct Client {
    socket: UdpSocket,
    id: u16,
}

impl Client {
    /// Creates a client of this server.
    pub fn of(server: SocketAddrV4) -> io::Result<Client> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Client { socket, id: 0 })
    }

    /// Returns the time from `since` until the name has this address.
    pub fn until(
        &mut self,
        name: &str,
        address: Ipv4Addr,
        since: Instant,
        patience: Duration,
    ) -> io::Result<Duration> {
        while since.elapsed() < patience {
            if self.has(name, address) {
                return Ok(since.elapsed());
            }
            thread::sleep(PAUSE);
        }
        Err(io::Error::other(format!(
            "{name} is not {address} within {patience:?}"
        )))
    }

    /// Whether it has. Errors count as no: the server may not listen yet.
    fn has(&mut self, name: &str, address: Ipv4Addr) -> bool {
        self.id = self.id.wrapping_add(1);
        let query = query(self.id, name);
        if self.socket.send(&query).is_err() {
            return false;
        }
        let mut reply = [0; 1500];
        while let Ok(length) = self.socket.recv(&mut reply) {
            if reply[..2] == self.id.to_be_bytes() {
                return has_address(&reply[..length], address);
            }
        }
        false
    }
}

fn query(id: u16, name: &str) -> Vec<u8> {
    let mut query = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    query
}

/// Whether the message has an A record with this address, in any section.
fn has_address(reply: &[u8], address: Ipv4Addr) -> bool {
    reply
        .windows(14)
        .any(|part| part[..4] == [0, 1, 0, 1] && part[8..10] == [0, 4] && part[10..] == address.octets())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_the_record_that_has_it() {
        let mut reply = query(7, "a.b");
        assert_eq!(reply.len(), 12 + 5 + 4);
        reply.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01");
        assert!(has_address(&reply, Ipv4Addr::new(10, 0, 0, 1)));
        assert!(!has_address(&reply, Ipv4Addr::new(10, 0, 0, 2)));
    }
}
