//! Clients on plain sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use super::{Message, PATIENCE};

/// Returns a UDP socket for this server, of its address family.
pub fn socket(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).expect("a UDP socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // Connected: packets from other addresses are not seen, as in any resolver.
    socket.connect(server).expect("a connected UDP socket");
    socket
}

/// Sends bytes over UDP and returns the reply.
#[track_caller]
pub fn exchange(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let socket = socket(server);
    socket.send(query).expect("a sent query");
    receive(&socket)
}

/// Receives the next datagram.
#[track_caller]
pub fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_535];
    let length = socket
        .recv(&mut buffer)
        .unwrap_or_else(|error| panic!("no answer: {error}"));
    buffer.truncate(length);
    buffer
}

/// Asks over UDP. The answer must be a response to this very query.
#[track_caller]
pub fn ask(server: SocketAddr, query: &Message) -> Message {
    let wire = exchange(server, &query.encode());
    let answer = Message::decode(&wire).unwrap_or_else(|error| panic!("a broken answer to {query}: {error}"));
    check(query, answer)
}

/// Asks over UDP from this loopback address.
#[track_caller]
pub fn ask_from(client: IpAddr, server: SocketAddr, query: &Message) -> Message {
    let socket = UdpSocket::bind((client, 0)).expect("a UDP socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.connect(server).expect("a connected UDP socket");
    socket.send(&query.encode()).expect("a sent query");
    let answer = Message::decode(&receive(&socket))
        .unwrap_or_else(|error| panic!("a broken answer to {query}: {error}"));
    check(query, answer)
}

/// Checks what every response must have: the query's ID, opcode, RD and question in its case, QR, and OPT if
/// and only if the query had one (RFC 6891 section 6.1.1).
#[track_caller]
pub fn check(query: &Message, answer: Message) -> Message {
    assert_eq!(answer.id, query.id, "ID of {answer}");
    let copied = 0x7800 | super::flags::RD;
    assert_eq!(
        answer.header & copied,
        query.header & copied,
        "opcode and RD of {answer}"
    );
    assert!(answer.has(super::flags::QR), "QR of {answer}");
    assert!(!answer.has(super::flags::Z), "Z must be zero: {answer}");
    assert_eq!(answer.questions, query.questions, "question of {answer}");
    assert_eq!(answer.edns.is_some(), query.edns.is_some(), "OPT of {answer}");
    assert_eq!(answer.trailing, 0, "octets after {answer}");
    answer
}

/// Fails if these bytes get an answer over UDP. Does not wait for a timeout: the same socket then asks
/// something that the proxy answers by itself, and that answer must arrive first.
#[track_caller]
pub fn unanswered(server: SocketAddr, octets: &[u8]) {
    let socket = socket(server);
    socket.send(octets).expect("sent octets");
    let after = Message::query("after.test", "A").class(3);
    socket.send(&after.encode()).expect("a sent query");
    let answer = Message::decode(&receive(&socket)).expect("a whole message");
    assert_eq!(answer.id, after.id, "an answer where none was due: {answer}");
}

/// A TCP connection to the proxy.
pub struct Stream(TcpStream);

impl Stream {
    /// Connects.
    #[track_caller]
    pub fn connect(server: SocketAddr) -> Stream {
        let stream = TcpStream::connect_timeout(&server, PATIENCE).expect("a TCP connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Stream(stream)
    }

    /// Connects from this loopback address.
    #[track_caller]
    pub fn connect_from(client: IpAddr, server: SocketAddr) -> Stream {
        Stream(try_connect_from(client, server).expect("a TCP connection"))
    }

    /// Sends messages in one write, each after its length (RFC 1035 section 4.2.2).
    #[track_caller]
    pub fn send(&mut self, messages: &[&Message]) {
        let framed: Vec<u8> = messages
            .iter()
            .flat_map(|message| frame(&message.encode()))
            .collect();
        self.write(&framed);
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn write(&mut self, octets: &[u8]) {
        self.0.write_all(octets).expect("octets sent over TCP");
    }

    /// Ends the sending direction, and keeps reading.
    pub fn half_close(&mut self) {
        self.0
            .shutdown(std::net::Shutdown::Write)
            .expect("a half-closed connection");
    }

    /// Returns the next message, or `None` if the proxy has closed the connection.
    #[track_caller]
    pub fn receive(&mut self) -> Option<Message> {
        let wire = read_frame(&mut self.0)?;
        Some(Message::decode(&wire).unwrap_or_else(|error| panic!("a broken answer over TCP: {error}")))
    }

    /// Asks and waits for the answer.
    #[track_caller]
    pub fn ask(&mut self, query: &Message) -> Message {
        self.send(&[query]);
        let answer = self
            .receive()
            .unwrap_or_else(|| panic!("closed instead of an answer to {query}"));
        check(query, answer)
    }

    /// Returns the socket itself.
    pub fn socket(&self) -> &TcpStream {
        &self.0
    }
}

/// Connects from this address, if possible.
pub fn try_connect_from(client: IpAddr, server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(server), socket2::Type::STREAM, None)?;
    // Otherwise, ended connections would use up the address's ports.
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(client, 0).into())?;
    socket.connect_timeout(&server.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Puts the length in front of a message.
pub fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// Reads the next message of a TCP stream; `None` at its end.
#[track_caller]
pub fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            ) =>
        {
            return None;
        }
        Err(error) => panic!("no message over TCP: {error}"),
    }
    let mut wire = vec![0; usize::from(u16::from_be_bytes(length))];
    stream
        .read_exact(&mut wire)
        .expect("the rest of a message over TCP");
    Some(wire)
}
