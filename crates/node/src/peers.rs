//! Other processes that manage the same node: a predecessor that ends, a successor that starts.
//!
//! Answers two questions only: may we change the network now ([`Turns`]), and does another process listen
//! where we did ([`others_listen`], [`others_answer`]), or is it bound to an address that we would remove
//! ([`others_hold`])? docs/decisions/0005-handover.md says why in this way.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::error::{Error, Kind};
use crate::netstat::{self, Protocol};

/// An abstract name: it belongs to the network namespace, as do the links and rules it stands for, and
/// disappears with the process that holds it, however that ends.
const NAME: &[u8] = b"dnsweir-node";

/// How long to wait for others. A turn never takes that long unless its holder is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before retrying when the holder cannot be waited for.
const AGAIN: Duration = Duration::from_millis(20);

/// The right to change the network. One process has it at a time, except as [`Turns::take`] says.
pub struct Turn {
    _held: Option<UnixListener>,
}

/// Acquires turns.
#[derive(Default)]
pub struct Turns {
    /// The last wait timed out: the next call does not wait again.
    given_up: bool,
}

impl Turns {
    /// Waits until no other process has the turn. The caller proceeds without it, and gets an error, when
    ///
    /// - [`PATIENCE`] has passed, since a stopped process would otherwise keep the node from being repaired;
    /// - the holder is neither root nor our own user, since any process can take an abstract name.
    pub async fn take(&mut self) -> (Turn, Option<Error>) {
        let patience = if self.given_up { Duration::ZERO } else { PATIENCE };
        // The first attempt is outside the timeout, which may be zero.
        let waited = match bind() {
            Ok(Some(held)) => Ok(Ok(held)),
            Ok(None) => timeout(patience, wait()).await,
            Err(error) => Ok(Err(error.to_string())),
        };
        self.given_up = waited.is_err();
        let why = match waited {
            Ok(Ok(held)) => return (Turn { _held: Some(held) }, None),
            Ok(Err(why)) => why,
            Err(_) => format!(
                "another process has held it for more than {} s",
                PATIENCE.as_secs()
            ),
        };
        let error = Error {
            kind: Kind::Turn,
            text: format!("changing the node's network without waiting for other processes: {why}"),
        };
        (Turn { _held: None }, Some(error))
    }
}

