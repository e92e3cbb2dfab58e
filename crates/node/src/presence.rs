//! Processes of our kind that manage the same node: who they are, and which of two stands aside.
//!
//! If two processes answer at the same time, they share the clients, and each one's heartbeats keep rules
//! active that lead to the other even while it hangs. So the older one stands aside once the newer one
//! answers. The newer one announces that by connecting to the older. The connection ends when either process
//! does, for whatever reason, so nothing else has to be agreed on.
//!
//! Whether the other process listens is not exchanged: the kernel's tables show it
//! ([`others_answer`](super::others_answer)).

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener as StdListener};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::peers::{connect, stranger};
use crate::netstat;
use dnsweir_os::clock::since_boot;

/// Prefix of our processes' names. The start time follows, in nanoseconds since boot, because all may have
/// the same process id in their containers; then the pod's name, if [`POD`] is set.
const RECONCILER: &str = "dnsweir-reconciler-";

/// Hexadecimal digits of the start time.
const DIGITS: usize = 16;

/// The environment variable with this pod's name.
const POD: &str = "POD_NAME";

/// How long a process and its successor may manage a node together. One that was told to end is gone earlier.
const TOGETHER: Duration = Duration::from_secs(120);

/// How many older processes are told, at most.
const ELDERS: usize = 16;

/// How many names are examined, at most: any process may take some.
const LOOKED_AT: usize = 256;

/// How long older processes may take to listen again. A stopped one never does.
const BACK: Duration = Duration::from_secs(1);

/// How long to wait before accepting connections again after an error.
const AGAIN: Duration = Duration::from_millis(100);

/// Announces, for as long as this process lives, that it reconciles the node's network.
pub struct Presence {
    name: String,
    listener: UnixListener,
}

impl Presence {
    /// Announces this process. Must be called within a runtime.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn announce() -> io::Result<Presence> {
        let mut name = format!("{RECONCILER}{:0DIGITS$x}", since_boot().as_nanos());
        let pod = std::env::var(POD).unwrap_or_default();
        // A Kubernetes name (RFC 1123), limited to the room in an abstract address.
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || ['-', '.'].contains(&letter);
        if (1..=64).contains(&pod.len()) && pod.chars().all(is_name) {
            name = format!("{name}-{pod}");
        }
        let listener = StdListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Presence { name, listener })
    }

    /// Returns whether there is no other one, so that any other listener on our addresses is another program.
    pub(crate) fn is_alone(&self) -> bool {
        self.other().is_none()
    }

    /// Another process, if there is one.
    pub fn other(&self) -> Option<Other> {
        others().find(|other| other.name != self.name)
    }

    /// Waits for a newer process that answers queries. Cancel-safe.
    pub async fn successor(&self) -> Successor {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if matches!(stranger(&stream), Ok(None)) => return Successor(stream),
                Ok(_) => {}
                Err(_) => sleep(AGAIN).await,
            }
        }
    }
}

/// A newer process that answers queries. When it ends, it waits for this value to be dropped.
pub struct Successor(UnixStream);

impl Successor {
    /// Resolves when it has ended or is about to.
    pub async fn gone(&mut self) {
        let _ = self.0.read(&mut [0]).await;
    }
}

/// The older processes. They stand aside for as long as this value exists.
#[derive(Default)]
pub struct Elders(Vec<(String, UnixStream)>);

