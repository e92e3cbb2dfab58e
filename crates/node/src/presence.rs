//! Processes of our kind that look after the same node: who they are, and which of two stands aside.
//!
//! Two that answer at once share the clients, and each one's heartbeats keep the rules leading to the other while that does not run. So
//! the one that began first stands aside once the other one answers, which that says by a connection to it. For as long as the connection lasts,
//! its end being that of either process, however that comes about, nothing else has to be agreed on.
//!
//! Refuses to know more: that the other one listens is seen in the kernel's tables ([`others_answer`](super::others_answer)).

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
use dnsweir_os::boot_clock::since_boot;

/// Beginning of the names by which processes of our kind know that there are others. What follows is when they began, in nanoseconds since
/// the machine did: in their containers, all of them may have the same process id. At the end is the pod's name, if [`POD`] says it.
const RECONCILER: &str = "dnsweir-reconciler-";

/// Digits of the time.
const DIGITS: usize = 16;

/// The variable of the environment that has the name of the pod that we are.
const POD: &str = "POD_NAME";

/// How long a process and its successor may look after a node together. One that is told to end has ended long before.
const TOGETHER: Duration = Duration::from_secs(120);

/// Processes that began before this one and are told, at most.
const ELDERS: usize = 16;

/// Names that are looked at, at most: anybody may take some.
const LOOKED_AT: usize = 256;

/// How long those who stood aside may take to listen again. One that is stopped does not.
const BACK: Duration = Duration::from_secs(1);

/// How long before connections are accepted again after an error.
const AGAIN: Duration = Duration::from_millis(100);

/// Tells others of our kind, for as long as this process lives, that it reconciles the node's network.
pub struct Presence {
    name: String,
    listener: UnixListener,
}

impl Presence {
    /// Tells them. Within a runtime.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn announce() -> io::Result<Presence> {
        let mut name = format!("{RECONCILER}{:0DIGITS$x}", since_boot().as_nanos());
        let pod = std::env::var(POD).unwrap_or_default();
        // As Kubernetes has names (RFC 1123), of which an abstract address has room for so much.
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || ['-', '.'].contains(&letter);
        if (1..=64).contains(&pod.len()) && pod.chars().all(is_name) {
            name = format!("{name}-{pod}");
        }
        let listener = StdListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Presence { name, listener })
    }

    /// Whether there is no other one. Whoever else listens on our addresses is a program of another kind then.
    pub(crate) fn is_alone(&self) -> bool {
        self.other().is_none()
    }

    /// Another one.
    pub fn other(&self) -> Option<Other> {
        others().find(|other| other.name != self.name)
    }

    /// Waits for one that began later and answers queries. May be dropped and called again.
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

/// A process that began after this one and answers queries. It waits for this value to be dropped when it ends.
pub struct Successor(UnixStream);

impl Successor {
    /// Resolves when it has ended, or is about to.
    pub async fn gone(&mut self) {
        let _ = self.0.read(&mut [0]).await;
    }
}

/// Those that began before this one, and stand aside for as long as this value is there.
#[derive(Default)]
pub struct Elders(Vec<(String, UnixStream)>);

impl Elders {
    /// Says to those that do not know it yet that this process, of which `presence` is, answers queries.
    pub async fn tell(&mut self, presence: &Presence) {
        self.0.retain(|(_, stream)| {
            // Nothing is ever said: what can be read is its end.
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
            // One of an older version has a socket of another kind.
            if let Ok(stream) = connect(name.as_bytes()).await
                && matches!(stranger(&stream), Ok(None))
            {
                self.0.push((name, stream));
            }
        }
    }

    /// Has them answer again, and returns when they do.
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

/// Whether the process with the first name began before the one with the second.
fn began_before(one: &str, other: &str) -> bool {
    match (began(one), began(other)) {
        (Some(first), Some(second)) => (first, one) < (second, other),
        _ => false,
    }
}

/// When the process with a name began.
fn began(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(RECONCILER)?.get(..DIGITS)?;
    u64::from_str_radix(digits, 16).ok()
}

/// A process that says that it reconciles the node's network: one of our kind, or whoever has taken the name.
#[derive(Debug, Clone)]
pub struct Other {
    name: String,
    inode: u64,
}

/// As a pod, or as a process as far as it can be seen from here.
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

/// A process that says that it reconciles the node's network, if there is one.
pub(crate) fn reconciling() -> Option<Other> {
    others().next()
}

/// Another process beside this one, and since when.
#[derive(Default)]
pub(crate) struct Company {
    since: Option<(Other, Instant)>,
}

impl Company {
    /// Takes in who is there `now`. Who has been for longer than a takeover lasts.
    pub fn look(&mut self, other: Option<Other>, now: Instant) -> Option<&Other> {
        self.since = other.map(|other| match self.since.take() {
            Some((known, since)) if known.name == other.name => (known, since),
            _ => (other, now),
        });
        let (other, since) = self.since.as_ref()?;
        (now.duration_since(*since) >= TOGETHER).then_some(other)
    }
}

/// All processes of our kind; those that others are connected to, more than once.
fn others() -> impl Iterator<Item = Other> {
    // Names are octets, and others choose theirs.
    let table = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    // Address, references, protocol, flags, type, state, inode, name.
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

    /// Runs in a network namespace of its own, where nobody else is present; without the right to make one, in this one.
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
            // What others call theirs hides nobody.
            let odd = UnixAddr::from_abstract_name(b"\xff\xfe dnsweir").unwrap();
            let _odd = UnixDatagram::bind_addr(&odd).unwrap();
            assert!(second.is_alone());
            let said = reconciling().unwrap().to_string();
            let own = format!("process {} (", std::process::id());
            assert!(said.starts_with(&own) && said.ends_with(&second.name), "{said}");
        });
    }

    /// The second tells the first and not the other way round, the first is told of its end, and the second waits for it.
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
            // Another version's has a socket of another kind, and is left alone.
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

    /// One that has ended is forgotten, and one that was not told at first is later.
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

    /// Whoever is connected to a name must be root or the same user: anybody else could have us stand aside for nobody.
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