fn bind() -> io::Result<Option<UnixListener>> {
    match UnixListener::bind_addr(&UnixAddr::from_abstract_name(NAME)?) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the holder to let go.
async fn wait() -> Result<UnixListener, String> {
    loop {
        if let Some(held) = bind().map_err(|error| error.to_string())? {
            return Ok(held);
        }
        // The connection is never accepted. It breaks when the holder lets go, which ends the read.
        match connect(NAME).await {
            Ok(mut holder) => {
                if let Some(stranger) = stranger(&holder).map_err(|error| error.to_string())? {
                    return Err(format!(
                        "it is held by user {stranger}, who is neither root nor the user of this process"
                    ));
                }
                let _ = holder.read(&mut [0]).await;
            }
            // The holder has just let go, or too many processes are waiting already.
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// Connects to an abstract socket name.
pub(super) async fn connect(name: &[u8]) -> io::Result<UnixStream> {
    let name = [b"\0", name].concat();
    UnixStream::connect(std::path::Path::new(std::ffi::OsStr::from_bytes(&name))).await
}

/// The peer's user, if it is neither root nor ours: any process can take an abstract name, or connect to one.
pub(super) fn stranger(stream: &UnixStream) -> io::Result<Option<u32>> {
    let user = stream.peer_cred()?.uid();
    Ok((user != 0 && user != netstat::own_user()).then_some(user))
}

/// The processes that listened on an address over TCP before we did.
pub struct Predecessors {
    address: SocketAddr,
    /// Inodes of their sockets.
    inodes: HashSet<u64>,
}

impl Predecessors {
    /// Records them. Call this before listening on the address.
    pub fn of(address: SocketAddr) -> Predecessors {
        Predecessors {
            address,
            inodes: tcp_listeners(address),
        }
    }

    /// The address they listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether another process listens there since then: a successor, which answers for both of us.
    pub fn have_been_followed(&self) -> bool {
        let now = tcp_listeners(self.address);
        let mut unknown = now.difference(&self.inodes).peekable();
        unknown.peek().is_some() && {
            let own = netstat::own_sockets();
            unknown.any(|inode| !own.contains(inode))
        }
    }
}

/// The inodes of an address's listeners.
fn tcp_listeners(address: SocketAddr) -> HashSet<u64> {
    let bound = netstat::bound(Protocol::Tcp).into_iter();
    bound
        .filter(|one| one.is_at(address))
        .map(|one| one.inode)
        .collect()
}

/// The addresses on which another process's socket takes queries, bound to exactly that address and port.
pub(crate) fn others_listen(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let others = of_others(&[Protocol::Udp]);
    let taken = |address: &&SocketAddr| others.iter().any(|one| one.is_at(**address));
    addresses.iter().filter(taken).copied().collect()
}

/// Returns whether other processes' sockets are bound to each of these addresses and take what is sent there.
pub fn others_answer(sockets: &[(SocketAddr, Protocol)]) -> bool {
    [Protocol::Udp, Protocol::Tcp].into_iter().all(|protocol| {
        let mut wanted = sockets.iter().filter(|(_, of)| *of == protocol).peekable();
        wanted.peek().is_none() || {
            let others = of_others(&[protocol]);
            wanted.all(|(address, _)| others.iter().any(|one| one.is_at(*address)))
        }
    })
}

/// The addresses to which another process's socket is bound, on any port: that process still needs them.
pub(crate) fn others_hold(ips: &[IpAddr]) -> Vec<IpAddr> {
    if ips.is_empty() {
        return Vec::new();
    }
    let others = of_others(&[Protocol::Udp, Protocol::Tcp]);
    let held = |ip: &&IpAddr| others.iter().any(|one| one.address.ip() == **ip);
    ips.iter().filter(held).copied().collect()
}

/// Describes the process that is bound to an address.
pub fn holder(ip: IpAddr) -> String {
    let others = of_others(&[Protocol::Udp, Protocol::Tcp]);
    match others.iter().find(|one| one.address.ip() == ip) {
        Some(one) => format!("{} is bound to {}", netstat::owner(one), one.address),
        None => "a process was bound to it, and is not any more".into(),
    }
}

/// Other processes' sockets that take packets from any sender.
fn of_others(protocols: &[Protocol]) -> Vec<netstat::Bound> {
    let own = netstat::own_sockets();
    let bound = protocols.iter().flat_map(|protocol| netstat::bound(*protocol));
    bound
        .filter(|one| one.open && !own.contains(&one.inode))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_others_are_told_from_ours() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(others_listen(&[address]), [], "our own");

        let is_there = || {
            let bound = netstat::bound(Protocol::Udp);
            bound.iter().any(|one| one.address == address && one.open)
        };
        assert!(is_there());
        socket.connect("127.0.0.1:1").unwrap();
        assert!(!is_there(), "connected away");
    }

    #[test]
    fn a_successor_is_told_from_a_predecessor() {
        use socket2::{Domain, Socket, Type};
        let listen = |address: SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.listen(1).unwrap();
            socket
        };
        let first = listen("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap().as_socket().unwrap();
        let predecessors = Predecessors::of(address);
        assert_eq!(predecessors.inodes.len(), 1);
        assert!(!predecessors.have_been_followed(), "nobody came");
        let own = listen(address);
        assert!(!predecessors.have_been_followed(), "only we came");
        drop((first, own));
        assert_eq!(tcp_listeners(address).len(), 0);
    }

    /// A link-local listener has a scope, which the kernel's tables lack.
    #[test]
    fn a_listener_is_found_whatever_its_scope() {
        use socket2::{Domain, Socket, Type};
        let Ok(socket) = Socket::new(Domain::IPV6, Type::STREAM, None) else {
            return;
        };
        // Nobody has to have the address.
        socket.set_freebind_v6(true).unwrap();
        let address: SocketAddr = "[fe80::53%1]:0".parse().unwrap();
        socket.bind(&address.into()).unwrap();
        socket.listen(1).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        assert!(matches!(address, SocketAddr::V6(six) if six.scope_id() == 1));
        assert_eq!(tcp_listeners(address).len(), 1);
    }

    /// Runs in a new network namespace, where no other process has a turn; in the current one if it may not
    /// create one.
    fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let alone = move || {
            // SAFETY: takes a number and changes this thread only.
            unsafe { libc::unshare(libc::CLONE_NEWNET) };
            work()
        };
        std::thread::spawn(alone).join().unwrap()
    }

    fn now<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn one_at_a_time() {
        aside(|| {
            now(async {
                let (turn, error) = Turns::default().take().await;
                assert!(error.is_none() && turn._held.is_some());
                let mut turns = Turns::default();
                let mut next = std::pin::pin!(turns.take());
                assert!(
                    timeout(Duration::from_millis(200), &mut next).await.is_err(),
                    "while it is held"
                );
                drop(turn);
                let (turn, error) = next.await;
                assert!(error.is_none() && turn._held.is_some());
            });
        });
    }

    #[test]
    fn who_keeps_it_is_waited_for_once() {
        aside(|| {
            // Does not wait on real clocks: only these tasks can act.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let held = bind().unwrap().unwrap();
                let mut turns = Turns { given_up: true };
                let (turn, error) = turns.take().await;
                assert_eq!(error.map(|error| error.kind), Some(Kind::Turn));
                assert!(turn._held.is_none() && turns.given_up);
                drop(held);
                let (turn, error) = turns.take().await;
                assert!(error.is_none() && turn._held.is_some());
                assert!(!turns.given_up, "it is waited for again");
            });
        });
    }

    #[test]
    fn more_who_wait_than_fit_are_no_obstacle() {
        aside(|| {
            now(async {
                let held = bind().unwrap().unwrap();
                let name = UnixAddr::from_abstract_name(NAME).unwrap();
                let mut waiting = Vec::new();
                // Connecting to a full queue would block.
                for _ in 0..=128 {
                    waiting.push(std::os::unix::net::UnixStream::connect_addr(&name).unwrap());
                }
                let mut turns = Turns::default();
                let mut next = std::pin::pin!(turns.take());
                assert!(timeout(Duration::from_millis(50), &mut next).await.is_err());
                drop(held);
                assert!(next.await.1.is_none());
            });
        });
    }

    #[test]
    fn a_stranger_is_not_waited_for() {
        aside(|| {
            // SAFETY: takes no memory.
            if unsafe { libc::geteuid() } != 0 {
                return;
            }
            let stranger = std::thread::spawn(|| {
                // SAFETY: the bare system call changes this thread's user only, and takes numbers.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, 12345, 12345, 12345) };
                assert_eq!(changed, 0);
                bind().unwrap().unwrap()
            });
            let _held = stranger.join().unwrap();
            let (turn, error) = now(Turns { given_up: false }.take());
            assert!(turn._held.is_none());
            let error = error.unwrap().to_string();
            assert!(error.contains("held by user 12345"), "{error}");
        });
    }
}
