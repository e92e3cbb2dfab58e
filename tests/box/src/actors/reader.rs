//! Reads the metrics at the admin address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::net::{Net, News, Number};
use crate::report::Report;

/// A reader, with its unfinished requests.
pub struct Reader {
    ip: IpAddr,
    server: SocketAddr,
    port: u16,
    reading: BTreeMap<Number, (String, Vec<u8>)>,
}

impl Reader {
    pub fn new(ip: IpAddr, server: SocketAddr) -> Reader {
        Reader {
            ip,
            server,
            port: 20_000,
            reading: BTreeMap::new(),
        }
    }

    /// Starts to read the metrics, to be stored under a name.
    pub fn read(&mut self, actor: usize, name: &str, net: &mut Net) {
        self.port += 1;
        let socket = net.dial(actor, SocketAddr::new(self.ip, self.port), self.server);
        self.reading.insert(socket, (name.to_owned(), Vec::new()));
    }

    pub fn told(&mut self, news: News, net: &mut Net, report: &mut Report) {
        match news {
            News::Connected { socket, .. } => {
                let request = b"GET /metrics HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n";
                let _ = net.write(socket, request);
            }
            News::Came { socket, octets, .. } => {
                if let Some((_, read)) = self.reading.get_mut(&socket) {
                    read.extend(octets);
                }
            }
            News::Ended { socket, .. } => {
                if let Some((name, read)) = self.reading.remove(&socket) {
                    // If it is unknown which address is served, several readers try.
                    if !read.is_empty() {
                        report.text(&name, &read);
                    }
                    net.close(socket);
                }
            }
            News::Datagram { .. } | News::Accepted { .. } | News::Wakes { .. } => {}
        }
    }
}
