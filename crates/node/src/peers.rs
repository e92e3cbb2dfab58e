//! Other processes that reconcile the same node: a predecessor that ends, a successor that begins.
//!
//! Two questions, and nothing else: may I touch the network now ([`Turns`]), and does someone else listen
//! where I did ([`others_listen`], [`others_answer`]), or is bound to an address that I would take away ([`others_hold`])?
//! docs/decisions/0005-handover.md says why they are asked this way.

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

/// An abstract name: it lives in the network namespace, as do the links and rules it stands for, and
/// goes with the process that holds it, however that ends.
const NAME: &[u8] = b"dnsweir-node";

/// How long to wait for others. Nobody works that long, unless stopped in the middle of it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before asking again whom one cannot wait for.
const AGAIN: Duration = Duration::from_millis(20);

/// The right to change the network. One process has it at a time, as far as [`Turns::take`] can see to it.
pub struct Turn {
    _held: Option<UnixListener>,
}

/// Gives turns.
#[derive(Default)]
pub struct Turns {
    /// Somebody has it and did not give it back in time: nobody waits for that again.
    given_up: bool,
}

impl Turns {
    /// Waits until nobody else has it. It is taken without the right, and the error says so, when
    ///
    /// - [`PATIENCE`] has passed, since a process that is stopped would keep the node from being repaired;
    /// - who has it is neither root nor who we are, since an abstract name is anybody's to take.
    pub async fn take(&mut self) -> (Turn, Option<Error>) {
        let patience = if self.given_up { Duration::ZERO } else { PATIENCE };
        // The first look is not waited for.
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

/// Waits for whoever has it.
async fn wait() -> Result<UnixListener, String> {
    loop {
        if let Some(held) = bind().map_err(|error| error.to_string())? {
            return Ok(held);
        }
        // Nobody accepts the connection; it breaks when the holder lets go, which ends the read.
        match connect(NAME).await {
            Ok(mut holder) => {
                if let Some(stranger) = stranger(&holder).map_err(|error| error.to_string())? {
                    return Err(format!(
                        "it is held by user {stranger}, who is neither root nor the user of this process"
                    ));
                }
                let _ = holder.read(&mut [0]).await;
            }
            // It has just let go, or too many wait already.
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// Connects to an abstract name.
pub(super) async fn connect(name: &[u8]) -> io::Result<UnixStream> {
    let name = [b"\0", name].concat();
    UnixStream::connect(std::path::Path::new(std::ffi::OsStr::from_bytes(&name))).await
}

/// Who is at the other end, if that is neither root nor the user of this process: abstract names are anybody's to take, and to connect to.
pub(super) fn stranger(stream: &UnixStream) -> io::Result<Option<u32>> {
    let user = stream.peer_cred()?.uid();
    Ok((user != 0 && user != netstat::own_user()).then_some(user))
}

/// Who listened on an address over TCP before we did.
pub struct Predecessors {
    address: SocketAddr,
    /// Of their sockets.
    inodes: HashSet<u64>,
}

impl Predecessors {
    /// Looks, before we listen there.
    pub fn of(address: SocketAddr) -> Predecessors {
        Predecessors {
            address,
            inodes: tcp_listeners(address),
        }
    }

    /// Where they listened.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether another process has begun to listen there since: a successor, which answers for both of us.
    pub fn have_been_followed(&self) -> bool {
        let now = tcp_listeners(self.address);
        let mut unknown = now.difference(&self.inodes).peekable();
        unknown.peek().is_some() && {
            let own = netstat::own_sockets();
            unknown.any(|inode| !own.contains(inode))
        }
    }
}

/// Inodes of the listeners of an address.
fn tcp_listeners(address: SocketAddr) -> HashSet<u64> {
    let bound = netstat::bound(Protocol::Tcp).into_iter();
    bound
        .filter(|one| one.address == address)
        .map(|one| one.inode)
        .collect()
}

/// Those of the addresses on which a socket that is not ours takes queries, bound to exactly that.
pub(crate) fn others_listen(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let others = of_others(&[Protocol::Udp]);
    let taken = |address: &&SocketAddr| others.iter().any(|one| one.address == **address);
    addresses.iter().filter(taken).copied().collect()
}

/// Whether sockets that are not ours are bound to each of these addresses, and take what is sent there.
pub fn others_answer(sockets: &[(SocketAddr, Protocol)]) -> bool {
    [Protocol::Udp, Protocol::Tcp].into_iter().all(|protocol| {
        let mut wanted = sockets.iter().filter(|(_, of)| *of == protocol).peekable();
        wanted.peek().is_none() || {
            let others = of_others(&[protocol]);
            wanted.all(|(address, _)| others.iter().any(|one| one.address == *address))
        }
    })
}

/// Those of the addresses to which a socket that is not ours is bound, on whichever port: taken away, they would
/// be missed.
pub(crate) fn others_hold(ips: &[IpAddr]) -> Vec<IpAddr> {
    if ips.is_empty() {
        return Vec::new();
    }
    let others = of_others(&[Protocol::Udp, Protocol::Tcp]);
    let held = |ip: &&IpAddr| others.iter().any(|one| one.address.ip() == **ip);
    ips.iter().filter(held).copied().collect()
}

/// Who is bound to an address, in words.
pub fn holder(ip: IpAddr) -> String {
    let others = of_others(&[Protocol::Udp, Protocol::Tcp]);
    match others.iter().find(|one| one.address.ip() == ip) {
        Some(one) => format!("{} is bound to {}", netstat::owner(one), one.address),
        None => "a process was bound to it, and is not any more".into(),
    }
}

/// Sockets of other processes that take what anybody sends.
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

    /// Runs in a network namespace of its own, where nobody else has a turn; without the right to make one, in this one.
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
            // Real clocks are not waited for: nobody but these tasks can do anything.
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
