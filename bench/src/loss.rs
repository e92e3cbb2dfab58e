//! Latency of misses while a tenth of what is sent upstream is lost.
//!
//! An upstream of this process leaves one datagram in ten unanswered, by a seeded choice: the same ones for
//! everybody. Each server is asked for new names at a fixed rate, first with one such upstream, then with
//! two. Over TCP nothing is lost here; where packets are, the kernel sends them again.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::answering::{Answers, serve_tcp};
use crate::datagrams::enlarge_buffer;
use crate::drive::{Monotonic, Schedule, on_schedule};
use crate::peers::in_path;
use crate::process::{Scratch, Server, free_port, pin};
use crate::udp_client::UdpClient;
use crate::wire;
use crate::workload::Workload;

const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
const UPSTREAMS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 78), Ipv4Addr::new(127, 0, 0, 79)];
const FIRST_PORT: u16 = 22_053;

/// What is measured; who is not installed is left out.
const SERVERS: [&str; 5] = ["dnsweir", "unbound", "dnsdist", "pdns-recursor", "coredns"];

/// The percentiles of the table.
const PARTS: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// What to run.
pub struct Settings {
    /// The proxy's program.
    pub dnsweir: PathBuf,
    /// CoreDNS, if it is not in `PATH`.
    pub coredns: Option<PathBuf>,
    /// One datagram in so many is lost.
    pub one_in: u64,
    /// Queries a second.
    pub rate: u32,
    /// For how long.
    pub duration: Duration,
    /// The processor of the server.
    pub server_core: usize,
    /// The processor of everything else.
    pub client_core: usize,
}

/// Measures everybody; gives the table.
pub fn run(settings: &Settings) -> io::Result<String> {
    pin(settings.client_core)?;
    let scratch = Scratch::new()?;
    let mut table = String::from(
        "| server | upstreams | p50 ms | p90 | p99 | p99.9 | unanswered after 1 s | upstream queries for each |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for name in SERVERS {
        let Some(program) = program(settings, name) else {
            eprintln!("{name}: not installed, left out");
            continue;
        };
        for count in 1..=UPSTREAMS.len() {
            let row = measure(settings, &scratch, name, &program, count)?;
            eprintln!("{row}");
            let _ = writeln!(table, "{row}");
        }
    }
    Ok(table)
}

fn program(settings: &Settings, name: &str) -> Option<PathBuf> {
    match name {
        "dnsweir" => Some(settings.dnsweir.clone()),
        "coredns" => settings.coredns.clone().or_else(|| in_path(name)),
        "pdns-recursor" => in_path("pdns_recursor"),
        _ => in_path(name),
    }
}

fn measure(
    settings: &Settings,
    scratch: &Scratch,
    name: &str,
    program: &Path,
    count: usize,
) -> io::Result<String> {
    let asked = Arc::new(AtomicU64::new(0));
    let mut upstreams = Vec::new();
    for (seed, address) in UPSTREAMS.into_iter().take(count).enumerate() {
        upstreams.push(lossy(address, settings.one_in, seed as u64, &asked)?);
    }
    let listen = SocketAddrV4::new(SERVER, free_port(SERVER, FIRST_PORT)?);
    let folder = scratch.folder(&format!("{name}-{count}"))?;
    let mut command = Command::new(program);
    command
        .args(set_up(name, &folder, listen, &upstreams)?)
        .current_dir(&folder);
    let server = Server::start(&mut command, settings.server_core, listen, &folder)?;

    let mut client = UdpClient::new(server.address, Vec::new(), 8)?;
    let mut questions = Workload::Misses.questions(count as u32);
    let mut ask = |duration| {
        let schedule = Schedule::new(settings.rate, 2, duration);
        on_schedule(&mut client, &mut Monotonic, schedule, &mut || questions.next())
    };
    // How long an answer takes is something that servers learn.
    ask(Duration::from_secs(2))?;
    asked.store(0, Ordering::Relaxed);
    let tally = ask(settings.duration)?;
    let sent = tally.sent.max(1) as f64;
    let answered = tally.answered as f64;
    let mut row = format!("| {name} | {count} |");
    for part in PARTS {
        // Of all that were sent: who is not answered waits longest.
        let latency = Some(part * sent / answered).filter(|part| *part <= 1.0);
        match latency.and_then(|part| tally.latency.quantile(part)) {
            Some(latency) => row += &format!(" {:.1} |", latency as f64 / 1e6),
            None => row += " – |",
        }
    }
    let unanswered = 100.0 * (sent - answered) / sent;
    let each = asked.load(Ordering::Relaxed) as f64 / sent;
    let _ = write!(row, " {unanswered:.2} % | {each:.2} |");
    Ok(row)
}