impl Elders {
    /// Tells older processes that do not know it yet that this process, announced by `presence`, answers.
    pub async fn tell(&mut self, presence: &Presence) {
        self.0.retain(|(_, stream)| {
            // Nothing is ever sent, so anything to read is the end of the connection.
            SockRef::from(stream)
                .recv(&mut [MaybeUninit::uninit()])
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        let mut names: Vec<String> = others()
            .map(|other| other.name)
            .filter(|name| began_before(name, &presence.name))
            .collect();
        names.sort_unstable();
        names.dedup();
        for name in names.into_iter().take(LOOKED_AT) {
            let is_known = self.0.iter().any(|(known, _)| *known == name);
            if is_known || self.0.len() >= ELDERS {
                continue;
            }
            // An older version has a socket of another type.
            if let Ok(stream) = connect(name.as_bytes()).await
                && matches!(stranger(&stream), Ok(None))
            {
                self.0.push((name, stream));
            }
        }
    }

    /// Makes them answer again. Returns when they do, or after 1 s.
    pub async fn call_back(self) {
        let back = async {
            let mut elders = self.0;
            for (_, stream) in &mut elders {
                let _ = stream.shutdown().await;
            }
            for (_, stream) in &mut elders {
                let _ = stream.read(&mut [0]).await;
            }
        };
        let _ = timeout(BACK, back).await;
    }
}

/// Returns whether the first process started before the second.
fn began_before(one: &str, other: &str) -> bool {
    match (began(one), began(other)) {
        (Some(first), Some(second)) => (first, one) < (second, other),
        _ => false,
    }
}

/// The start time in a name.
fn began(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(RECONCILER)?.get(..DIGITS)?;
    u64::from_str_radix(digits, 16).ok()
}

/// A process that announces that it reconciles the node's network: one of our kind, or any with such a name.
#[derive(Debug, Clone)]
pub struct Other {
    name: String,
    inode: u64,
}

/// The pod's name, or the process as far as it is visible from here.
impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = RECONCILER.len() + DIGITS;
        match self.name.get(time..).and_then(|rest| rest.strip_prefix('-')) {
            Some(pod) => write!(f, "the pod {pod}")?,
            None => match netstat::process_with(self.inode) {
                Some((id, program)) => write!(f, "process {id} ({program})")?,
                None => f.write_str("an unknown process")?,
            },
        }
        write!(f, ", which has the socket @{}", self.name)
    }
}

/// Any process that announces that it reconciles the node's network.
pub(crate) fn reconciling() -> Option<Other> {
    others().next()
}

/// Tracks another process and since when it has been there.
#[derive(Default)]
pub(crate) struct Company {
    since: Option<(Other, Instant)>,
}

impl Company {
    /// Records the process seen `now`. Returns it if it has been there for longer than a takeover lasts.
    pub fn look(&mut self, other: Option<Other>, now: Instant) -> Option<&Other> {
        self.since = other.map(|other| match self.since.take() {
            Some((known, since)) if known.name == other.name => (known, since),
            _ => (other, now),
        });
        let (other, since) = self.since.as_ref()?;
        (now.duration_since(*since) >= TOGETHER).then_some(other)
    }
}

/// All processes of our kind. One with connections to it occurs several times.
fn others() -> impl Iterator<Item = Other> {
    // Names are arbitrary bytes that others choose.
    let table = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    // Columns: address, references, protocol, flags, type, state, inode, name.
    let sockets = table.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(6);
        let inode = words.next()?.parse().ok()?;
        let name = words.next()?.strip_prefix('@')?;
        name.starts_with(RECONCILER).then(|| Other {
            name: name.to_owned(),
            inode,
        })
    });
    sockets.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// Runs in a new network namespace, where no other process is present; in the current one if it may not
    /// create one.
    fn aside(work: impl Future<Output = ()> + Send + 'static) {
        let alone = move || {
            // SAFETY: takes a number and changes this thread only.
            unsafe { libc::unshare(libc::CLONE_NEWNET) };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(work);
        };
        std::thread::spawn(alone).join().unwrap();
    }

    #[test]
    fn reconcilers_know_of_each_other() {
        aside(async {
            let first = Presence::announce().unwrap();
            let second = Presence::announce().unwrap();
            assert!(!first.is_alone() && !second.is_alone());
            drop(first);
            // A name that is not UTF-8 does not hide the others.
            let odd = UnixAddr::from_abstract_name(b"\xff\xfe dnsweir").unwrap();
            let _odd = UnixDatagram::bind_addr(&odd).unwrap();
            assert!(second.is_alone());
            let said = reconciling().unwrap().to_string();
            let own = format!("process {} (", std::process::id());
            assert!(said.starts_with(&own) && said.ends_with(&second.name), "{said}");
        });
    }

    /// The second tells the first, not vice versa; the first notices its end, and the second waits for it.
    #[test]
    fn the_first_is_told_of_the_second_and_of_its_end() {
        aside(async {
            let (first, second) = (Presence::announce().unwrap(), Presence::announce().unwrap());
            let (mut of_first, mut of_second) = (Elders::default(), Elders::default());
            of_first.tell(&first).await;
            of_second.tell(&second).await;
            of_second.tell(&second).await;
            assert_eq!((of_first.0.len(), of_second.0.len()), (0, 1));
            assert!(!second.is_alone() && first.other().is_some_and(|it| it.name == second.name));
            let mut successor = first.successor().await;
            // An older version's socket has another type, and is left alone.
            let old = format!("{RECONCILER}{:0DIGITS$x}", 0);
            let _old = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(old).unwrap()).unwrap();
            of_second.tell(&second).await;
            assert_eq!(of_second.0.len(), 1);
            let mut back = std::pin::pin!(of_second.call_back());
            let soon = Duration::from_millis(50);
            assert!(timeout(soon, &mut back).await.is_err(), "it is waited for");
            successor.gone().await;
            drop(successor);
            back.await;
        });
    }

    /// An older process that has ended is forgotten, and one that could not be told at first is told later.
    #[test]
    fn an_elder_that_has_ended_is_forgotten() {
        aside(async {
            let (first, second) = (Presence::announce().unwrap(), Presence::announce().unwrap());
            let mut elders = Elders::default();
            elders.tell(&second).await;
            let successor = first.successor().await;
            assert_eq!(elders.0.len(), 1);
            drop((first, successor));
            elders.tell(&second).await;
            assert_eq!(elders.0.len(), 0);
        });
    }

    /// The peer must be root or the same user; otherwise anyone could make us stand aside for nothing.
    #[test]
    fn nobody_stands_aside_for_a_stranger() {
        aside(async {
            if netstat::own_user() != 0 {
                return;
            }
            let first = Presence::announce().unwrap();
            let name = first.name.clone();
            let stranger = std::thread::spawn(move || {
                // SAFETY: the bare system call changes this thread's user only, and takes numbers.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, 12345, 12345, 12345) };
                assert_eq!(changed, 0);
                let name = UnixAddr::from_abstract_name(name).unwrap();
                std::os::unix::net::UnixStream::connect_addr(&name).unwrap()
            });
            let _stream = stranger.join().unwrap();
            let soon = Duration::from_millis(100);
            assert!(timeout(soon, first.successor()).await.is_err());
        });
    }

    /// An upgrade takes seconds. Two that stay are two installations.
    #[test]
    fn who_stays_longer_than_a_takeover_is_named() {
        let other = |name: &str| {
            Some(Other {
                name: format!("{RECONCILER}0123456789abcdef{name}"),
                inode: 0,
            })
        };
        let (mut company, begin) = (Company::default(), Instant::now());
        let mut look = |other, seconds| {
            let now = begin + Duration::from_secs(seconds);
            company.look(other, now).map(ToString::to_string)
        };
        assert_eq!(look(other("-old"), 0), None);
        assert_eq!(look(other("-old"), 119), None);
        assert_eq!(
            look(other("-old"), 120).as_deref(),
            Some("the pod old, which has the socket @dnsweir-reconciler-0123456789abcdef-old")
        );
        assert_eq!(look(other(""), 121), None, "another one");
        assert_eq!(look(None, 300), None);
        assert_eq!(look(other(""), 301), None);
        let said = look(other(""), 421).unwrap();
        assert!(said.starts_with("an unknown process, "), "{said}");
    }
}