/// Starts an upstream that ends with this process; gives its address.
fn lossy(ip: Ipv4Addr, one_in: u64, seed: u64, asked: &Arc<AtomicU64>) -> io::Result<SocketAddrV4> {
    let address = SocketAddrV4::new(ip, free_port(ip, FIRST_PORT)?);
    let (udp, tcp) = (UdpSocket::bind(address)?, TcpListener::bind(address)?);
    enlarge_buffer(&udp)?;
    let asked = Arc::clone(asked);
    std::thread::spawn(move || serve_tcp(&tcp, &Answers::Authoritative));
    std::thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; 4096];
        let mut random = 0x9e37_79b9_7f4a_7c15 ^ (seed << 17);
        loop {
            let (length, from) = udp.recv_from(&mut buffer)?;
            asked.fetch_add(1, Ordering::Relaxed);
            // Xorshift64*, of which the upper bits are the good ones.
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            let lost = (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).is_multiple_of(one_in);
            if !lost && let Some(end) = wire::question_end(&buffer[..length]) {
                let length = wire::authoritative(&buffer[..length], end).answer(&mut buffer, end);
                udp.send_to(&buffer[..length], from)?;
            }
        }
    });
    Ok(address)
}

/// Writes what `name` needs into `folder`; gives its arguments. All have what they do by default about
/// upstreams that do not answer.
fn set_up(
    name: &str,
    folder: &Path,
    listen: SocketAddrV4,
    upstreams: &[SocketAddrV4],
) -> io::Result<Vec<String>> {
    let (ip, port) = (listen.ip(), listen.port());
    let all = |each: &dyn Fn(&SocketAddrV4) -> String, between: &str| {
        upstreams.iter().map(each).collect::<Vec<_>>().join(between)
    };
    let (file, text, arguments): (&str, String, &[&str]) = match name {
        "dnsweir" => {
            let to = all(&|to| format!("\"{to}\""), " ");
            (
                "dnsweir.kdl",
                format!("listen \"{listen}\"\nworkers 1\nzone \".\" {{ cache; forward {to} }}\n"),
                &["run", "--log-level", "error", "--config", "dnsweir.kdl"],
            )
        }
        "unbound" => {
            let to = all(&|to| format!("    forward-addr: {}@{}", to.ip(), to.port()), "\n");
            (
                "unbound.conf",
                format!(
                    "server:\n    interface: {ip}@{port}\n    port: {port}\n    use-syslog: no\n    \
                     username: \"\"\n    chroot: \"\"\n    pidfile: \"\"\n    directory: \".\"\n    \
                     do-daemonize: no\n    num-threads: 1\n    module-config: \"iterator\"\n    \
                     do-not-query-localhost: no\nremote-control:\n    control-enable: no\n\
                     forward-zone:\n    name: \".\"\n{to}\n"
                ),
                &["-d", "-p", "-c", "unbound.conf"],
            )
        }
        "dnsdist" => {
            let to = all(&|to| format!("newServer({{address=\"{to}\"}})"), "\n");
            (
                "dnsdist.conf",
                format!(
                    "setSecurityPollSuffix(\"\")\naddLocal(\"{listen}\")\n{to}\n\
                     getPool(\"\"):setCache(newPacketCache(1000000))\n"
                ),
                &["--supervised", "--disable-syslog", "-C", "dnsdist.conf"],
            )
        }
        "pdns-recursor" => {
            let to = all(&|to| to.to_string(), ";");
            (
                "recursor.conf",
                format!(
                    "local-address={ip}\nlocal-port={port}\nforward-zones-recurse=.={to}\ndont-query=\n\
                     threads=1\ndnssec=off\ndaemon=no\ndisable-syslog=yes\nquiet=yes\nloglevel=3\n\
                     write-pid=no\nsocket-dir=.\nsecurity-poll-suffix=\n"
                ),
                &["--config-dir=."],
            )
        }
        _ => {
            let to = all(&|to| to.to_string(), " ");
            (
                "Corefile",
                format!(".:{port} {{\n    bind {ip}\n    cache\n    forward . {to}\n}}\n"),
                &["-conf", "Corefile"],
            )
        }
    };
    std::fs::write(folder.join(file), text)?;
    Ok(arguments.iter().map(|word| (*word).to_owned()).collect())
}
